# `make quickstart` and `make test` are all a fresh machine needs: both make .venv and install into it first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Installs again when the requirements or the tested versions change.
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

# With uv, where there is one, an installation takes seconds; pip is what every Python has, and reads its own settings of indexes.
UV := $(shell command -v uv)
install = $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[$(1)]' ||) \
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt -e '.[$(1)]'

# Without byte code on disk every process compiles the package and the tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart environment test test-slow traces reports docs index edition lint benchmark benchmark-table benchmark-watch gpu clean

quickstart: $(STAMP)  ## Run every method on the small targets; ends with a leaderboard and a page.
	$(BIN)/parvibench run --suite quick

environment: $(STAMP)  ## The environment alone: .venv.

test: $(STAMP)  ## The default tests.
	$(BIN)/python -m pytest -n auto

test-slow: $(STAMP)  ## The tests that take minutes.
	$(BIN)/python -m pytest -m slow

benchmark: $(STAMP)  ## Times of a step of every method.
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only --benchmark-timer=time.process_time -m ''

benchmark-table: $(STAMP)  ## Against textbook programs and BlackJAX: reports/benchmarks.
	$(BIN)/python tests/benchmarks/table.py

benchmark-watch: $(STAMP)  ## Fails when a fast path has become slow.
	$(BIN)/python tests/benchmarks/watch.py

# Installs nothing: the environment is used as it is. `make gpu DEVICE=cpu OPTIONS='--fast --out FOLDER'` tries it without a card.
DEVICE ?= cuda
gpu:  ## Every algorithm and its times on a GPU: reports/gpu; under 8 minutes.
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) tests/benchmarks/card.py --device $(DEVICE) $(OPTIONS)

docs: $(VENV)/.docs-$(notdir $(STAMP))  ## The site, with the reports: docs/_build/site/index.html.
	rm -rf docs/_build docs/reference docs/reports
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html -d docs/_build/doctrees docs docs/_build/site
	@echo "docs/_build/site/index.html"

$(VENV)/.docs-$(notdir $(STAMP)): $(STAMP)
	$(call install,docs)
	@touch $@

index: $(STAMP)  ## After a change of a task, an algorithm or a metric; KEEP=name[,name] where results stay.
	$(BIN)/python tests/core/indexing.py '$(KEEP)'

reports: $(STAMP)  ## The pages of reports/ again, each from its archive, their index and docs/results.md; a page that would lose pictures stays.
	@for archive in reports/*/results.zip; do $(BIN)/parvibench report --board "$${archive%/*}" || failed=1; done; \
	$(BIN)/python tests/studies/results_page.py reports docs/results.md; \
	$(BIN)/parvibench report --index reports && exit $${failed:-0}

traces: $(STAMP)  ## After an intended change of results: store the golden values of today; ONLY='mala', ONLY='*mini-batches'.
	$(BIN)/python tests/regression/accept_traces.py '$(ONLY)'

edition: $(STAMP)  ## Freeze versions and published results under a name: EDITION=2026.12.
	$(BIN)/python .ci/edition.py '$(EDITION)' reports

lint: $(STAMP)  ## Style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(STAMP):
	$(PYTHON) -m venv $(VENV)
	$(call install,dev)
	@rm -f $(VENV)/.installed-*
	@touch $@

clean:
	rm -rf $(VENV) docs/_build docs/reference docs/reports build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
