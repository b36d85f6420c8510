"""Tables over tasks: the leaderboard of methods x tasks, with the numbers by which the page's script filters it and switches metrics; aggregates."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts.findings import View, average_ranks, common_tasks
from parvibench.reporting.facts.run import Facts, interval_of
from parvibench.reporting.formatting import count, interval, name, number
from parvibench.reporting.text import marks

from .table import ALL_GROUPS, Column, Entry, Row, Table, method, numeric, sortable, whole


def leaderboard(facts: Facts) -> Table:
    """Methods x tasks by each task's primary metric."""
    first = {str(row["task"]): row for row in facts.board.drop_duplicates("task").to_dict("records")}
    ranked = "over the tasks shown that rank the method; 1 is best, ties share a rank, failures share the last"
    columns = [
        Column("method", numeric=False),
        Column("kind", numeric=False),
        Column("average rank", ranked),
        Column("tasks", "number of tasks that the average rank is over"),
        Column("cost", "per replicate, mean over the tasks shown"),
    ]
    for task, row in first.items():
        help, samples = f"{row['metric']}: click to sort", max(1, int(row["samples"]))
        ratio = not math.isnan(row["floor_ratio"]) or lb.floor(task, row["metric"], samples)
        sub = "× floor" if ratio else str(row["metric"])
        columns.append(Column(task, help, group=lb.task_group(task), sub=sub))
    body = []
    for label, rank, of_tasks in facts.all.methods:
        mine = [of_tasks.get(task) for task in first]
        costs = [float(r["score_evaluations"]) for r in mine if r is not None]
        rests = f"over {rank['n_tasks']} of {count(len(first), 'task')}, {rank['n_failed']} without a result"
        average = Entry("") if rank["anchor"] else numeric(rank["average_rank"], help=rests)
        of = Entry("") if rank["anchor"] else whole(rank["n_tasks"])
        cost = whole(float(np.mean(costs)) if costs else math.nan)
        head = (method(label, anchor=bool(rank["anchor"])), Entry(facts.kinds[label]), average, of, cost)
        body.append(Row((*head, *map(_matrix_entry, mine)), kind=facts.kinds[label]))
    return Table("leaderboard", tuple(columns), tuple(body))


def _matrix_entry(row: lb.Row | None) -> Entry:
    if row is None:
        return Entry("")
    if row["status"] != Status.OK:
        return Entry(lb.entry(row), look="status", help=str(row["reason"])[:300])
    text = f"{row['metric']}: median {number(row['median'])}, 95% interval {interval(row['low'], row['high'])}"
    if not math.isnan(row["worst"]):
        text += f", worst replicate {number(row['worst'])}"
    help = "; ".join(filter(None, [text, row["marks"]]))
    return Entry(lb.entry(row), sortable(lb.shown(row)), "best strong" if row["best"] else "", help)


def numbers(facts: Facts, table: Table) -> dict[str, Any]:
    """What the leaderboard shows under every choice, as JSON for the script, which computes nothing.

    ``metrics``: name, title and cells, by row and task: null (left out at the end of a row), a number, or a text with what
    it sorts by; of each task's own metric also whether the cell is among the best of all methods (1), of those of its kind (2)
    and of its division (4). ``ranks``: view -> group of tasks (empty: all) -> by row the average rank by the own metrics and
    the number of tasks, null outside. ``costs``: budget axis -> group -> by row the mean over tasks, or null.
    """
    labels, groups = [row.entries[0].text for row in table.rows], ["", *dict.fromkeys(map(str, facts.board["group"]))]
    metrics = dict.fromkeys(m for c in facts.cells for m in c.values)
    return {
        "metrics": [_own_metrics(facts, labels), *(_one_metric(facts, metric, labels) for metric in metrics)],
        "ranks": {v: {g: _ranks(_part(found.board, g), labels) for g in groups} for v, found in facts.views.items()},
        "costs": {a: {g: _costs(_part(facts.board, g), a, labels) for g in groups} for a in facts.cost_axes},
        "axes": facts.cost_axes,
    }


def _own_metrics(facts: Facts, labels: Sequence[str]) -> dict[str, Any]:
    """Every task by its own metric."""
    rows, among = facts.all.rows, dict[tuple[str, str], int]()
    for view, found in facts.views.items():
        bit = 1 if not view else 4 if view in facts.parts else 2
        best = found.board[found.board["best"].astype(bool)]
        for key in zip(best["task"], best["label"], strict=True):
            among[key] = among.get(key, 0) | bit

    def shown(row: lb.Row | None, among_best: int | None) -> list[Any] | None:
        if row is None:
            return None
        value = lb.shown(row) if row["status"] == Status.OK else math.nan
        cell = [lb.entry(row), _key(value, ranked=not math.isnan(row["rank"]))]
        return [*cell, among_best] if among_best else cell

    cells = [[shown(rows[label].get(t), among.get((t, label))) for t in facts.by_task] for label in labels]
    return {"name": "", "title": "each task's own metric", "cells": cells}


def _one_metric(facts: Facts, metric: str, labels: Sequence[str]) -> dict[str, Any]:
    """All tasks by one metric."""
    row, cells = registry.metrics().get(metric), {(c.task, c.label): c for c in facts.cells}
    shown = [[_metric_cell(cells.get((t, label)), metric) for t in facts.by_task] for label in labels]
    short = [row[: max((i + 1 for i, cell in enumerate(row) if cell is not None), default=0)] for row in shown]
    return {"name": metric, "title": name(metric) + (f" ({row.goal})" if row and row.goal else ""), "cells": short}


def _part(board: pd.DataFrame, group: str) -> pd.DataFrame:
    return board[board["group"] == group] if group else board


def _ranks(board: pd.DataFrame, labels: Sequence[str]) -> list[list[float] | None]:
    found = average_ranks(board[~board["anchor"].astype(bool)])
    ranks = zip(found.index, found["average_rank"], found["n_tasks"], strict=True)
    ranked = {label: [_six_digits(rank), int(n)] for label, rank, n in ranks if n}
    return [ranked.get(label) for label in labels]


def _costs(board: pd.DataFrame, axis: str, labels: Sequence[str]) -> list[float | None]:
    means = board.groupby("label")[axis].mean().dropna()
    return [_six_digits(means[label]) if label in means.index else None for label in labels]


def _metric_cell(cell: CellRecord | None, metric: str) -> list[Any] | float | None:
    if cell is None:
        return None
    ranked = cell.status not in lb.NOT_RUN and not lb.is_anchor(cell)
    if cell.status is not Status.OK:
        return [marks.status_word(cell.status, cell.reason), _key(math.nan, ranked=ranked)]
    if metric not in cell.values:
        return None
    median = interval_of(cell, metric)[0]
    few = float(f"{median:.4g}")
    if math.isfinite(median) and number(median) == number(few):
        return few  # the script writes it as ``number`` does
    return [number(median), _key(median, ranked=ranked)]


def _key(value: float, *, ranked: bool) -> float | str | None:
    """What a cell sorts by: its number; of what failed, behind all numbers."""
    return _six_digits(value) if math.isfinite(value) else "Infinity" if ranked else None


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def ranks_table(board: pd.DataFrame) -> Table | None:
    """Average ranks over the tasks that all methods ran on that ran on half of them; None where these are all or none."""
    common = common_tasks(board)
    if not common or len(common) == board["task"].nunique():
        return None
    ranks = average_ranks(board[board["task"].isin(common)])
    ranks = ranks[~ranks["anchor"].astype(bool) & (ranks["n_tasks"] == len(common))]
    body = tuple(Row((method(str(label)), numeric(rank))) for label, rank in ranks["average_rank"].items())
    title = f"average rank over the {len(common)} tasks that all methods ran on: {', '.join(common)}"
    return Table(title, (Column("method", numeric=False), Column("average rank")), body)


def means_table(view: View, tasks: Sequence[str]) -> Table:
    """Interquartile means of the ratio to the floor, over all of these tasks and over each group."""
    board = view.board
    by_group = {"all": tuple(tasks)} | {
        str(g): tuple(str(t) for t in rows["task"].unique())
        for g, rows in board[board["task"].isin(tasks)].groupby("group", sort=False)
    }
    parts = {g: view.means(t) for g, t in by_group.items()}
    columns = [
        Column(g, f"interquartile mean over {', '.join(t)}"[:300], group=ALL_GROUPS if g == "all" else g, sub=count(len(t), "task"))
        for g, t in by_group.items()
    ]  # fmt: skip
    labels = dict.fromkeys(str(label) for part in parts.values() for label in part.index)
    body = []
    for label in labels:
        means = [[*map(float, p.loc[label])] if label in p.index else [math.nan] * 3 for p in parts.values()]
        body.append(Row((method(label), *(numeric(mean, note=f"[{interval(*ends)}]") for mean, *ends in means))))
    caption = "interquartile mean of the ratio to the floor [95%]"
    return Table(caption, (Column("method", numeric=False), *columns), tuple(body))
