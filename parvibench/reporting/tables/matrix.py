"""The leaderboard of methods x tasks with average ranks, and the numbers the page's script needs to filter it and to switch metrics."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun, interval_of
from parvibench.reporting.formatting import interval, name, number
from parvibench.reporting.text import marks

from . import leaderboard as lb
from .table import Column, Entry, Row, Table, method, numeric, sortable, whole

#: How a cell of the leaderboard is ranked; the same numbers stand in page.js.
_RANKED, _FAILED, _UNRANKED, _UNRELIABLE = 0, 1, 2, 3
#: As given by ``by_method``.
Method = tuple[str, pd.Series, dict[str, lb.Row]]


def common_tasks(board: pd.DataFrame) -> list[str]:
    """Tasks of ``leaderboard.table``, in its order, that all methods ran on that ran on half of the tasks.

    Averages over them are of the same tasks for all methods: a method that loses to another on all of them cannot be
    listed above it.
    """
    rows = board[~board["anchor"].astype(bool) & ~board["status"].isin([str(s) for s in lb.NOT_RUN])]
    ran = {str(label): set(mine["task"]) for label, mine in rows.groupby("label", sort=False)}
    names = [str(t) for t in dict.fromkeys(rows["task"])]
    counted = [mine for mine in ran.values() if 2 * len(mine) >= len(names)]
    return [t for t in names if all(t in mine for mine in counted)]


def average_ranks(board: pd.DataFrame) -> pd.DataFrame:
    """Rank of every method of ``leaderboard.table`` averaged over the tasks that rank it; best first, anchors last.

    Index label; columns ``anchor``, ``average_rank`` (ties share the mean of their ranks), ``n_tasks`` (that rank the
    method) and ``n_failed`` (of these, without a result).
    """
    rows = board[["task", "label", "anchor", "status", "rank"]].copy()
    # ``rank`` gives ties the best of their places; an average needs the middle.
    places = rows.groupby("task")["rank"]
    rows["rank"] = places.rank(method="average")
    failed = rows["rank"].notna() & (rows["status"] != Status.OK)
    by_label = rows.assign(failed=failed).groupby("label", sort=False)
    frame = by_label.agg(
        anchor=("anchor", "first"), average_rank=("rank", "mean"), n_tasks=("rank", "count"), n_failed=("failed", "sum")
    )
    return frame.sort_values(["anchor", "average_rank"], kind="stable")


def by_label(board: pd.DataFrame) -> dict[str, dict[str, lb.Row]]:
    """Label -> task -> row of the board."""
    rows: dict[str, dict[str, lb.Row]] = {}
    for row in board.to_dict("records"):
        rows.setdefault(str(row["label"]), {})[str(row["task"])] = row
    return rows


def by_method(board: pd.DataFrame) -> Iterator[Method]:
    """Label, row of ``average_ranks`` and, by task, rows of the board of every method: best first, anchors last."""
    rows = by_label(board)
    for label, rank in average_ranks(board).iterrows():
        yield str(label), rank, rows[str(label)]


def leaderboard(results: StoredRun, board: pd.DataFrame) -> Table:
    """Methods x tasks by each task's primary metric."""
    first = {str(row["task"]): row for row in board.drop_duplicates("task").to_dict("records")}
    ranked = "over the tasks shown that rank the method; 1 is best, ties share a rank, failures share the last"
    columns = [
        Column("method", numeric=False),
        Column("kind", numeric=False),
        Column("average rank", ranked),
        Column("tasks", "number of tasks that the average rank is over"),
        Column("cost", "per replicate, mean over the tasks shown"),
    ]
    for task, row in first.items():
        help = f"{row['metric']}: click to sort"
        columns.append(Column(task, help, group=lb.task_group(task), sub=_sub(row)))
    kinds = lb.method_kinds(results)
    body = []
    for label, rank, of_tasks in by_method(board):
        mine = [of_tasks.get(task) for task in first]
        costs = [float(r["score_evaluations"]) for r in mine if r is not None]
        rests = f"over {rank['n_tasks']} of {len(first)} tasks, {rank['n_failed']} without a result"
        average = Entry("") if rank["anchor"] else numeric(rank["average_rank"], help=rests)
        count = Entry("") if rank["anchor"] else whole(rank["n_tasks"])
        cost = numeric(float(np.mean(costs)) if costs else None)
        head = (method(label, anchor=bool(rank["anchor"])), Entry(kinds[label]), average, count, cost)
        body.append(Row((*head, *map(_matrix_entry, mine)), kind=kinds[label]))
    return Table("leaderboard", tuple(columns), tuple(body))


def _sub(row: lb.Row) -> str:
    """The quantity in a task's column."""
    samples = max(1, int(row["samples"]))
    ratio = not math.isnan(row["floor_ratio"]) or lb.floor(row["task"], row["metric"], samples)
    return "× floor" if ratio else str(row["metric"])


def _matrix_entry(row: lb.Row | None) -> Entry:
    if row is None:
        return Entry("")
    if row["status"] != Status.OK:
        return Entry(lb.entry(row), look="status", help=str(row["reason"])[:300])
    return Entry(lb.entry(row), sortable(lb.shown(row)), "best strong" if row["best"] else "", _tooltip(row))


def _tooltip(row: lb.Row) -> str:
    text = f"{row['metric']}: median {number(row['median'])}, 95% interval {interval(row['low'], row['high'])}"
    if not math.isnan(row["worst"]):
        text += f", worst replicate {number(row['worst'])}"
    return "; ".join(filter(None, [text, row["marks"]]))


def numbers(
    results: StoredRun, boards: Mapping[str, pd.DataFrame], table: Table, axes: Mapping[str, str]
) -> dict[str, Any]:
    """The contents of the leaderboard for every metric and every budget axis (column -> title), as JSON for the script.

    ``boards``: of all methods (key ``""``), of those of each kind and of each division.

    ``metrics``: a list of name, title, signs (per task: 1 lower is better, -1 higher, 0 neither) and cells, by row and
    task: [text, number or null, how it is ranked], the number of a ranked cell alone, or null (left out at the end of a row); among each task's own metric also whether it is among the best
    of all methods (1), of those of its kind (2) and of its division (4). ``costs``: budget axis -> by row and task, number or null.
    """
    tasks = list(results.by_task)
    labels = [row.entries[0].text for row in table.rows]
    cells = {(c.task, c.label): c for c in results.cells}
    rows = {(r["task"], r["label"]): r for r in boards[""].to_dict("records")}
    best = {
        (r["task"], r["label"], kind)
        for kind, b in boards.items()
        for r in b.loc[b["best"].astype(bool), ["task", "label"]].to_dict("records")
    }
    parts = {2: [k for k in boards if k not in ("", *lb.DIVISIONS)], 4: lb.DIVISIONS}
    among = {
        key: ((*key, "") in best) + sum(bit * any((*key, part) in best for part in of) for bit, of in parts.items())
        for key in rows
    }
    primary = [[_primary_cell(rows.get((t, label)), among.get((t, label), 0)) for t in tasks] for label in labels]
    ranked_by = {task: str(r["metric"]) for (task, _), r in rows.items()}
    own = [_sign(ranked_by[t]) for t in tasks]
    metrics = [{"name": "", "title": "each task's own metric", "signs": own, "cells": primary}]
    for metric in dict.fromkeys(m for c in results.cells for m in c.values):
        row = registry.metrics().get(metric)
        title = name(metric) + (f" ({row.goal})" if row else "")
        shown = [_short([_metric_cell(cells.get((t, label)), metric) for t in tasks]) for label in labels]
        signs = [_sign(metric)] * len(tasks)
        metrics.append({"name": metric, "title": title, "signs": signs, "cells": shown})
    costs = {axis: [[_cost(rows.get((t, label)), axis) for t in tasks] for label in labels] for axis in axes}
    return {"metrics": metrics, "costs": costs, "axes": dict(axes)}


def _short(row: list[Any]) -> list[Any]:
    """A row without the empty cells at its end: most metrics apply to few methods."""
    return row[: max((i + 1 for i, cell in enumerate(row) if cell is not None), default=0)]


def _sign(metric: str) -> int:
    return {"higher": -1, "neutral": 0}.get(registry.direction(metric), 1)


def _primary_cell(row: dict[Any, Any] | None, among_best: int) -> list[Any] | None:
    if row is None:
        return None
    ranked = _UNRELIABLE if row["unreliable"] else _RANKED if row["status"] == Status.OK else _FAILED
    how = _UNRANKED if math.isnan(row["rank"]) else ranked
    value = lb.shown(row) if row["status"] == Status.OK else math.nan
    finite = math.isfinite(value)
    cell = [lb.entry(row), _six_digits(value) if finite else None, how if finite or how else _FAILED]
    return [*cell, among_best] if among_best else cell


def _metric_cell(cell: CellRecord | None, metric: str) -> list[Any] | float | None:
    if cell is None:
        return None
    if cell.status is not Status.OK:
        unranked = cell.status in lb.NOT_RUN or lb.is_anchor(cell)
        return [marks.status_word(cell.status, cell.reason), None, _UNRANKED if unranked else _FAILED]
    if metric not in cell.values:
        return None
    median = interval_of(cell, metric)[0]
    how = _UNRANKED if lb.is_anchor(cell) else _RANKED if math.isfinite(median) else _FAILED
    few = float(f"{median:.4g}")
    if how == _RANKED and number(median) == number(few):
        return few  # the script writes it as ``number`` does
    return [number(median), _six_digits(median) if math.isfinite(median) else None, how]


def _cost(row: dict[Any, Any] | None, axis: str) -> float | None:
    return None if row is None or not math.isfinite(row[axis]) else _six_digits(row[axis])


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")
