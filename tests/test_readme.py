"""What the README shows works as written."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from parvibench.cli import app
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import parse_suite

README = Path(__file__).parents[1] / "README.md"


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


def test_every_command_exists_with_its_options() -> None:
    root = typer.main.get_command(app)
    lines = [line.partition("#")[0].strip() for block in blocks("") for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("parvibench ")]
    assert len(commands) >= 10
    for _, *words in commands:
        command = root
        while hasattr(command, "commands") and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        assert {w for w in words if w.startswith("--")} <= known, words
