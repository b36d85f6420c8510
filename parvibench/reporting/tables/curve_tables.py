"""Tables from the curves of a run: methods at equal budgets, and how iterations grow with the dimension.

At equal score evaluations (work), and at equal sequential steps. A sequential step is one call of the density or its score for
any number of rows; these calls determine the run time on hardware that evaluates all rows in parallel. A chain of N = 1 spends few rows on many steps; N particles spend N times as many on each.

Each axis has one level for a task, the median of what its methods spent in all. A method is shown at the checkpoint
nearest to the level (by ratio), or at its end where it ended before; what it had spent there stands beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.judging import SEQUENTIAL
from parvibench.harness.store.curve_grid import CurveGrid, MetricCurve
from parvibench.harness.store.results import StoredRun, metric_values
from parvibench.reporting.formatting import number
from parvibench.statistics import median_interval

from . import leaderboard as lb
from .table import Column, Entry, Row, Table, estimate, method, numeric, sortable, whole

#: Metric whose levels are reached, and these.
GROWTH_METRIC = "kl_projected"
LEVELS = (0.1, 0.01)
#: Fewest dimensions for a fit.
_FEWEST = 3
#: Budget axis -> its name.
_AXES = {"score_evaluations": "score evaluations", SEQUENTIAL: "sequential steps"}


def equal_budget_tables(results: StoredRun, cells: Sequence[CellRecord], metric: str) -> tuple[Table, ...]:
    """Both tables of a task's methods; none where fewer than two have a curve."""
    known = lb.floor(cells[0].task, metric, cells[0].samples)
    ran = [c for c in cells if c.status is Status.OK and not lb.is_anchor(c)]
    tables = []
    for axis, spent in _AXES.items():
        courses = [course for c in ran if len((course := _Course.of(results, c, metric, axis)).cost)]
        if len(courses) < 2:
            return ()
        tables.append(_budget_table(courses, spent, metric, known.median if known else 1.0))
    return tuple(tables)


class _Course(NamedTuple):
    """A cell's metric at the checkpoints at which something had been spent."""

    cell: CellRecord
    curve: MetricCurve
    cost: NDArray[np.float64]  #: (C,), of the replicate that had spent most
    at: NDArray[np.intp]  #: (C,), positions of these checkpoints in the curve

    @classmethod
    def of(cls, results: StoredRun, cell: CellRecord, metric: str, axis: str) -> Self:
        grid = results.curve_grid(cell)
        curve = grid.metric(metric)
        spent = np.where(curve.measured, curve.spent["iteration" if axis == SEQUENTIAL else axis], -math.inf)
        cost = spent.max(1, initial=-math.inf)
        if axis == SEQUENTIAL and SEQUENTIAL in grid.names:
            cost = grid.medians(SEQUENTIAL)[curve.rows]
        at = np.flatnonzero(cost > 0)
        return cls(cell, curve, cost[at], at)


def _budget_table(courses: Sequence[_Course], spent: str, metric: str, unit: float) -> Table:
    """Methods at the checkpoints nearest to the median of what they spent; values are divided by ``unit``."""
    level = float(np.median([c.cost[-1] for c in courses]))
    found = [_nearest(c, level, metric) for c in courses]
    sign = -1 if lb.higher_is_better(metric) else 1
    ranks = stats.rankdata([sign * values[0] for values, _, _ in found], method="min")
    columns = (
        Column("method", numeric=False),
        Column("rank", "among the methods at this budget; 1 is best"),
        Column("× floor" if unit != 1.0 else metric, "median over replicates [95% interval]"),
        Column(spent, "per replicate, at the checkpoint nearest to the level"),
        Column("iterations", "per replicate, at that checkpoint"),
    )
    body = []
    for i in np.argsort(ranks, kind="stable"):
        cell, (values, cost, iterations) = courses[i].cell, found[i]
        value = estimate(*(v / unit for v in values))
        body.append(Row((method(cell.label), numeric(float(ranks[i])), value, cost, iterations), kind=cell.kind))
    return Table(f"At equal {spent}: {number(level)} per replicate", columns, tuple(body))


def _nearest(course: _Course, level: float, metric: str) -> tuple[tuple[float, float, float], Entry, Entry]:
    """A method's median with its interval at the checkpoint nearest to a level, what it had spent there, its iterations."""
    curve, i = course.curve, int(np.abs(np.log(course.cost / level)).argmin())
    at, spent = int(course.at[i]), float(course.cost[i])
    note = "end of its run" if i == len(course.cost) - 1 and spent < 0.7 * level else ""
    values = median_interval(metric_values(metric, curve.at(at, course.cell.diverged)))
    iterations = curve.spent["iteration"][at, curve.measured[at]].max()
    return values, replace(whole(spent), note=note), whole(float(iterations))


def growth_table(results: StoredRun) -> Table | None:
    """Iterations to each level by dimension, and the exponent fitted to them; None with fewer than three dimensions."""
    rows_of = registry.tasks()
    measured = [c.task for c in results.cells if GROWTH_METRIC in c.values and c.task in rows_of]
    dims = {task: dim for task in measured if (dim := rows_of[task].dim)}
    if len(set(dims.values())) < _FEWEST:
        return None
    tasks = sorted(dims, key=lambda t: dims[t])
    labels = dict.fromkeys(c.label for c in results.cells if not lb.is_anchor(c))
    rows = [
        row
        for label in labels
        for level in LEVELS
        if (row := _growth_row(results, label, level, tasks, dims)) is not None
    ]
    columns = (
        Column("method", numeric=False),
        Column("to a KL of", "nats"),
        Column(
            "exponent",
            "b of iterations = a D^b, least squares of logarithms over the dimensions that reach the level [95%]",
        ),
        *[
            Column(f"D = {dims[t]}", "iterations, median over replicates, interpolated between checkpoints")
            for t in tasks
        ],
    )
    return Table("iterations to a divergence, by dimension", columns, tuple(rows)) if rows else None


def _growth_row(results: StoredRun, label: str, level: float, tasks: Sequence[str], dims: dict[str, int]) -> Row | None:
    cells = {c.task: c for c in results.cells if c.label == label and c.status is Status.OK and c.task in dims}
    if not cells:
        return None
    reached = {
        t: float(np.median(iterations_to(results.curve_grid(cells[t]), level))) if t in cells else math.nan
        for t in tasks
    }
    slope = exponent([dims[t] for t in tasks], [reached[t] for t in tasks])
    fit = Entry("") if slope is None else estimate(*slope)
    shown = [Entry("never", sortable(math.inf)) if math.isinf(reached[t]) else numeric(reached[t]) for t in tasks]
    return Row((method(label), numeric(level), fit, *shown), kind=next(iter(cells.values())).kind)


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
