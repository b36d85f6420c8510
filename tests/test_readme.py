"""What README and CONTRIBUTING show works as written."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from parvibench.cli import app
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import parse_suite

README = Path(__file__).parents[1] / "README.md"
CONTRIBUTING = README.with_name("CONTRIBUTING.md")


def blocks(language: str) -> list[str]:
    if not README.is_file():  # tests copied beside an installed wheel
        pytest.skip("the README is not here")
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.S)


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (example,) = blocks("python")
    exec(compile(example.replace("pb.run(", "pb.run(workers=0, "), "README.md", "exec"), {"__name__": "readme"})
    shown = capsys.readouterr().out
    assert "sliced_w2" in shown
    assert shown.strip().endswith("indistinguishable")


def test_the_suite_example_is_valid() -> None:
    (example,) = blocks("yaml")
    cells = expand(parse_suite(example.encode(), "mine.yaml"))
    assert [(c.task, c.label) for c in cells][-1] == ("bnn-boston", "sgld-slow")


def command_of(words: list[str]) -> Any:
    """The command that the words begin with; they are used up."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    return command


def quoted() -> list[str]:
    """What CONTRIBUTING sets as code."""
    if not CONTRIBUTING.is_file():
        pytest.skip("CONTRIBUTING is not here")
    return re.findall(r"`([^`]+)`", CONTRIBUTING.read_text("utf-8"))


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


def test_every_command_exists_with_its_options() -> None:
    lines = [line.partition("#")[0].strip() for block in blocks("") for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("parvibench ")]
    assert len(commands) >= 10
    for _, *words in commands:
        command = command_of(words)
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        assert {w for w in words if w.startswith("--")} <= known, words
