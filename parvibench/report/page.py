"""The report of a run: one self-contained HTML page, and the same numbers for machines."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from parvibench.core import registry
from parvibench.core.reference import load_reference
from parvibench.core.result import CellRecord, Status
from parvibench.harness.results import Results, metric_values
from parvibench.metrics.power import sees
from parvibench.statistics import median_interval

from . import leaderboard as lb

_MAX_NAME, _MAX_TEXT = 200, 4000
_RATIO_HELP = "median over the median of independent exact draws: 1 is as good as exact sampling"
_VERDICT_HELP = "can the samples be told from exact draws? 5%, all metrics with a floor combined by Holm"
_WORTH_HELP = "equivalent sample size: how many exact draws do as well [95% interval], replicates pooled"


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, what it means, and whether its entries are numbers."""

    title: str
    help: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Entry:
    """A table's entry.

    Attributes:
        text: as shown.
        sort: number to sort by, or empty to sort by the text.
        look: names of CSS classes.
        help: shown on hovering.
    """

    text: str
    sort: str = ""
    look: str = ""
    help: str = ""


@dataclass(frozen=True)
class Table:
    """A sortable table; the first column names the row."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True)
class TaskSection:
    """All that the page says about a task."""

    name: str
    anchor: str
    facts: str
    note: str
    has_floor: bool
    table: Table
    panels: tuple[Any, ...] = ()
    curves: tuple[tuple[str, str], ...] = ()
    absent: tuple[tuple[str, str, str], ...] = field(default=())


@dataclass(frozen=True)
class StepSizes:
    """Where the step sizes come from, in words and as a table, and those on the edge of the tuning grid."""

    summary: str
    at_edge: tuple[str, ...]
    table: Table


_STEP_COLUMNS = (
    Column("method", numeric=False),
    Column("task", numeric=False),
    Column("step size", "the setting eta in x + eta score + sqrt(2 eta) noise"),
    Column("chosen by", "default of the method, set by the suite or the user, or tuned", numeric=False),
    Column("effective step", "the factor that really multiplies the velocity"),
    Column("tuning cost", "score evaluations spent on choosing it"),
)


def write_report(results: Results, out: Path) -> Path:
    """Write ``index.html``, ``leaderboard.md``, ``leaderboard.csv``, ``results.parquet``, ``results.json``.

    ``results.parquet`` has one row per task, label, metric and replicate (see ``leaderboard.values``);
    ``results.json`` is the document of ``run --json``.

    Returns:
        The path of the page.
    """
    out.mkdir(parents=True, exist_ok=True)
    page = out / "index.html"
    page.write_text(render(results), encoding="utf-8")
    (out / "leaderboard.md").write_text(lb.to_markdown(results), encoding="utf-8")
    lb.table(results).to_csv(out / "leaderboard.csv", index=False)
    lb.values(results).to_parquet(out / "results.parquet", index=False)
    document = json.dumps(results.document(str(page)), indent=1, allow_nan=False)
    (out / "results.json").write_text(document, encoding="utf-8")
    return page


def render(results: Results) -> str:
    """The page as text."""
    import jinja2
    from markupsafe import Markup

    from . import figures

    folder = files("parvibench.report") / "templates"
    script = (folder / "page.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cut"] = lambda text: text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"
    template = environment.from_string((folder / "page.html.j2").read_text(encoding="utf-8"))
    board = lb.table(results)
    colours = figures.palette(results.cells)
    return template.render(
        run=results.run,
        suite=results.run.suite,
        style=Markup((folder / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        counts=_counts(results),
        headline=headline(board),
        overview=[_overview(group, board) for group in lb.groups(board)],
        steps=step_sizes(results),
        failures=_failures(results),
        tasks=[_task(results, board, name, colours) for name in lb.task_names(results)],
        glossary=[(row, sees(row.name)) for row in _glossary(results)],
        marks=lb.marks_used(board),
        provenance=_provenance(results),
        svg=Markup,
    )


def _counts(results: Results) -> str:
    """How the cells ended, in words."""
    statuses = pd.Series([str(c.status) for c in results.cells], dtype="string").value_counts(sort=False)
    parts = [f"{n} {status}" for status, n in statuses.items()]
    return f"{len(results.cells)} cells: {', '.join(parts)}" if parts else "no cells"


def headline(board: pd.DataFrame) -> str:
    """Which method leads, and on how many tasks; empty when nothing is ranked."""
    ranks = lb.average_ranks(board) if len(board) else pd.DataFrame(columns=["anchor", "average_rank"])
    ranked = ranks[~ranks["anchor"].astype(bool) & ranks["average_rank"].notna()]
    if not len(ranked):
        return ""
    leaders = ranked.index[ranked["average_rank"] == ranked["average_rank"].iloc[0]].astype(str)
    rank, n_tasks = ranked.iloc[0][["average_rank", "n_tasks"]]
    where = f"{lb.number(rank)} over {n_tasks} of {board['task'].nunique()} tasks"
    if len(leaders) > 1:
        return f"{leaders[0][:_MAX_NAME]} and {len(leaders) - 1} more share the best average rank ({where})."
    wins = ((board["rank"] == 1) & (board["status"] == Status.OK) & (board["label"] == leaders[0])).sum()
    return (
        f"{leaders[0][:_MAX_NAME]} has the best average rank ({where}) and the best median on {wins} of them."
    )


def _overview(group: lb.Group, board: pd.DataFrame) -> Table:
    """Methods x tasks of one primary metric, with average ranks over these tasks."""
    rows = {(r["task"], r["label"]): r for _, r in board[board["task"].isin(group.tasks)].iterrows()}
    ranks = lb.average_ranks(board[board["task"].isin(group.tasks)])
    columns = [
        Column("method", numeric=False),
        Column("average rank", f"over the {len(group.tasks)} tasks of this table; 1 is best"),
        *[Column(task) for task in group.tasks],
    ]
    body = []
    for label, rank in ranks.iterrows():
        average = Entry("") if rank["anchor"] else _numeric(rank["average_rank"], help=_coverage(rank, group))
        entries = [_matrix_entry(rows.get((task, str(label)))) for task in group.tasks]
        body.append((_method(str(label), anchor=bool(rank["anchor"])), average, *entries))
    return Table(group.title, tuple(columns), tuple(body))


def _coverage(rank: pd.Series, group: lb.Group) -> str:
    return f"ranked on {rank['n_tasks']} of {len(group.tasks)} tasks, {rank['n_failed']} without a result"


def _matrix_entry(row: pd.Series | None) -> Entry:
    if row is None:
        return Entry("")
    if row["status"] != Status.OK:
        return Entry(str(row["status"]), look="status", help=str(row["reason"])[:300])
    interval = f"{row['metric']}: median {lb.number(row['median'])}, 95% interval {_interval(row['low'], row['high'])}"
    if row["n_diverged"]:
        interval += f"; {row['n_diverged']} of {row['replicates']} replicates diverged"
    return Entry(lb.entry(row), _sort(lb.shown(row)), "best" if row["rank"] == 1 else "", interval)


def _task(results: Results, board: pd.DataFrame, name: str, colours: Mapping[str, Any]) -> TaskSection:
    from . import figures

    cells = [c for c in results.cells if c.task == name]
    rows = board[board["task"] == name]
    metric = lb.primary_metric(results, name)
    floor = lb.floor(name, metric, max(c.samples for c in cells))
    extra = [m for m in ("rmse",) if m != metric and any(m in c.values for c in cells)]
    drawn = [
        (f"{m} against {axis.replace('_', ' ')}", figures.curves(results, name, m, axis, colours, f))
        for m, f in [(metric, floor), *[(m, None) for m in extra]]
        for axis in ("score_evaluations", *(["seconds"] if results.timed else []))
    ]
    return TaskSection(
        name=name,
        anchor=f"task-{hashlib.sha256(name.encode()).hexdigest()[:12]}",
        facts=_facts(name),
        note=_reference_note(name),
        has_floor=floor is not None,
        table=_ranking_table(cells, rows, metric),
        panels=tuple(figures.scatter(results, name, colours)),
        curves=tuple((title, text) for title, text in drawn if text),
        absent=_absent(cells),
    )


def _ranking_table(cells: list[CellRecord], rows: pd.DataFrame, metric: str) -> Table:
    by_label = {c.label: c for c in cells}
    others = [m for m in dict.fromkeys(m for c in cells for m in c.values) if m != metric and not _is_cost(m)]
    with_ratio = bool(rows["floor_ratio"].notna().any())
    with_verdict, with_worth = bool((rows["verdict"] != "").any()), bool(rows["equivalent"].notna().any())
    columns = [
        Column("method", numeric=False),
        Column("rank"),
        Column("status", numeric=False),
        Column(metric or "metric", f"{_help(metric)}; median over replicates [95% interval]"),
        *([Column("×\u00a0floor", _RATIO_HELP)] if with_ratio else []),
        *([Column("against exact draws", _VERDICT_HELP, numeric=False)] if with_verdict else []),
        *([Column("worth", _WORTH_HELP)] if with_worth else []),
        Column("score evaluations", "charged per replicate"),
        Column("seconds", "steady compute time per replicate, s"),
        *[Column(m, f"{_help(m)}; median over replicates") for m in others],
    ]
    body = []
    for _, row in rows.iterrows():
        cell = by_label[row["label"]]
        median = _numeric(row["median"], look="best" if row["rank"] == 1 and cell.status is Status.OK else "")
        if not math.isnan(row["median"]):
            median = Entry(f"{median.text} [{_interval(row['low'], row['high'])}]", median.sort, median.look)
        body.append(
            (
                _method(cell.label, anchor=bool(row["anchor"])),
                Entry("") if math.isnan(row["rank"]) else Entry(f"{row['rank']:.0f}", _sort(row["rank"])),
                _status(cell),
                median,
                *([_numeric(row["floor_ratio"])] if with_ratio else []),
                *([_verdict(row)] if with_verdict else []),
                *([_worth(row)] if with_worth else []),
                Entry(f"{cell.score_evaluations:,.0f}", _sort(cell.score_evaluations)),
                _numeric(row["seconds"]),
                *[_metric_entry(cell, m) for m in others],
            )
        )
    return Table(f"ranked by {metric}" if metric else "no metric", tuple(columns), tuple(body))


def _verdict(row: pd.Series) -> Entry:
    if not row["verdict"]:
        return Entry("")
    alike = row["verdict"] == "indistinguishable"
    return Entry("≈ alike" if alike else "told apart", help=f"adjusted p = {lb.number(row['p_value'])}")


def _worth(row: pd.Series) -> Entry:
    """Equivalent sample size with its interval."""
    if math.isnan(row["equivalent"]):
        return Entry("")
    cap = 4 * row["samples"]
    text = f"≥ {cap:,.0f}" if row["equivalent"] >= cap else lb.number(row["equivalent"])
    interval = _interval(row["equivalent_low"], row["equivalent_high"])
    return Entry(f"{text} [{interval}]", _sort(row["equivalent"]))


def _metric_entry(cell: CellRecord, metric: str) -> Entry:
    if metric not in cell.values:
        return Entry("", help=cell.absent.get(metric, ""))
    median, low, high = median_interval(metric_values(metric, cell.values[metric]))
    help = f"95% interval {_interval(low, high)}"
    if _is_count(metric) and math.isfinite(median):
        return Entry(f"{median:g}", _sort(median), help=help)
    return _numeric(median, help=help)


def _status(cell: CellRecord) -> Entry:
    if cell.status is not Status.OK:
        return Entry(str(cell.status), look="status", help=cell.reason[:300])
    if cell.n_diverged:
        return Entry(
            f"{cell.n_diverged} of {cell.replicates} diverged", look="status", help=cell.reason[:300]
        )
    return Entry("ok")


def step_sizes(results: Results) -> StepSizes | None:
    """Which step sizes were used, where they come from, and what tuning them cost; None without any."""
    tuned = results.run.suite.get("tuned") or {}
    edges = set(tuned.get("at_edge", ()))
    costs = tuned.get("score_evaluations", {})
    body, origins, total = [], [], 0.0
    cells = [c for c in results.cells if c.settings.get("step_size") is not None]
    for c in cells:
        origin = _origin(c)
        cost = costs.get(c.task, {}).get(c.label) if c.tuned else None
        at_edge = c.tuned and f"{c.task}/{c.label}" in edges
        origins.append(origin)
        total += cost or 0.0
        body.append(
            (
                _method(c.label),
                Entry(c.task),
                _plain_number(c.settings["step_size"]),
                Entry(
                    f"{origin}, on the edge of the grid" if at_edge else origin,
                    look="status" if at_edge else "",
                ),
                _plain_number(c.effective_step),
                Entry("") if cost is None else Entry(f"{cost:,.0f}", _sort(cost)),
            )
        )
    if not cells:
        return None
    counts = ", ".join(f"{origins.count(o)} {o}" for o in dict.fromkeys(origins))
    return StepSizes(
        summary=counts + (f"; tuning cost {total:,.0f} score evaluations in all" if total else ""),
        at_edge=tuple(f"{c.label} on {c.task}" for c in cells if c.tuned and f"{c.task}/{c.label}" in edges),
        table=Table("Step sizes", _STEP_COLUMNS, tuple(body)),
    )


def _origin(cell: CellRecord) -> str:
    if cell.tuned:
        return "tuned"
    try:
        default = registry.load_algorithm(cell.algorithm).make_settings({})
    except Exception:  # a plug-in that is not here any more
        return "not known"
    return "default" if getattr(default, "step_size", None) == cell.settings["step_size"] else "set"


def _failures(results: Results) -> list[CellRecord]:
    return [c for c in results.cells if c.status is not Status.OK or c.n_diverged]


def _absent(cells: list[CellRecord]) -> tuple[tuple[str, str, str], ...]:
    """Metrics that do not apply: metric, methods, reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for metric, reason in cell.absent.items():
            found.setdefault((metric, reason), []).append(cell.label)
    return tuple((metric, ", ".join(labels), reason) for (metric, reason), labels in found.items())


def _facts(task: str) -> str:
    row = registry.tasks().get(task)
    if row is None:
        return "A task of a plug-in."
    parts = [
        row.summary[:1].upper() + row.summary[1:],
        f"{row.dim} dimensions" if row.dim else "",
        ", ".join(row.tags),
    ]
    return ". ".join(p for p in parts if p) + "."


def _reference_note(task: str) -> str:
    try:
        reference = load_reference(task)
    except (ValueError, OSError):
        return "Its reference cannot be read; ratios to the floor are left out."
    if reference is None:
        return "No reference samples: no floor and no ratio to it."
    kind = "independent exact draws" if reference.exact else "a certified long run"
    return f"Reference: {len(reference.draws):,} rows from {kind}."


def _glossary(results: Results) -> list[registry.MetricRow]:
    used = {m for c in results.cells for m in (*c.values, *c.absent)}
    return [row for name, row in registry.metrics().items() if name in used]


def _provenance(results: Results) -> list[tuple[str, str]]:
    """Pairs of names and short texts; what is empty is left out."""
    run = results.run
    values: dict[str, Any] = {
        "run": run.id,
        "started": run.started,
        "finished": run.finished or "not finished",
        "profile": run.profile,
        **run.provenance,
        "suite": json.dumps({k: v for k, v in run.suite.items() if k != "tuned"}, default=str),
    }
    return [(name, text[:_MAX_TEXT]) for name, value in values.items() if (text := _in_words(value))]


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items() if v not in (None, ""))
    return "" if value is None else str(value)


def _method(label: str, *, anchor: bool = False) -> Entry:
    return Entry(label, look="anchor" if anchor else "", help="anchor: not ranked" if anchor else "")


def _numeric(value: float | None, look: str = "", help: str = "") -> Entry:
    return (
        Entry("", look=look, help=help)
        if value is None or math.isnan(value)
        else Entry(lb.number(value), _sort(value), look, help)
    )


def _plain_number(value: float | None) -> Entry:
    """A setting: as many digits as it has, up to three."""
    return Entry("") if value is None else Entry(f"{value:.3g}", _sort(value))


def _sort(value: float) -> str:
    """A number that JavaScript reads."""
    return "" if math.isnan(value) else str(value).replace("inf", "Infinity")


def _interval(low: float, high: float) -> str:
    return f"{lb.number(low)}, {lb.number(high)}"


def _is_cost(metric: str) -> bool:
    row = registry.metrics().get(metric)
    return row is not None and row.need == "cost"


def _is_count(metric: str) -> bool:
    row = registry.metrics().get(metric)
    return row is not None and row.unit == "count"


def _help(metric: str) -> str:
    row = registry.metrics().get(metric)
    return metric if row is None else f"{row.summary}; {row.goal}"
