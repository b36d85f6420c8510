"""What is installed, and a start for what is not: ``list``, ``show``, ``new``, ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

import typer
from rich.table import Table

from parvibench.core import registry
from parvibench.core.errors import InputError

from .shared import EXIT_FAILED, Json, answer, duration, names_of, new_table, note, out_console, print_json

app = typer.Typer()


KINDS = ("task", "algorithm", "metric", "suite")


def _kind(text: str) -> str:
    """A kind of thing, in the singular or the plural."""
    if text.removesuffix("s") not in KINDS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(KINDS)}")
    return text.removesuffix("s")


def _kinds(incomplete: str) -> list[str]:
    return [k for k in KINDS if k.startswith(incomplete)]


Kind = Annotated[str, typer.Argument(parser=_kind, metavar="|".join(KINDS), autocompletion=_kinds)]


def _startable(text: str) -> str:
    if _kind(text) not in ("algorithm", "task"):
        raise typer.BadParameter(f"{text!r} is not one of algorithm, task")
    return _kind(text)


@app.command("list", epilog="Example: `parvibench list tasks --json`")
def list_(what: Kind, as_json: Json = False) -> None:
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
        row = head | {"tags": list(r.tags), "data": list(r.data), "summary": r.summary}
        rows.append(row if r.built_in else row | _found(r.name))
    return rows


def _found(name: str) -> dict[str, Any]:
    """What only the code of a task of another package tells; that it cannot be loaded where it cannot."""
    try:
        task = registry.load_task(name)
    except InputError as error:
        return {"dim": "", "status": "not found", "summary": str(error)}
    judged = "own" if task.reference() is not None else "exact draws" if "exact" in task.provides else "none"
    return {
        "dim": task.dim,
        "tags": sorted(task.tags),
        "data": list(task.data),
        "summary": task.summary,
        "reference": judged,
    }


def _columns_of(rows: Mapping[str, Any], *names: str) -> list[dict[str, Any]]:
    return [{name: getattr(row, name) for name in names} for row in rows.values()]


def _suite_rows() -> list[dict[str, Any]]:
    from parvibench.harness.suite.suite import load_suite
    from parvibench.suites import shipped

    rows = []
    for name, suite in ((name, load_suite(name)) for name in shipped()):
        pairs = suite.pairs
        counts = {"tasks": len({t.name for t, _ in pairs}), "algorithms": len({a.display for _, a in pairs})}
        hours = {k: p.hours for k, p in suite.profiles.items() if p.hours is not None}
        profiles = [f"{k} ({duration(3600 * hours[k])})" if k in hours else k for k in suite.profiles]
        head = {"name": name, **counts, "rows": len(suite.rows) or ""}
        rows.append({**head, "profiles": profiles, "description": suite.description})
    return rows


_LISTS = {
    "task": _task_rows,
    "algorithm": lambda: _columns_of(registry.algorithms(), "name", "kind", "summary", "needs", "citation"),
    "metric": lambda: _columns_of(registry.metrics(), "name", "direction", "unit", "need", "summary"),
    "suite": _suite_rows,
}


def _named(ctx: typer.Context, incomplete: str) -> list[str]:
    return names_of(str(ctx.params.get("kind", "task")))(incomplete)


@app.command(
    epilog="Examples:\n\n`parvibench show task banana`\n\n`parvibench show algorithm svgd`\n\n"
    "`parvibench show metric sliced_w2`\n\n`parvibench show suite toy`"
)
def show(
    kind: Kind,
    name: Annotated[str, typer.Argument(autocompletion=_named)],
    figure: Annotated[
        Path | None, typer.Option(help="Write a corner plot of a task's reference (.png or .svg).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a task (facts, certificate), an algorithm (settings, presets), a metric (formula, power) or a suite."""
    from . import descriptions

    facts = getattr(descriptions, kind)(name)
    if as_json:
        print_json(facts)
    else:
        table = Table.grid(padding=(0, 2))
        for key, value in facts.items():
            table.add_row(f"[bold]{key}[/]", _readable(value))
        out_console.print(table)
    if figure is not None:
        if kind != "task":
            raise InputError(f"--figure: a {kind} has no picture; a task has")
        _draw(name, figure)


def _draw(name: str, path: Path) -> None:
    """Write the corner plot of a task's reference, where it has one."""
    reference = registry.load_task(name).reference()
    if reference is None:
        raise InputError(f"--figure: {name} has no reference samples to draw")
    from parvibench.reporting.figures.reference_corner import write_corner

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


@app.command(
    epilog="Examples:\n\n`parvibench new algorithm my-sampler`\n\n`parvibench new task my-posterior --to mine`"
)
def new(
    kind: Annotated[
        str, typer.Argument(parser=_startable, metavar="algorithm|task", autocompletion=lambda: ["algorithm", "task"])
    ],
    name: Annotated[str, typer.Argument(help="Its name in tables: letters, digits, hyphens.")],
    to: Annotated[Path, typer.Option(help="Folder.")] = Path(),
) -> None:
    """Write a file that runs, for an algorithm or a task of your own, with its test beside it."""
    from parvibench.authoring.scaffold import scaffold

    made = scaffold(kind, name, to)
    for path in made.files:
        answer(str(path))
    note(f"try: {made.run}\nand: {made.test}")


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
