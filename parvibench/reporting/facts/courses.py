"""What the curves of a run give: medians over replicates, methods at equal budgets, times to a level, tasks solved over a budget.

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

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.judging import SEQUENTIAL
from parvibench.harness.store.curve_grid import CurveGrid
from parvibench.harness.store.results import StoredRun, metric_values
from parvibench.metrics.chains import array_stats
from parvibench.statistics import median_interval, runtime_profile

from . import board as lb
from .recommended import limits, reached
from .run import AXES

#: Metric of sequential tasks that also serves as an axis.
CONTEXTS = "contexts"
#: Metric whose levels are reached, and these.
GROWTH_METRIC = "kl_projected"
LEVELS = (0.1, 0.01)
#: Fewest dimensions for a fit.
_FEWEST = 3
_BUDGETS, _LAGS = 41, 25


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
    for axis in ("score_evaluations", SEQUENTIAL):
        courses = [(c, *_spent(results.curve_grid(c), metric, axis)) for c in ran]
        courses = [course for course in courses if len(course[1])]
        if len(courses) < 2:
            return {}
        level = float(np.median([cost[-1] for _, cost, _ in courses]))
        rows = []
        for cell, cost, at in courses:
            curve, i = results.curve_grid(cell).metric(metric), int(np.abs(np.log(cost / level)).argmin())
            values = metric_values(metric, curve.at(int(at[i]), cell.diverged))
            middle, low, high = (v / unit for v in median_interval(values))
            iterations = float(curve.spent["iteration"][at[i], curve.measured[at[i]]].max())
            ended = i == len(cost) - 1 and cost[i] < 0.7 * level
            rows.append(AtBudget(cell, 0.0, (middle, low, high), float(cost[i]), iterations, ended))
        ranks = stats.rankdata([sign * row.values[0] for row in rows], method="min")
        order = np.argsort(ranks, kind="stable")
        found[axis] = level, [rows[i]._replace(rank=float(ranks[i])) for i in order]
    return found


def _spent(grid: CurveGrid, metric: str, axis: str) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """What the replicate that had spent most had spent at the checkpoints at which something had been, and their places, (C,)."""
    curve = grid.metric(metric)
    spent = np.where(curve.measured, curve.spent["iteration" if axis == SEQUENTIAL else axis], -math.inf)
    cost = spent.max(1, initial=-math.inf)
    if axis == SEQUENTIAL and SEQUENTIAL in grid.names:
        cost = grid.medians(SEQUENTIAL)[curve.rows]
    at = np.flatnonzero(cost > 0)
    return cost[at], at


class Growth(NamedTuple):
    """Iterations of a method to a level, by dimension."""

    label: str
    kind: str
    level: float
    slope: tuple[float, float, float] | None  #: of log iterations over log dimension, with its interval
    reached: dict[int, float]  #: dimension -> median; inf: never, NaN: not run


def growth(results: StoredRun) -> list[Growth]:
    """Iterations to each level by dimension, and the exponent fitted to them; none with fewer than three dimensions."""
    rows_of = registry.tasks()
    measured = [c.task for c in results.cells if GROWTH_METRIC in c.values and c.task in rows_of]
    dims = {task: dim for task in measured if (dim := rows_of[task].dim)}
    if len(set(dims.values())) < _FEWEST:
        return []
    found = []
    for label in dict.fromkeys(c.label for c in results.cells if not lb.is_anchor(c)):
        cells = {c.task: c for c in results.cells if c.label == label and c.status is Status.OK and c.task in dims}
        for level in LEVELS if cells else ():
            times = {t: float(np.median(iterations_to(results.curve_grid(c), level))) for t, c in cells.items()}
            reached = {dims[t]: times.get(t, math.nan) for t in sorted(dims, key=lambda t: dims[t])}
            slope = exponent(list(reached), list(reached.values()))
            found.append(Growth(label, next(iter(cells.values())).kind, level, slope, reached))
    return found


def iterations_to(curves: CurveGrid, level: float) -> list[float]:
    """Iterations after which each replicate is at or below a level, linear in logarithms between checkpoints; inf: never."""
    found = []
    curve = curves.metric(GROWTH_METRIC)
    for r in np.flatnonzero(curve.measured.any(0)):
        here = curve.measured[:, r]
        at, values = curve.spent["iteration"][here, r], curve.values[here, r]
        below = np.flatnonzero(values <= level)
        if not len(below):
            found.append(math.inf)
        elif (i := int(below[0])) == 0 or values[i] <= 0:
            found.append(float(at[i]))
        else:
            share = math.log(values[i - 1] / level) / math.log(values[i - 1] / values[i])
            found.append(float(at[i - 1] * (at[i] / at[i - 1]) ** share))
    return found or [math.nan]


def exponent(dims: Sequence[int], iterations: Sequence[float]) -> tuple[float, float, float] | None:
    """Slope of log iterations over log D with its 95% interval by Student's t; None with fewer than three finite points."""
    pairs = [(math.log(d), math.log(k)) for d, k in zip(dims, iterations, strict=True) if math.isfinite(k) and k > 0]
    if len(pairs) < _FEWEST:
        return None
    x, y = zip(*pairs, strict=True)
    fit = stats.linregress(x, y)
    half = float(stats.t.ppf(0.975, len(pairs) - 2)) * float(fit.stderr)
    return float(fit.slope), float(fit.slope) - half, float(fit.slope) + half


def profiles(results: StoredRun, board: pd.DataFrame, axis: str) -> dict[str, pd.DataFrame]:
    """Label -> share of tasks solved within a budget, with its band, as of ``statistics.runtime_profile``; best first.

    A replicate solves a task when its value is near the lowest final median of all methods, as of ``recommended``; failures and
    methods that did not run solve nothing.
    """
    solved: dict[str, dict[str, NDArray[np.float64]]] = {}
    for (task, label), times in reached(results, board, axis).items():
        solved.setdefault(label, {})[task] = times[:, None]
    if not solved:
        return {}
    metrics = dict(board[["task", "metric"]].drop_duplicates().to_numpy())
    curves = [results.curve_grid(c).metric(metrics[c.task]) for c in results.cells if c.task in solved.get(c.label, ())]
    spent = [s for c in curves for s in c.spent[axis][c.measured] if s > 0]
    if not spent:
        return {}
    budgets = np.geomspace(min(spent), max(spent), _BUDGETS) * (1 + 1e-9)
    nothing = dict.fromkeys(limits(board), np.full((1, 1), math.inf))
    found = {k: runtime_profile(nothing | v, budgets, seed=0) for k, v in solved.items()}
    return dict(sorted(found.items(), key=lambda of: (-of[1]["share"].iloc[-1], -of[1]["share"].mean())))


def mean_autocorrelation(samples: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """Autocorrelation at lags 0, 1, ... of samples (R, n, D), mean over coordinates and finite replicates.

    At most 26 values; None for chains that never moved or are too short.
    """
    kept = samples[np.isfinite(samples).all((1, 2))].astype(np.float64)
    moved = kept[(kept.std(1) > 0).all(1)]
    if not len(moved) or moved.shape[1] < 4:
        return None
    lags = min(_LAGS, moved.shape[1] // 2)
    return np.asarray(array_stats().autocorr(moved, axis=1)).mean((0, 2))[: lags + 1]
