"""The methods to recommend for a kind of target: near the best on its tasks, whichever replicates are drawn again.

A method is near on a task if its median is at most ``FACTOR`` times the lowest median of all methods (log likelihoods: within
``NATS`` of it), or that of as many exact draws where this is higher. Of a kind of target are recommended the methods that are
near on as many of its tasks as any: so many that ``SURE`` of ``RESAMPLES`` bootstrap resamples of the replicates agree, the same
replicates for all methods, and on more than half. Those with warnings on so many of the tasks where they come nearest are named
where there are no others; the cheapest come first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core.result import CellRecord
from parvibench.harness.marks.convergence import LOG_SCALE
from parvibench.harness.store.results import StoredRun, metric_values
from parvibench.reporting.text.leaders import Kind, Recommended
from parvibench.statistics import hitting_times

from . import board as lb

#: Factor of the lowest final median within which a method is near; of log likelihoods, nats above it.
FACTOR, NATS = 1.5, 0.1
RESAMPLES, SURE = 1000, 0.95
#: Score evaluations of a method that spends none, which have a logarithm.
_LEAST = 1e-9


def near(lowest: NDArray[np.float64], floor: float, metric: str) -> NDArray[np.float64]:
    """The highest value, signed so that lower is better, that is near a lowest one; ``floor``: median of exact draws, or NaN."""
    if metric in LOG_SCALE:
        return lowest + NATS
    return np.where(lowest > 0, np.fmax(lowest, floor) * FACTOR, lowest / FACTOR)


def limits(board: pd.DataFrame) -> dict[str, float]:
    """Task -> the highest value that is near, signed so that lower is better; tasks without a result are left out."""
    found = {}
    for row in board[board["rank"].notna() & np.isfinite(board["median"].astype(float))].drop_duplicates("task").to_dict("records"):  # fmt: skip
        lowest = np.array(float(row["median"]) * (-1 if lb.higher_is_better(row["metric"]) else 1))
        found[str(row["task"])] = float(near(lowest, _floor(row), row["metric"]))
    return found


def _floor(row: lb.Row) -> float:
    return float(row["median"] / row["floor_ratio"]) if row["floor_ratio"] > 0 else math.nan


def reached(results: StoredRun, board: pd.DataFrame, axis: str) -> dict[tuple[str, str], NDArray[np.float64]]:
    """(Task, label) of ranked cells -> budget at which each replicate was first near, (R,); +inf: never."""
    highest, found = limits(board), {}
    cells = {(c.task, c.label): c for c in results.cells}
    ranked = board.loc[board["rank"].notna(), ["task", "label", "metric"]]
    for task, label, metric in ranked.itertuples(index=False):
        cell = cells[task, label]
        if cell.values and task in highest:
            curve = results.curve_grid(cell).metric(metric)
            sign = -1 if lb.higher_is_better(metric) else 1
            times = hitting_times(sign * curve.values, curve.spent[axis], [highest[task]], cell.n_replicates)
            found[task, label] = times[:, 0]
    return found


@dataclass(frozen=True)
class _Task:
    """Outcomes of the resamples of one task, by method."""

    near: Mapping[str, NDArray[np.bool_]]  #: (RESAMPLES,)
    cost: Mapping[str, NDArray[np.float64]]  #: logarithms of medians, (RESAMPLES + 1,): the last without resampling
    rows: Mapping[str, lb.Row]  #: of the board
    tuning: Mapping[str, float]  #: score evaluations of the search for the step size; 0 without one


@dataclass(frozen=True)
class Recommendations:
    """All resamples of a run, from which every kind of target and every part of the methods is read."""

    results: StoredRun
    board: pd.DataFrame  #: of all methods

    @cached_property
    def reached(self) -> Mapping[tuple[str, str], NDArray[np.float64]]:
        """As of ``reached``, in score evaluations."""
        return reached(self.results, self.board, "score_evaluations")

    @cached_property
    def _tasks(self) -> dict[str, _Task]:
        cells = {(c.task, c.label): c for c in self.results.cells}
        rows = self.board[lb.competing(self.board)]
        return {str(task): self._resampled(mine.to_dict("records"), cells) for task, mine in rows.groupby("task", sort=False)}  # fmt: skip

    def _resampled(self, rows: Sequence[lb.Row], cells: Mapping[tuple[str, str], CellRecord]) -> _Task:
        metric, own = rows[0]["metric"], [cells[row["task"], row["label"]] for row in rows]
        n = min(len(c.values[metric]) for c in own)  # the replicates that all methods have
        sign = -1 if lb.higher_is_better(metric) else 1
        values = sign * np.array([metric_values(metric, c.values[metric])[:n] for c in own])
        drawn = np.vstack([np.random.default_rng(0).integers(n, size=(RESAMPLES, n)), np.arange(n)])
        medians = np.stack([_medians(v, drawn[:-1]) for v in values])
        is_near = medians <= near(medians.min(0), _floor(rows[0]), metric)
        costs = []
        for row, cell in zip(rows, own, strict=True):
            times = self.reached.get((row["task"], row["label"]), np.full(n, math.inf))[:n]
            spent = np.where(np.isfinite(times), times, cell.score_evaluations)
            costs.append(np.log(np.maximum(_medians(spent, drawn), _LEAST)))
        labels = [str(row["label"]) for row in rows]
        tuning = [lb.tuning_cost(cell, self.results.run.suite) or 0.0 for cell in own]
        return _Task(*(dict(zip(labels, found, strict=True)) for found in (is_near, costs, rows, tuning)))

    def of(self, where: str, tasks: Sequence[str], labels: Iterable[str]) -> Kind:
        """What to use of some methods for the tasks of a kind; near the best of all methods."""
        known = [self._tasks[task] for task in tasks if task in self._tasks]
        near_on = {label: [t.near[label] for t in known if label in t.near] for label in labels}
        counts = {label: np.sum(own, axis=0) for label, own in near_on.items() if own}
        sure = {label: int(np.sort(n)[math.floor((1 - SURE) * RESAMPLES)]) for label, n in counts.items()}
        most = max(sure.values(), default=0)
        most = most if 2 * most > len(tasks) else 0
        found = [self._method(label, most, known) for label, n in sure.items() if n == most > 0]
        clean = [method for method in found if not method.warnings]
        methods = sorted(clean or found, key=lambda m: (m.cost, m.result, m.label))
        agreed = {m.label: (counts[methods[0].label] >= most) & (counts[m.label] >= most) for m in methods}
        methods = [m for m in methods if agreed[m.label].mean() >= SURE]
        wanted = most or len(tasks) // 2 + 1
        shares = {label: float((n >= wanted).mean()) for label, n in counts.items() if sure[label] < wanted}
        unsettled = sorted((k for k, share in shares.items() if share > 1 - SURE), key=lambda k: (-shares[k], k))
        dearer = False
        if len(methods) > 1:  # whether the second needs more in ``SURE`` of the resamples, in which both are near
            a, b = (np.mean([t.cost[m.label] for t in known if m.label in t.cost], axis=0)[:-1] for m in methods[:2])
            dearer = bool((agreed[methods[1].label] & (a < b)).mean() >= SURE)
        units = {lb.unit(row) for t in known for row in t.rows.values()}
        unit = units.pop() if len(units) == 1 else ""
        return Kind(where, tuple(tasks), unit, tuple(methods), tuple(unsettled), dearer)

    def _method(self, label: str, most: int, known: Sequence[_Task]) -> Recommended:
        rows = [t.rows[label] for t in known if label in t.rows]
        rows.sort(key=lb.shown, reverse=lb.higher_is_better(rows[0]["metric"]))
        costs = [(t.cost[label][-1], t.tuning[label]) for t in known if label in t.cost]
        cost = math.exp(np.mean([log for log, _ in costs]))
        with_tuning = math.exp(np.mean([np.log(np.exp(log) + tuning) for log, tuning in costs]))
        words = dict.fromkeys(w for row in rows[:most] for w in lb.warnings(row["marks"]))
        return Recommended(label, most, lb.shown(rows[most - 1]), cost, with_tuning, tuple(words))


def _medians(values: NDArray[np.float64], drawn: NDArray[np.intp]) -> NDArray[np.float64]:
    """Medians of values (R,) at places (B, R), which stay infinite where half of the values are."""
    found, n = np.sort(values[drawn], axis=1), len(values)
    return (found[:, (n - 1) // 2] + found[:, n // 2]) / 2


def headline(kinds: Sequence[Kind]) -> Kind | None:
    """The kind that a page names first: without warnings, near on most tasks, on every one; None without any."""
    named = [k for k in kinds if k.methods]
    by = [(not k.methods[0].warnings, k.methods[0].tasks, k.on_every_task) for k in named]
    return named[by.index(max(by))] if named else next(iter(kinds), None)
