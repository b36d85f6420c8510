"""Consoles, options and printing that all commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from parvibench.core.errors import InputError, printable

EXIT_FAILED = 1
EXIT_USAGE = 2


class PlainConsole(Console):
    """A console on which no text is obeyed by the terminal: control characters in it are shown as escapes.

    Labels, keys and reasons come from suite files, stores and servers of others. Styles and cursor movements of our
    own are no text, and pass.
    """

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        """As ``Console.render``, with the text escaped."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(printable(text), style)


#: stderr: progress, notes, errors.
console = PlainConsole(stderr=True, emoji=False)
#: stdout: the result.
out_console = PlainConsole(emoji=False)

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


class PlainTable(Table):
    """A table whose cells are text as it is: brackets in it are no markup."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """As ``Table.add_row``."""
        super().add_row(*(Text(printable(c)) if isinstance(c, str) else c for c in cells), **options)


def new_table(*columns: str) -> Table:
    """An empty table in the project's style."""
    return PlainTable(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


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
    except RecursionError:
        raise InputError(f"--set {key}: nested too deeply") from None


def parse_number(key: str, text: str) -> float:
    """The number behind ``key=``."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{key}={text}: not a number") from None
