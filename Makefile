# `make quickstart` and `make test` are all a fresh machine needs: both make .venv and install into it first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Installs again when the requirements or the tested versions change.
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: quickstart test test-slow lint benchmark clean

quickstart: $(STAMP)  ## Run every method on the small targets; ends with a leaderboard and a page.
	$(BIN)/parvibench run --suite quick

test: $(STAMP)  ## The default tests.
	$(BIN)/python -m pytest -n auto

test-slow: $(STAMP)  ## The tests that take minutes.
	$(BIN)/python -m pytest -m slow

benchmark: $(STAMP)  ## Timings of single steps.
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only -m ''

lint: $(STAMP)  ## Style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(STAMP):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@rm -f $(VENV)/.installed-*
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
