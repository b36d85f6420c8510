"""Looking things up and judging samples: ``list``, ``show``, ``evaluate``, ``doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any

import typer
from rich.table import Table

from parvibench.core import registry
from parvibench.core.errors import InputError

from .shared import EXIT_FAILED, Json, console, key_value, new_table, out_console, parse_number, print_json

app = typer.Typer()


class What(StrEnum):
    """What can be listed."""

    TASKS = "tasks"
    ALGORITHMS = "algorithms"
    METRICS = "metrics"
    SUITES = "suites"


class Kind(StrEnum):
    """What can be shown."""

    TASK = "task"
    ALGORITHM = "algorithm"
    METRIC = "metric"


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
        # One line a row, the text last cut short; a name is there to be typed: it never is.
        column.no_wrap, column.overflow = True, "ellipsis"
        if key in ("tags", "needs", "summary", "citation", "profiles", "description"):
            column.ratio = 1
        else:
            column.width = max(len(key), *(len(_cell(r[key])) for r in rows))
    for row in rows:
        table.add_row(*(_cell(row[key]) for key in columns))
    out_console.print(table)


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _task_rows() -> list[dict[str, Any]]:
    from parvibench.data.fetch import status

    states = {s.name: s.state for s in status()}

    def state(row: registry.TaskRow) -> str:
        return "ready" if all(states[name] == "ok" for name in row.data) else "data missing"

    return [
        {
            "name": r.name,
            "dim": r.dim,
            "reference": r.judged_by,
            "status": state(r),
            "tags": list(r.tags),
            "data": list(r.data),
            "summary": r.summary,
        }
        for r in registry.tasks().values()
    ]


def _algorithm_rows() -> list[dict[str, Any]]:
    return [
        {"name": r.name, "kind": r.kind, "summary": r.summary, "needs": list(r.needs), "citation": r.citation}
        for r in registry.algorithms().values()
    ]


def _metric_rows() -> list[dict[str, Any]]:
    return [
        {"name": r.name, "direction": r.direction, "unit": r.unit, "need": r.need, "summary": r.summary}
        for r in registry.metrics().values()
    ]


def _suite_rows() -> list[dict[str, Any]]:
    from parvibench.harness.suite.suite import load_suite, shipped

    rows = []
    for name in shipped():
        suite = load_suite(name)
        rows.append(
            {
                "name": name,
                "tasks": len(suite.tasks),
                "algorithms": len(suite.algorithms),
                "profiles": list(suite.profiles),
                "description": suite.description,
            }
        )
    return rows


_LISTS: dict[What, Callable[[], list[dict[str, Any]]]] = {
    What.TASKS: _task_rows,
    What.ALGORITHMS: _algorithm_rows,
    What.METRICS: _metric_rows,
    What.SUITES: _suite_rows,
}


@app.command(
    epilog="Examples:\n\n`parvibench show task banana`\n\n`parvibench show algorithm svgd`\n\n`parvibench show metric sliced_w2`"
)
def show(
    kind: Kind,
    name: str,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Where a task's corner plot goes (.png, .svg). Default: parvibench-runs/tasks/NAME.png"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a task (facts, certificate, corner plot), an algorithm (settings, presets) or a metric (formula, power)."""
    from . import describe

    facts = {Kind.TASK: describe.task, Kind.ALGORITHM: describe.algorithm, Kind.METRIC: describe.metric}[
        kind
    ](name)
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
    """The corner plot of a task's reference, where it has one."""
    reference = registry.load_task(name).reference()
    if reference is None:
        if figure is not None:
            raise InputError(f"--figure: {name} has no reference samples to draw")
        return
    from parvibench.report.corner import write_corner

    path = figure or Path("parvibench-runs") / "tasks" / f"{name}.png"
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"--figure {path}: the name must end in .png or .svg")
    console.print(f"corner plot: {write_corner(reference, path)}", highlight=False, soft_wrap=True)


#: Longer arrays of numbers are summed up.
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
    """What stands after a key: on the same line, or on indented lines of its own."""
    text = _readable(value)
    return indent(f"\n{text}", "  ") if isinstance(value, dict) else f" {text}"


def _flat(value: Any) -> Iterator[Any]:
    """The leaves of nested lists."""
    if isinstance(value, list | tuple):
        for v in value:
            yield from _flat(v)
    else:
        yield value


@app.command(epilog="Example: `parvibench evaluate --task banana samples.npy`")
def evaluate(
    samples: Annotated[
        Path, typer.Argument(help=".npy, .npz with array 'samples', .csv or .parquet; shape (n, d).")
    ],
    task: Annotated[str, typer.Option(help="The task the samples are meant for.")],
    cost: Annotated[
        list[str] | None,
        typer.Option(metavar="score_evaluations=N", help="What the samples cost (repeatable)."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Judge by this metric (repeatable); default: the task's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge samples of your own against a task's reference."""
    registry.load_task(task)
    from parvibench import api
    from parvibench.data.samples import read_samples

    costs = {k: parse_number(k, v) for k, v in (key_value(c, "--cost") for c in cost or [])}
    document = api.evaluate(read_samples(samples), task, metrics=metric)
    if as_json:
        print_json(document)
        return
    table = new_table("metric", "value", "floor", "ratio", "p", "worth", "exact?")
    for row in document["metrics"]:
        if row["value"] is not None:
            table.add_row(*_evaluation_cells(row))
    out_console.print(table)
    for row in document["metrics"]:
        if row["value"] is None:
            out_console.print(
                f"not applicable: {row['metric']} ({row['reason']})", highlight=False, markup=False
            )
    out_console.print(
        "floor: median of exact draws; worth: that many exact draws do as well [95% interval]", style="dim"
    )
    out_console.print(
        f"{document['n']} samples of {document['task']}: [bold]{document['verdict']}[/] from exact draws (Holm, 5%)"
    )
    spent = costs.get("score_evaluations")
    best = next(
        (r["equivalent_sample_size"] for r in document["metrics"] if r["equivalent_sample_size"]), None
    )
    if spent and best:
        out_console.print(f"{1e3 * best / spent:.3g} equivalent exact draws per 1000 score evaluations")


def _evaluation_cells(row: dict[str, Any]) -> list[str]:
    def text(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    floor = row["floor"] or {}
    verdict = {"indistinguishable": "≈ alike", "distinguishable": "told apart"}.get(row["verdict"], "")
    worth = ""
    if row["equivalent_sample_size"] is not None:
        low, high = (f"{v:,.0f}" for v in row["equivalent_sample_size_interval"])
        capped = "≥ " if row["reason"].startswith("at least") else ""
        worth = f"{capped}{row['equivalent_sample_size']:,.0f} [{low}, {high}]"
    return [
        row["metric"],
        text(row["value"]),
        text(floor.get("median")),
        text(row["ratio"]),
        text(row["p_value"]),
        worth,
        verdict if row["floor"] else "no floor",
    ]


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check the installation: versions, devices, data, store, tracking."""
    from . import describe

    checks = describe.doctor()
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            mark = "[green]ok[/]" if check["ok"] else "[yellow]--[/]"
            out_console.print(f"{mark}  {check['what']}: {check['found']}", highlight=False)
    if not all(c["ok"] or not c["required"] for c in checks):
        raise typer.Exit(EXIT_FAILED)
