"""Tables from the curves of a run: methods at equal budgets, and how iterations grow with the dimension.

At equal score evaluations (work), and at equal sequential steps. A sequential step is one call of the density or its score for
any number of rows; these calls determine the run time on hardware that evaluates all rows in parallel. A chain of N = 1 spends few rows on many steps; N particles spend N times as many on each.

Each axis has one level for a task, the median of what its methods spent in all. A method is shown at the checkpoint
nearest to the level (by ratio), or at its end where it ended before; what it had spent there stands beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.judging import SEQUENTIAL
from parvibench.harness.store.results import StoredRun, checkpoint_values
from parvibench.reporting.formatting import interval, number
from parvibench.reporting.text import captions
from parvibench.statistics import median_interval

from . import leaderboard as lb
from .table import Column, Entry, Row, Table, method, numeric, sortable, whole

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
    tables = []
    for axis, spent in _AXES.items():
        curves = {c.label: (c, points) for c in cells if len(points := _points(results, c, metric, axis))}
        if len(curves) < 2:
            return ()
        tables.append(_budget_table(list(curves.values()), spent, metric, known.median if known else 1.0))
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


def _budget_table(curves: Sequence[tuple[CellRecord, pd.DataFrame]], spent: str, metric: str, unit: float) -> Table:
    """Methods at the checkpoints nearest to the median of what they spent; values are divided by ``unit``."""
    level = float(np.median([points["spent"].iloc[-1] for _, points in curves]))
    found = [_nearest(cell, points, level, metric) for cell, points in curves]
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
        cell, (values, cost, iterations) = curves[i][0], found[i]
        median, low, high = (v / unit for v in values)
        value = Entry(f"{number(median)} [{interval(low, high)}]", sortable(median))
        body.append(Row((method(cell.label), numeric(float(ranks[i])), value, cost, iterations), kind=cell.kind))
    return Table(captions.EQUAL_BUDGETS.format(spent=spent, level=number(level)), columns, tuple(body))


def _nearest(
    cell: CellRecord, points: pd.DataFrame, level: float, metric: str
) -> tuple[tuple[float, float, float], Entry, Entry]:
    """A method's median with its interval at the checkpoint nearest to a level, what it had spent there, its iterations."""
    each = points.groupby("checkpoint")["spent"].max()
    at = (np.log(each) - math.log(level)).abs().idxmin()
    rows, spent = points[points["checkpoint"] == at], float(each[at])
    note = "end of its run" if at == each.index[-1] and spent < 0.7 * level else ""
    values = median_interval(checkpoint_values(metric, rows, cell.diverged))
    return values, replace(whole(spent), note=note), whole(float(rows["iteration"].max()))


def growth_table(results: StoredRun) -> Table | None:
    """Iterations to each level by dimension, and the exponent fitted to them; None with fewer than three dimensions."""
    rows_of = registry.tasks()
    dims: dict[str, int] = {}
    for c in results.cells:
        if GROWTH_METRIC in c.values and c.task in rows_of and (dim := rows_of[c.task].dim):
            dims[c.task] = dim
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
        t: float(np.median(iterations_to(results.curve(cells[t]), level))) if t in cells else math.nan for t in tasks
    }
    slope = exponent([dims[t] for t in tasks], [reached[t] for t in tasks])
    fit = Entry("") if slope is None else Entry(f"{number(slope[0])} [{interval(*slope[1:])}]", sortable(slope[0]))
    shown = [Entry("never", sortable(math.inf)) if math.isinf(reached[t]) else numeric(reached[t]) for t in tasks]
    return Row((method(label), numeric(level), fit, *shown), kind=next(iter(cells.values())).kind)


def iterations_to(curve: pd.DataFrame, level: float) -> list[float]:
    """Iterations after which each replicate is at or below a level, linear in logarithms between checkpoints; inf: never."""
    found = []
    for _, run in curve[curve["metric"] == GROWTH_METRIC].sort_values("checkpoint").groupby("replicate"):
        at, values = run["iteration"].to_numpy(dtype=float), run["value"].to_numpy(dtype=float)
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
