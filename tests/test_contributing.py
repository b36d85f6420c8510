"""Paths, targets and commands that CONTRIBUTING names exist."""

import re
from pathlib import Path

import pytest
import typer.main

from parvibench.cli import app

ROOT = Path(__file__).parents[1]
TOP = {item.name for item in ROOT.iterdir()}

pytestmark = pytest.mark.skipif("CONTRIBUTING.md" not in TOP, reason="needs a checkout")


def quoted() -> list[str]:
    return re.findall(r"`([^`]+)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))


def test_every_path_exists() -> None:
    paths = [word for text in quoted() for word in text.split() if word.split("/")[0] in TOP]
    assert len(paths) > 20
    assert [p for p in paths if "NAME" not in p and not (ROOT / p).exists()] == []


def test_every_make_target_exists() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.M)
    named = {text.split()[1] for text in quoted() if text.startswith("make ")}
    assert {"index", "test", "lint"} <= named <= set(targets)


def test_every_command_exists() -> None:
    for text in quoted():
        command, words = typer.main.get_command(app), text.split()[1:]
        if text.startswith("parvibench "):
            while hasattr(command, "commands"):
                assert words[0] in command.commands, text
                command = command.commands[words.pop(0)]
