"""What is installed: ``list``, ``show``, ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

import typer
from rich.table import Table

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE

from .shared import EXIT_FAILED, Json, new_table, note, out_console, print_json

app = typer.Typer()


What = StrEnum("What", ["TASKS", "ALGORITHMS", "METRICS", "SUITES"])
Kind = StrEnum("Kind", ["TASK", "ALGORITHM", "METRIC"])


@app.command("list", epilog="Example: `parvibench list tasks --json`")
def list_(what: What, as_json: Json = False) -> None:
    """List tasks, algorithms, metrics or suites."""
    rows = _LISTS[what]()
    if as_json:
        print_json(rows)
        return
    columns = [key for key in rows[0] if key != "data"] if rows else ["name"]
    table = new_table(*columns)
    table.expand = True
    for key, column in zip(columns, table.columns, strict=True):
        # One line per row; free text is cut short, names never are.
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


def _task_rows() -> list[dict[str, Any]]:
    from parvibench.data.fetch import status

    missing = {s.name for s in status() if s.state != "ok"}
    rows = []
    for r in registry.tasks().values():
        state = "data missing" if missing & set(r.data) else "ready"
        head = {"name": r.name, "dim": r.dim, "reference": r.judged_by, "status": state}
        rows.append(head | {"tags": list(r.tags), "data": list(r.data), "summary": r.summary})
    return rows


def _columns_of(rows: Mapping[str, Any], *names: str) -> list[dict[str, Any]]:
    return [{name: getattr(row, name) for name in names} for row in rows.values()]


def _suite_rows() -> list[dict[str, Any]]:
    from parvibench.harness.suite.suite import load_suite, shipped

    rows = []
    for name, suite in ((name, load_suite(name)) for name in shipped()):
        counts = {"tasks": len(suite.tasks), "algorithms": len(suite.algorithms)}
        rows.append({"name": name, **counts, "profiles": list(suite.profiles), "description": suite.description})
    return rows


_LISTS = {
    What.TASKS: _task_rows,
    What.ALGORITHMS: lambda: _columns_of(registry.algorithms(), "name", "kind", "summary", "needs", "citation"),
    What.METRICS: lambda: _columns_of(registry.metrics(), "name", "direction", "unit", "need", "summary"),
    What.SUITES: _suite_rows,
}


@app.command(
    epilog="Examples:\n\n`parvibench show task banana`\n\n`parvibench show algorithm svgd`\n\n`parvibench show metric sliced_w2`"
)
def show(
    kind: Kind,
    name: str,
    figure: Annotated[
        Path | None, typer.Option(help=f"Corner plot of a task. Default: {DEFAULT_STORE}/tasks/NAME.png")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a task (facts, certificate, corner plot), an algorithm (settings, presets) or a metric (formula, power)."""
    from . import descriptions

    facts = {
        Kind.TASK: descriptions.task, Kind.ALGORITHM: descriptions.algorithm, Kind.METRIC: descriptions.metric
    }[kind](name)  # fmt: skip
    if as_json:
        print_json(facts)
    else:
        table = Table.grid(padding=(0, 2))
        for key, value in facts.items():
            table.add_row(f"[bold]{key}[/]", _readable(value))
        out_console.print(table)
    if kind is Kind.TASK and (figure is not None or not as_json):
        _draw(name, figure)


def _draw(name: str, figure: Path | None) -> None:
    """Write the corner plot of a task's reference, where it has one."""
    reference = registry.load_task(name).reference()
    if reference is None:
        if figure is not None:
            raise InputError(f"--figure: {name} has no reference samples to draw")
        return
    from parvibench.report.figures.reference_corner import write_corner

    path = figure or DEFAULT_STORE / "tasks" / f"{name}.png"
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"--figure {path}: the name must end in .png or .svg")
    note(f"corner plot: {write_corner(reference, path)}")


#: Longer arrays of numbers are shown by their length and range.
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


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check the installation: versions, devices, data, store, tracking."""
    from .installation import checks_of_installation

    checks = checks_of_installation()
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            mark = "[green]ok[/]" if check["ok"] else "[yellow]--[/]"
            out_console.print(f"{mark}  {check['what']}: {check['found']}", highlight=False)
    if not all(c["ok"] or not c["required"] for c in checks):
        raise typer.Exit(EXIT_FAILED)
