"""How the iterations to a given divergence grow with the dimension of one family of targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from parvibench.core import registry
from parvibench.core.result import Status
from parvibench.harness.store.results import StoredRun

from . import leaderboard as lb
from .formatting import interval, number
from .page_tables import Column, Entry, Row, Table, method, numeric, sortable

METRIC = "kl_projected"
LEVELS = (0.1, 0.01)
#: Fewest dimensions for a fit.
_FEWEST = 3


def growth_table(results: StoredRun) -> Table | None:
    """Iterations to each level by dimension, and the exponent fitted to them; None with fewer than three dimensions."""
    rows_of = registry.tasks()
    dims: dict[str, int] = {}
    for c in results.cells:
        if METRIC in c.values and c.task in rows_of and (dim := rows_of[c.task].dim):
            dims[c.task] = dim
    if len(set(dims.values())) < _FEWEST:
        return None
    tasks = sorted(dims, key=lambda t: dims[t])
    labels = dict.fromkeys(c.label for c in results.cells if not lb.is_anchor(c))
    rows = [
        row for label in labels for level in LEVELS if (row := _row(results, label, level, tasks, dims)) is not None
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


def _row(results: StoredRun, label: str, level: float, tasks: Sequence[str], dims: dict[str, int]) -> Row | None:
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
    for _, run in curve[curve["metric"] == METRIC].sort_values("checkpoint").groupby("replicate"):
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
