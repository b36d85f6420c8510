"""Two tables of a task from the same runs: at equal score evaluations (work), and at equal sequential steps.

A sequential step is a call of the density or its score, whatever the number of rows: what a machine waits for that scores
any number of rows at once. A chain of N = 1 spends few rows on many steps; N particles spend N times as many on each.

Each axis has one level for a task, the median of what its methods spent in all. A method is shown at the checkpoint
nearest to the level (by ratio), or at its end where it ended before; what it had spent there stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.checkpoints import SEQUENTIAL
from parvibench.harness.store.results import StoredRun, checkpoint_values
from parvibench.statistics import median_interval

from . import leaderboard as lb
from .formatting import interval, number
from .page_tables import Column, Entry, Row, Table, method, numeric, sortable, whole

_TITLES = {
    "score_evaluations": ("equal score evaluations", "score evaluations"),
    SEQUENTIAL: ("equal sequential steps", "sequential steps"),
}


@dataclass(frozen=True)
class _Point:
    """A method at one checkpoint."""

    label: str
    kind: str
    values: tuple[float, float, float]  #: median over replicates and its 95% interval
    spent: float
    iterations: float
    ended: bool  #: whether its run ended there


def equal_budget_tables(results: StoredRun, cells: Sequence[CellRecord], metric: str) -> tuple[Table, ...]:
    """Both tables of a task's methods; none where fewer than two have a curve."""
    tables = []
    for axis in _TITLES:
        curves = {c.label: (c, points) for c in cells if len(points := _points(results, c, metric, axis))}
        if len(curves) < 2:
            return ()
        level = float(np.median([points["spent"].iloc[-1] for _, points in curves.values()]))
        chosen = [_nearest(cell, points, level, metric) for cell, points in curves.values()]
        tables.append(_table(chosen, axis, level, metric, _unit(cells[0], metric)))
    return tuple(tables)


def _points(results: StoredRun, cell: CellRecord, metric: str, axis: str) -> pd.DataFrame:
    """What a cell had spent at each checkpoint; empty for anchors and cells without a curve."""
    curve = results.curve(cell) if cell.status is Status.OK and not lb.is_anchor(cell) else pd.DataFrame()
    if not len(curve):
        return curve
    rows = curve[curve["metric"] == metric]
    if axis == SEQUENTIAL:
        steps = curve[curve["metric"] == SEQUENTIAL].groupby("checkpoint")["value"].median()
        spent = rows["checkpoint"].map(steps) if len(steps) else rows["iteration"]
    else:
        spent = rows[axis]
    return rows.assign(spent=spent.astype(float)).query("spent > 0").sort_values("checkpoint", kind="stable")


def _nearest(cell: CellRecord, points: pd.DataFrame, level: float, metric: str) -> _Point:
    each = points.groupby("checkpoint")["spent"].max()
    at = (np.log(each) - math.log(level)).abs().idxmin()
    rows = points[points["checkpoint"] == at]
    values = median_interval(checkpoint_values(metric, rows, cell.diverged))
    return _Point(cell.label, cell.kind, values, float(each[at]), float(rows["iteration"].max()), at == each.index[-1])


def _unit(cell: CellRecord, metric: str) -> float:
    """What values are divided by: the floor's median where there is one."""
    found = lb.floor(cell.task, metric, cell.samples)
    return found.median if found else 1.0


def _table(points: Sequence[_Point], axis: str, level: float, metric: str, unit: float) -> Table:
    title, spent = _TITLES[axis]
    sign = -1 if lb.higher_is_better(metric) else 1
    ranks = stats.rankdata([sign * p.values[0] for p in points], method="min")
    columns = (
        Column("method", numeric=False),
        Column("rank", "among the methods at this budget; 1 is best"),
        Column("× floor" if unit != 1.0 else metric, "median over replicates [95% interval]"),
        Column(spent, "of a replicate, at the checkpoint nearest to the level"),
        Column("iterations", "of a replicate, there"),
    )
    body = []
    for i in np.argsort(ranks, kind="stable"):
        p = points[i]
        median, low, high = (v / unit for v in p.values)
        value = Entry(f"{number(median)} [{interval(low, high)}]", sortable(median))
        note = "end of its run" if p.ended and p.spent < 0.7 * level else ""
        cost = Entry(whole(p.spent).text, sortable(p.spent), note=note)
        entries = (method(p.label), numeric(float(ranks[i])), value, cost, whole(p.iterations))
        body.append(Row(entries, kind=p.kind))
    return Table(f"At {title}: {number(level)} {spent} of a replicate", columns, tuple(body))
