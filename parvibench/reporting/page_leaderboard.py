"""The page's leaderboard of methods x tasks, and the numbers its script needs to filter it and to switch metrics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun, metric_values
from parvibench.statistics import median_interval

from . import leaderboard as lb
from .figures.figure import AXES, budget_axes
from .formatting import interval, name, number
from .page_tables import Column, Entry, Row, Table, method, numeric, sortable, whole
from .text_tables import entry

#: How a cell of the leaderboard is ranked; the same numbers stand in page.js. Unfinished ones are ranked and never the
#: best, untrained ones ran and have no rank.
_RANKED, _FAILED, _UNRANKED, _UNFINISHED, _UNTRAINED = 0, 1, 2, 3, 4


def leaderboard(results: StoredRun, board: pd.DataFrame) -> Table:
    """Methods x tasks by each task's primary metric."""
    rows = {(r["task"], r["label"]): r for _, r in board.iterrows()}
    tasks = lb.task_names(results)
    first = {t: next(r for (task, _), r in rows.items() if task == t) for t in tasks}
    ranked = "over the tasks that all methods ran on that ran on half of those shown; 1 is best, ties share; failures share the last rank"
    columns = [
        Column("method", numeric=False),
        Column("kind", numeric=False),
        Column("average rank", ranked),
        Column("tasks", "that rank the method; its average rank is over the tasks that all methods ran on"),
        Column("cost", "of a replicate, mean over the tasks shown"),
    ]
    for task, row in first.items():
        help = f"{row['metric']}: click to sort"
        columns.append(Column(task, help, group=lb.task_group(task), sub=_sub(row)))
    kinds = lb.method_kinds(results)
    body = []
    for label, rank in lb.average_ranks(board).iterrows():
        mine = [rows.get((task, str(label))) for task in tasks]
        costs = [float(r["score_evaluations"]) for r in mine if r is not None]
        help = f"ranked on {rank['n_tasks']} of {len(tasks)} tasks, {rank['n_failed']} without a result"
        average = Entry("") if rank["anchor"] else numeric(rank["average_rank"], help=help)
        count = Entry("") if rank["anchor"] else whole(rank["n_tasks"])
        cost = numeric(float(np.mean(costs)) if costs else None)
        head = (method(str(label), anchor=bool(rank["anchor"])), Entry(kinds[str(label)]), average, count, cost)
        body.append(Row((*head, *map(_matrix_entry, mine)), kind=kinds[str(label)]))
    return Table("leaderboard", tuple(columns), tuple(body))


def _sub(row: pd.Series) -> str:
    """The quantity in a task's column."""
    samples = max(1, int(row["samples"]))
    ratio = not math.isnan(row["floor_ratio"]) or lb.floor(row["task"], row["metric"], samples)
    return "× floor" if ratio else str(row["metric"])


def _matrix_entry(row: pd.Series | None) -> Entry:
    if row is None:
        return Entry("")
    if row["status"] != Status.OK:
        return Entry(str(row["status"]), look="status", help=str(row["reason"])[:300])
    ends = interval(row["low"], row["high"])
    help = f"{row['metric']}: median {number(row['median'])}, 95% interval {ends}"
    if not math.isnan(row["worst"]):
        help += f", worst replicate {number(row['worst'])}"
    if row["marks"]:
        help += f"; {row['marks']}"
    if row["n_diverged"]:
        help += f"; {row['n_diverged']} of {row['replicates']} replicates diverged"
    return Entry(entry(row), sortable(lb.shown(row)), "best" if row["best"] else "", help)


def numbers(results: StoredRun, board: pd.DataFrame, table: Table) -> dict[str, Any]:
    """The contents of the leaderboard for every metric and every budget axis, as JSON for the script.

    ``metrics``: a list of name, title, signs (per task: 1 lower is better, -1 higher, 0 neither) and cells, by row and
    task: [text, number or null, how it is ranked] or null. ``costs``: budget axis -> by row and task, number or null.
    """
    tasks = lb.task_names(results)
    labels = [row.entries[0].text for row in table.rows]
    cells = {(c.task, c.label): c for c in results.cells}
    rows = {(r["task"], r["label"]): r for r in board.to_dict("records")}
    primary = [[_primary_cell(rows.get((t, label))) for t in tasks] for label in labels]
    own = [_sign(str(next(r["metric"] for (task, _), r in rows.items() if task == t))) for t in tasks]
    metrics = [{"name": "", "title": "each task's own metric", "signs": own, "cells": primary}]
    for metric in dict.fromkeys(m for c in results.cells for m in c.values):
        row = registry.metrics().get(metric)
        title = name(metric) + (f" ({row.goal})" if row else "")
        shown = [[_metric_cell(cells.get((t, label)), metric) for t in tasks] for label in labels]
        signs = [_sign(metric)] * len(tasks)
        metrics.append({"name": metric, "title": title, "signs": signs, "cells": shown})
    costs = {
        axis: [[_cost(rows.get((t, label)), axis) for t in tasks] for label in labels]
        for axis in budget_axes(results.timed)
    }
    return {"metrics": metrics, "costs": costs, "axes": {a: AXES[a] for a in costs}}


def _sign(metric: str) -> int:
    return {"higher": -1, "neutral": 0}.get(lb.direction(metric), 1)


def _primary_cell(row: dict[Any, Any] | None) -> list[Any] | None:
    if row is None:
        return None
    how = _UNRANKED if math.isnan(row["rank"]) else _RANKED if row["status"] == Status.OK else _FAILED
    value = lb.shown(row) if row["status"] == Status.OK else math.nan
    finite = math.isfinite(value)
    if how == _UNRANKED and not row["anchor"] and row["status"] == Status.OK:
        how = _UNTRAINED
    elif how == _RANKED and finite and lb.disqualifies(row["marks"]):
        how = _UNFINISHED
    return [entry(row), _six_digits(value) if finite else None, how if finite or how else _FAILED]


def _metric_cell(cell: CellRecord | None, metric: str) -> list[Any] | None:
    if cell is None:
        return None
    if cell.status is not Status.OK:
        unranked = cell.status in lb.NOT_RUN or lb.is_anchor(cell)
        return [str(cell.status), None, _UNRANKED if unranked else _FAILED]
    if metric not in cell.values:
        return None
    median = median_interval(metric_values(metric, cell.values[metric]))[0]
    how = _UNRANKED if lb.is_anchor(cell) else _RANKED if math.isfinite(median) else _FAILED
    return [number(median), _six_digits(median) if math.isfinite(median) else None, how]


def _cost(row: dict[Any, Any] | None, axis: str) -> float | None:
    return None if row is None or not math.isfinite(row[axis]) else _six_digits(row[axis])


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")
