"""Installed tasks, algorithms, metrics and suites, and files for new ones: ``list``, ``show``, ``new``, ``doctor``."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from parvibench.api import listing
from parvibench.api.listing import KINDS
from parvibench.core.errors import InputError

from .shared import EXIT_FAILED, Json, answer, names_of, new_table, note, out_console, print_json

app = typer.Typer()


def _kind(text: str) -> str:
    """One of ``KINDS``, in the singular or the plural."""
    if text.removesuffix("s") not in KINDS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(KINDS)}")
    return text.removesuffix("s")


def _kinds(incomplete: str) -> list[str]:
    return [k for k in KINDS if k.startswith(incomplete)]


def _listed(text: str) -> str:
    """One of ``KINDS``, or ``posteriordb``."""
    return text if text == "posteriordb" else _kind(text)


Kind = Annotated[str, typer.Argument(parser=_kind, metavar="|".join(KINDS), autocompletion=_kinds)]
Listed = Annotated[
    str, typer.Argument(parser=_listed, metavar="|".join([*KINDS, "posteriordb"]), autocompletion=_kinds)
]


@app.command("list", epilog="Example: `parvibench list tasks --json`")
def list_(what: Listed, as_json: Json = False) -> None:
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
    kind: Kind,
    name: Annotated[str, typer.Argument(help="Name of the task, algorithm, metric or suite.", autocompletion=_named)],
    figure: Annotated[Path | None, typer.Option(help="Write a corner plot of the reference samples of a task (.png or .svg).")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show a task (facts, certificate), an algorithm (settings, presets), a metric (formula, power) or a suite."""
    from parvibench.api import describe

    facts = getattr(describe, kind)(name)
    if as_json:
        print_json(facts)
    else:
        table = Table.grid(padding=(0, 2))
        for key, value in facts.items():
            table.add_row(f"[bold]{key}[/]", _readable(value))
        out_console.print(table)
    if figure is not None:
        if kind != "task":
            raise InputError(f"--figure: only a task has a corner plot; {name} is a {kind}")
        note(f"corner plot: {listing.draw_reference(name, figure)}")


#: Longer arrays of numbers are summarised by length and range.
_LONG = 32


def _readable(value: Any) -> str:
    from rich.markup import escape

    if isinstance(value, dict):
        return "\n".join(f"{k}:{_nested(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        leaves = list(_flat(value))
        if len(leaves) > _LONG and all(isinstance(v, int | float) for v in leaves):
            return f"{len(leaves)} numbers from {min(leaves):.4g} to {max(leaves):.4g}"
        return ", ".join(_readable(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value))


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


@app.command(epilog="Examples:\n\n`parvibench doctor --json`\n\n`parvibench doctor --gpu`")
def doctor(
    as_json: Json = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Compare every algorithm on the GPU with itself on the CPU; takes minutes.")
    ] = False,
) -> None:
    """Check the installation: versions, devices, data, store, tracking."""
    from parvibench.api import doctor as diagnosis

    checks = []
    for check in diagnosis.doctor_of_gpu() if gpu else diagnosis.doctor():
        checks.append(check)
        if not as_json:
            mark = "[green]ok[/]" if check["ok"] else "[yellow]--[/]"
            out_console.print(f"{mark}  {check['what']}: {check['found']}", highlight=False)
    if as_json:
        print_json(checks)
    if not all(c["ok"] or not c["required"] for c in checks):
        raise typer.Exit(EXIT_FAILED)
