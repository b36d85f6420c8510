"""Consoles, options and printing that all commands share."""

import json
import os
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

from parvibench.api import listing
from parvibench.api.listing import duration as duration
from parvibench.api.listing import output_place as output_place
from parvibench.core.errors import InputError, printable

EXIT_FAILED = 1
EXIT_USAGE = 2


class PlainConsole(Console):
    """A console that shows control characters as escapes, so that no text can control the terminal, and brackets as they are.

    Labels, keys and reasons come from suite files, stores and servers of others. The program's own styles, those of
    ``Text``, and cursor movements are not text, and pass.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        """As ``Console.render``, with the text escaped."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(printable(text), style)


#: stderr: progress, notes, errors.
console = PlainConsole(stderr=True)
#: stdout: the result.
out_console = PlainConsole()


def names_of(kind: str) -> Callable[[str], list[str]]:
    """Shell completion of the names of a kind: task, algorithm, metric, suite or data."""
    return lambda incomplete: sorted(n for n in listing.names(kind) if n.startswith(incomplete))


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
# fmt: off
Suite = Annotated[str | None, typer.Option(help="Name of a shipped suite, or path of a suite file (.yaml).", autocompletion=names_of("suite"))]
Tasks = Annotated[list[str] | None, typer.Option("--task", "-t", help="Only this task (repeatable): a name, or module:NAME or file.py:NAME of an unregistered one.", autocompletion=names_of("task"))]
Algorithms = Annotated[list[str] | None, typer.Option("--algorithm", "-a", help="Only this algorithm or label (repeatable): a name, or module:Class or file.py:Class of an unregistered one.", autocompletion=names_of("algorithm"))]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="[A.]KEY=VALUE", help="Setting of algorithm or label A (repeatable); A may be omitted if exactly one algorithm is given.")]
Plugins = Annotated[bool, typer.Option("--allow-plugins", help="Load the files beside the suite that it names as file.py:OBJECT.")]
Workers = Annotated[int | None, typer.Option(help="Number of worker processes; 0 runs in this process. Default: one per CPU; a GPU has one.")]
Timeout = Annotated[float, typer.Option(help="Wall-clock limit of one chunk of replicates, in seconds.")]
Out = Annotated[Path, typer.Option("--out", help="Folder of the result store.", show_default=True)]
# fmt: on
_STAN_LIBRARY = "PARVIBENCH_STAN_LIBRARY"


def _known(files: list[Path] | None) -> None:
    """Tell this process, and those that it starts, of compiled Stan programs."""
    if missing := [str(file) for file in files or () if not file.is_file()]:
        raise InputError(f"--stan-library: no such file: {', '.join(missing)}")
    if files:
        os.environ[_STAN_LIBRARY] = os.pathsep.join(str(file.absolute()) for file in files)


StanLibrary = Annotated[list[Path] | None, typer.Option(help="Library that BridgeStan compiled of the Stan program NAME.stan, NAME_model.so, for what stanli does not support (repeatable).", callback=_known, expose_value=False, envvar=_STAN_LIBRARY)]  # fmt: skip


def warn(message: str) -> None:
    """Print a warning on stderr."""
    note(message, style="yellow")


def note(message: str, style: str = "") -> None:
    """Print plain text on stderr, never wrapped."""
    console.print(message, style=style, highlight=False, soft_wrap=True)


def answer(message: str) -> None:
    """Print plain text on stdout, never wrapped."""
    out_console.print(message, highlight=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    print(json.dumps(document, indent=1, allow_nan=False))


class PlainTable(Table):
    """A table whose cells are plain text: brackets are not markup."""

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
        raise InputError(f"{option} {text}: expected KEY=VALUE")
    return key, value


def parse_settings(pairs: Sequence[str] | None, algorithms: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Parse ``[A.]KEY=VALUE`` into algorithm or label -> key -> value; a value that is not JSON is text.

    Raises:
        InputError: another form, or no A although not exactly one algorithm is named.
    """
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs or ():
        key, text = key_value(pair, "--set")
        name, _, field = key.rpartition(".")
        if not name and len(algorithms or ()) != 1:
            raise InputError(f"--set {pair}: expected ALGORITHM.SETTING=VALUE, for example svgd.step_size=0.05")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        except RecursionError:
            raise InputError(f"--set {key}: nested too deeply") from None
        found.setdefault(name or (algorithms or ("",))[0], {})[field] = value
    return found


def parse_numbers(pairs: Sequence[str] | None, option: str) -> dict[str, float]:
    """Parse a repeated ``KEY=NUMBER``."""
    found = {}
    for key, text in (key_value(pair, option) for pair in pairs or ()):
        try:
            found[key] = float(text)
        except ValueError:
            raise InputError(f"{key}={text}: not a number") from None
    return found


def listed(text: str | None) -> list[str]:
    """The names in ``a,b,c``; commas within brackets do not separate, as in ``L[1,2],tau``."""
    return [name.strip() for name in re.split(r",(?![^\[]*\])", text or "") if name.strip()]
