"""Tasks, algorithms, metrics, suites and data sets: ``list``, ``show``, ``new``, ``doctor``, ``data``."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from parvibench import api
from parvibench.api import listing
from parvibench.api.listing import KINDS
from parvibench.core.errors import InputError

from .shared import EXIT_FAILED, Json, StanLibrary, answer, names_of, new_table, note, out_console, print_json

app = typer.Typer()
data = typer.Typer(no_args_is_help=True, help="Data sets: status and download.")


def _kind(*more: str) -> Any:
    """An argument that is one of ``KINDS``, in the singular or the plural, or one of ``more``."""

    def parse(text: str) -> str:
        kind = text if text in more else text.removesuffix("s")
        if text not in more and kind not in KINDS:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(KINDS)}")
        return kind

    def complete(incomplete: str) -> list[str]:
        return [k for k in KINDS if k.startswith(incomplete)]

    return typer.Argument(parser=parse, metavar="|".join([*KINDS, *more]), autocompletion=complete)


@app.command("list", epilog="Example: `parvibench list tasks --json`")
def list_(what: Annotated[str, _kind("posteriordb")], as_json: Json = False) -> None:
    """List tasks, algorithms, metrics or suites, or the posteriors of posteriordb."""
    rows = listing.rows(what)
    if as_json:
        print_json(rows)
        return
    columns = [key for key in rows[0] if key != "data"] if rows else ["name"]
    table = new_table(*columns)
    table.expand = True
    for key, column in zip(columns, table.columns, strict=True):
        # One line per row; free text is truncated, names are not.
        column.no_wrap, column.overflow = True, "ellipsis"
        if key in ("tags", "needs", "summary", "citation", "profiles", "description"):
            column.ratio = 1
        else:
            column.width = max(len(key), *(len(_cell(r[key])) for r in rows))
    for row in rows:
        table.add_row(*(_cell(row[key]) for key in columns))
    out_console.print(table)


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)


def _named(ctx: typer.Context, incomplete: str) -> list[str]:
    return names_of(str(ctx.params.get("kind", "task")))(incomplete)


@app.command(
    epilog="Examples:\n\n`parvibench show task banana`\n\n`parvibench show algorithm svgd`\n\n"
    "`parvibench show metric sliced_w2`\n\n`parvibench show suite toy`"
)
def show(
    kind: Annotated[str, _kind()],
    name: Annotated[str, typer.Argument(help="Name of the task, algorithm, metric or suite.", autocompletion=_named)],
    stan_library: StanLibrary = None,
    figure: Annotated[Path | None, typer.Option(help="Write a corner plot of the reference samples of a task (.png or .svg).")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show a task (facts, certificate), an algorithm (settings, presets), a metric (formula, power) or a suite."""
    facts = getattr(api.describe, kind)(name)
    if as_json:
        print_json(facts)
    else:
        table = Table.grid(padding=(0, 2))
        for key, value in facts.items():
            table.add_row(Text(key, style="bold"), _readable(value))
        out_console.print(table)
    if figure is not None:
        if kind != "task":
            raise InputError(f"--figure: only a task has a corner plot; {name} is a {kind}")
        note(f"corner plot: {listing.draw_reference(name, figure)}")


#: Longer arrays of numbers are summarised by length and range.
_LONG = 32


def _readable(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{k}:{_nested(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        leaves = list(_flat(value))
        if len(leaves) > _LONG and all(isinstance(v, int | float) for v in leaves):
            return f"{len(leaves)} numbers from {min(leaves):.4g} to {max(leaves):.4g}"
        return ", ".join(_readable(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _nested(value: Any) -> str:
    """A value after its key: on the same line, or for a mapping on indented lines below."""
    text = _readable(value)
    return indent(f"\n{text}", "  ") if isinstance(value, dict) else f" {text}"


def _flat(value: Any) -> Iterator[Any]:
    """The leaves of nested lists."""
    if isinstance(value, list | tuple):
        for v in value:
            yield from _flat(v)
    else:
        yield value


@app.command(
    epilog="Examples:\n\n`parvibench new algorithm my-sampler`\n\n`parvibench new task my-posterior --to mine`"
)
def new(
    kind: Annotated[Literal["algorithm", "task"], typer.Argument()],
    name: Annotated[str, typer.Argument(help="Name in tables: letters, digits, hyphens.")],
    to: Annotated[Path, typer.Option(help="Folder of the new files.")] = Path(),
) -> None:  # fmt: skip
    """Write a working file for a new algorithm or task, and its test."""
    made = listing.new(kind, name, to)
    for path in made.files:
        answer(str(path))
    note(f"try: {made.run}\nand: {made.test}")


@app.command(epilog="Example: `parvibench doctor --json`")
def doctor(as_json: Json = False) -> None:
    """Check the installation: versions, devices, data, store, tracking."""
    checks = api.doctor.doctor()
    if as_json:
        print_json(checks)
    for check in () if as_json else checks:
        mark = ("ok", "green") if check["ok"] else ("--", "yellow")
        out_console.print(Text.assemble(mark, f"  {check['what']}: {check['found']}"), highlight=False)
    if not all(c["ok"] or not c["required"] for c in checks):
        raise typer.Exit(EXIT_FAILED)


@data.command("status", epilog="Example: `parvibench data status --json`")
def data_status(as_json: Json = False) -> None:
    """List the data sets and whether they are on disk."""
    rows = listing.data_sets()
    if as_json:
        print_json(rows)
        return
    table = new_table("name", "rows", "kB", "state", "path")
    for row in rows:
        size = "?" if row["bytes"] is None else f"{row['bytes'] / 1e3:.0f}"
        table.add_row(row["name"], str(row["rows"]), size, row["state"], row["path"] or "")
    out_console.print(table)


@data.command("fetch", epilog="Example: `parvibench data fetch yacht energy`")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Names of data sets. Default: all.", autocompletion=names_of("data"))] = None,
) -> None:  # fmt: skip
    """Download data sets into the user's cache and verify their hashes."""
    for name, file in listing.fetch_data(names or ()):
        note(f"{name}: {file}")
