"""Consoles, options and printing that all commands share."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
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


def names_of(kind: str) -> Callable[[str], list[str]]:
    """What a shell completes a name of that kind (task, algorithm, metric, suite, data) to."""

    def complete(incomplete: str) -> list[str]:
        from parvibench.core import registry

        if kind == "suite":
            from parvibench.suites import shipped

            known = list(shipped())
        elif kind == "data":
            from parvibench.data import fetch

            known = list(fetch.registry())
        else:
            known = list({"task": registry.tasks, "algorithm": registry.algorithms, "metric": registry.metrics}[kind]())
        return sorted(n for n in known if n.startswith(incomplete))

    return complete


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Suite = Annotated[
    str | None, typer.Option(help="A shipped suite, or a suite file (.yaml).", autocompletion=names_of("suite"))
]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", "-t", help="Only this task (repeatable).", autocompletion=names_of("task"))
]
Algorithms = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm", "-a", help="Only this algorithm or label (repeatable); module:Class and file.py:Class are added.",
        autocompletion=names_of("algorithm"),
    ),
]  # fmt: skip
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="[A.]KEY=VALUE",
        help="A setting of algorithm or label A (repeatable); A may be left out where one algorithm is named.",
    ),
]  # fmt: skip
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


def parse_settings(pairs: Sequence[str] | None, algorithms: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Algorithm or label -> key -> value, of ``[A.]KEY=VALUE``; values are JSON where they are JSON, else text.

    Raises:
        InputError: not of that form, or no A where not exactly one algorithm is named.
    """
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs or ():
        key, text = key_value(pair, "--set")
        name, _, field = key.rpartition(".")
        if not name and len(algorithms or ()) != 1:
            raise InputError(f"--set {pair}: write ALGORITHM.SETTING=VALUE, for example svgd.step_size=0.05")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        except RecursionError:
            raise InputError(f"--set {key}: nested too deeply") from None
        found.setdefault(name or (algorithms or ("",))[0], {})[field] = value
    return found


def parse_number(key: str, text: str) -> float:
    """The number behind ``key=``."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{key}={text}: not a number") from None


def listed(text: str | None) -> list[str]:
    """The names in ``a,b,c``; commas within brackets separate nothing, as in ``L[1,2],tau``."""
    return [name.strip() for name in re.split(r",(?![^\[]*\])", text or "") if name.strip()]


def duration(seconds: float) -> str:
    """Seconds as text, in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
