"""Curves of a run: medians over replicates, methods at equal budgets, tasks solved over a budget.

At equal score evaluations (work), and at equal sequential steps. A sequential step is one call of the density or its score for
any number of rows; these calls determine the run time on hardware that evaluates all rows in parallel. A chain of N = 1 spends few rows on many steps; N particles spend N times as many on each.

Each axis has one level for a task, the median of what its methods spent in all. A method is shown at the checkpoint
nearest to the level (by ratio), or at its end where it ended before; what it had spent there stands beside it.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.judging import AFTERWARDS, SEQUENTIAL
from parvibench.harness.store.cell_files import CurveGrid, MetricCurve
from parvibench.harness.store.results import StoredRun, metric_values
from parvibench.statistics import median_interval, runtime_profile

from . import board as lb
from .recommended import limits, reached
from .run import AXES

#: Metric of sequential tasks that also serves as an axis.
CONTEXTS = "contexts"
_BUDGETS = 41


def line(results: StoredRun, cell: CellRecord, metric: str) -> pd.DataFrame:
    """Median and quartiles at every checkpoint; replicates that stopped earlier by diverging count as worst.

    Columns of ``AXES`` and ``contexts`` (medians; NaN where nothing is decided), median, low, high, by checkpoint.
    """
    grid = results.curve_grid(cell)
    curve, decided = grid.metric(metric), grid.medians(CONTEXTS)
    points = []
    for i, checkpoint in enumerate(curve.rows):
        found = sorted(metric_values(metric, curve.at(i, cell.diverged)))
        quartiles = (found[round(q * (len(found) - 1))] for q in (0.25, 0.75))
        spent = (float(np.median(curve.spent[a][i, curve.measured[i]])) for a in AXES)
        points.append((*spent, decided[checkpoint], statistics.median(found), *quartiles))
    return pd.DataFrame(points, columns=[*AXES, CONTEXTS, "median", "low", "high"]).sort_values("iteration")


class AtBudget(NamedTuple):
    """A method at the checkpoint nearest to a budget."""

    cell: CellRecord
    rank: float  #: among the methods at this budget
    values: tuple[float, float, float]  #: median over replicates with its interval, over the floor where there is one
    spent: float
    iterations: float
    ended: bool  #: whether its run ended well before the budget


def at_equal_budgets(
    results: StoredRun, cells: Sequence[CellRecord], metric: str
) -> dict[str, tuple[float, list[AtBudget]]]:
    """Budget axis -> level, methods best first; empty where fewer than two have a curve."""
    known = lb.floor(cells[0].task, metric, cells[0].samples)
    unit = known.median if known else 1.0
    ran = [c for c in cells if c.status is Status.OK and not lb.is_anchor(c)]
    sign = -1 if lb.higher_is_better(metric) else 1
    found = {}
    for axis, own in (("score_evaluations", ran), (SEQUENTIAL, [c for c in ran if AFTERWARDS not in c.flags])):
        found_of = [(c, *_spent(results.curve_grid(c), metric, axis)) for c in own]
        courses = [course for course in found_of if len(course[2])]
        if len(courses) < 2:
            continue
        level = float(np.median([cost[-1] for *_, cost, _ in courses]))
        rows = []
        for cell, curve, cost, at in courses:
            i = int(np.abs(np.log(cost / level)).argmin())
            values = metric_values(metric, curve.at(int(at[i]), cell.diverged))
            middle, low, high = (v / unit for v in median_interval(values))
            iterations = float(curve.spent["iteration"][at[i], curve.measured[at[i]]].max())
            ended = i == len(cost) - 1 and cost[i] < 0.7 * level
            rows.append(AtBudget(cell, 0.0, (middle, low, high), float(cost[i]), iterations, ended))
        ranks = stats.rankdata([sign * row.values[0] for row in rows], method="min")
        order = np.argsort(ranks, kind="stable")
        found[axis] = level, [rows[i]._replace(rank=float(ranks[i])) for i in order]
    return found


def _spent(grid: CurveGrid, metric: str, axis: str) -> tuple[MetricCurve, NDArray[np.float64], NDArray[np.intp]]:
    """The curve, what the replicate that had spent most had spent at the checkpoints at which something had been, and their places, (C,)."""
    curve = grid.metric(metric)
    spent = np.where(curve.measured, curve.spent["iteration" if axis == SEQUENTIAL else axis], -math.inf)
    cost = spent.max(1, initial=-math.inf)
    if axis == SEQUENTIAL and SEQUENTIAL in grid.names:
        cost = grid.medians(SEQUENTIAL)[curve.rows]
    at = np.flatnonzero(cost > 0)
    return curve, cost[at], at


def profiles(
    results: StoredRun, board: pd.DataFrame, axis: str, first: Sequence[str], most: int
) -> dict[str, pd.DataFrame]:
    """Label -> share of tasks solved within a budget, with its band, as of ``statistics.runtime_profile``.

    A replicate solves a task when its value is near the lowest final median of all methods, as of ``recommended``; failures and
    methods that did not run solve nothing. At most so many methods: those of ``first``, then the best.
    """
    solved: dict[str, dict[str, NDArray[np.float64]]] = {}
    for (task, label), times in reached(results, board, axis).items():
        solved.setdefault(label, {})[task] = times[:, None]
    metrics = dict(board[["task", "metric"]].drop_duplicates().to_numpy())
    curves = [results.curve_grid(c).metric(metrics[c.task]) for c in results.cells if c.task in solved.get(c.label, ())]
    spent = np.concatenate([np.empty(0), *(c.spent[axis][c.measured] for c in curves)])
    spent = spent[spent > 0]
    if not len(spent):
        return {}
    budgets = np.geomspace(spent.min(), spent.max(), _BUDGETS) * (1 + 1e-9)
    nothing = dict.fromkeys(limits(board), np.full((1, 1), math.inf))
    times_of = {label: nothing | times for label, times in solved.items()}
    shares = {k: np.mean([(t <= budgets).mean(0) for t in times.values()], axis=0) for k, times in times_of.items()}
    best = sorted(shares, key=lambda label: (-shares[label][-1], -shares[label].mean()))
    drawn = list(dict.fromkeys([*(label for label in first if label in shares), *best]))[:most]
    return {label: runtime_profile(times_of[label], budgets, seed=0) for label in drawn}
