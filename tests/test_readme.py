"""What the README and CONTRIBUTING say is true; the blocks of code of all pages: ``test_docs.py``."""

import re
from pathlib import Path
from typing import Any

import first_table
import pytest
import typer.main

import parvibench as pb
from parvibench.cli import app
from parvibench.core import registry

README = Path(__file__).parents[1] / "README.md"
CONTRIBUTING = README.with_name("CONTRIBUTING.md")


@pytest.fixture
def readme() -> str:
    if not README.is_file():  # tests copied next to an installed wheel
        pytest.skip("the README is not here")
    return README.read_text("utf-8")


def test_the_python_examples_run(
    readme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the page, as one program; its commands: tests/test_docs.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    examples = re.findall(r"```python\n(.*?)```", readme, flags=re.S)
    assert len(examples) >= 2
    exec(compile("\n".join(examples), "README.md", "exec"), {"__name__": "readme"})
    shown = capsys.readouterr().out
    assert shown.startswith("indistinguishable")
    assert "sliced_w2" in shown


def test_the_first_page_is_short(readme: str) -> None:
    assert len(readme.split()) <= 700


def test_the_counts_are_those_of_the_registry(readme: str) -> None:
    """Stated as lower bounds, so that an addition does not change the page; a page that is far behind does."""
    told = re.search(r"More than (\d+) tasks, (\d+) algorithms and (\d+) metrics", readme)
    assert told
    for bound, rows in zip(told.groups(), (registry.tasks(), registry.algorithms(), registry.metrics()), strict=True):
        assert int(bound) < len(rows) < int(bound) + 20


def command_of(words: list[str]) -> Any:
    """The command that the words begin with; they are used up."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    return command


def quoted() -> list[str]:
    """What CONTRIBUTING sets as code; blocks of code: tests/test_docs.py."""
    if not CONTRIBUTING.is_file():
        pytest.skip("CONTRIBUTING is not here")
    text = re.sub(r"^```.*?^```$", "", CONTRIBUTING.read_text("utf-8"), flags=re.M | re.S)
    return re.findall(r"`([^`]+)`", text)


def test_every_path_in_contributing_exists() -> None:
    top = {item.name for item in README.parent.iterdir()}
    paths = [word for text in quoted() for word in text.split() if word.split("/")[0] in top]
    assert len(paths) > 20
    assert [p for p in paths if "NAME" not in p and not (README.parent / p).exists()] == []


def test_every_make_target_and_command_in_contributing_exists() -> None:
    targets = re.findall(r"^([\w-]+):", README.with_name("Makefile").read_text("utf-8"), flags=re.M)
    named = {text.split()[1] for text in quoted() if text.startswith("make ")}
    assert {"index", "test", "lint"} <= named <= set(targets)
    for words in (text.split()[1:] for text in quoted() if text.startswith("parvibench ")):
        assert not hasattr(command_of(words), "commands"), words


def plain(rows: list[str]) -> dict[tuple[str, str], str]:
    """Entries of a Markdown table by method and column, without bold, which depends on the other methods."""
    head, _, *body = ([c.strip(" *") for c in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows)
    return {(r[0], title): entry for r in body for title, entry in zip(head[1:], r[1:], strict=True)}


def test_the_first_table_shows_rows_of_the_quickstart(readme: str) -> None:
    few, every = (first_table.table_of(page) for page in first_table.PAGES)
    assert few[0] == every[0]
    assert [row for row in every if row in few] == few


@pytest.mark.parametrize("methods", [("svgd", "mala", "exact", "initial"), pytest.param((), marks=pytest.mark.slow)])
def test_the_first_table_is_what_the_command_gives(readme: str, tmp_path: Path, methods: tuple[str, ...]) -> None:
    """Whole in the slow tests; else the banana's column of a few methods. Another table: tests/first_table.py."""
    part = {"tasks": ["banana"], "algorithms": methods} if methods else {}
    results = pb.run("quick", out=tmp_path, workers=0, tracking=False, **part)
    written = first_table.table_of("docs/quickstart.md")
    if not methods:
        assert first_table.lines(results) == written
        return
    now, shown = plain(first_table.lines(results)), plain(written)
    assert {k: v for k, v in now.items() if k[1] == "banana"} == {(m, "banana"): shown[m, "banana"] for m in methods}
