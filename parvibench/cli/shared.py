"""Consoles, options and printing that all commands share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from parvibench.core.errors import InputError

EXIT_FAILED = 1
EXIT_USAGE = 2

#: stderr: progress, notes, errors.
console = Console(stderr=True)
#: stdout: the result.
out_console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Out = Annotated[Path, typer.Option("--out", help="The result store.", show_default=True)]


def warn(message: str) -> None:
    """Print a warning on stderr."""
    note(message, style="yellow")


def note(message: str, style: str = "") -> None:
    """Print plain text on stderr, never wrapped."""
    console.print(message, style=style, highlight=False, markup=False, soft_wrap=True)


def answer(message: str) -> None:
    """Print plain text on stdout, never wrapped."""
    out_console.print(message, highlight=False, markup=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    print(json.dumps(document, indent=1, allow_nan=False))


def new_table(*columns: str) -> Table:
    """An empty table in the project's style."""
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


def command_line() -> str:
    """The command as typed."""
    return " ".join(["parvibench", *sys.argv[1:]])


def key_value(text: str, option: str) -> tuple[str, str]:
    """Split ``KEY=VALUE``."""
    key, sign, value = text.partition("=")
    if not sign or not key or not value:
        raise InputError(f"{option} {text}: write KEY=VALUE")
    return key, value


def parse_setting(pair: str) -> tuple[str, Any]:
    """Key and value of a ``--set``: JSON where it is JSON, else text."""
    key, text = key_value(pair, "--set")
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def parse_number(key: str, text: str) -> float:
    """The number behind ``key=``."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{key}={text}: not a number") from None
