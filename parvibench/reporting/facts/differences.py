"""Comparison of two runs, cell by cell: what was done differently, then differences of the primary metric."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun, metric_values, primary_metric
from parvibench.reporting.text import comparing
from parvibench.statistics import FEWEST, holm, median_interval, p_no_better, paired_difference

from . import board as lb

_COLUMNS = (
    "task", "label", "metric", "unit", "paired", "n", "a", "b", "change", "low", "high", "scale", "p_value", "verdict", "note",
)  # fmt: skip
ALPHA = 0.05
#: Fields of a cell's record that may differ between two runs beside its specification.
_OUTCOMES = ("iterations", "score_evaluations", "effective_step", "tuned", "hardware", "metrics_key")
#: Fields of a specification that are compared elsewhere or say the same as others.
_UNSAID = frozenset({"key", "task", "settings", "budget", "replicates"})


def conditions(a: StoredRun, b: StoredRun) -> pd.DataFrame:
    """What the two runs did differently, in the cells that both have.

    Columns ``what`` (a field of the cell, ``settings.NAME``, ``budget.NAME``, or of the run's provenance), ``first``,
    ``second`` (values of the first cell that differs), ``cells`` (how many differ, of ``shared``; 0 for the run as a
    whole) and ``example`` (that cell).
    """
    facts = (pd.json_normalize({"profile": r.run.profile} | r.run.provenance) for r in (a, b))
    runs = [{str(k): v for k, v in row.iloc[0].to_dict().items()} for row in facts]
    rows = [(what, *pair, 0, 0, "") for what, *pair in _unequal(*runs) if not what.startswith("command")]
    shared = _shared(a, b)
    found: dict[str, list[tuple[Any, Any, str]]] = {}
    for x, y in shared:
        for what, first, second in _unequal(_conditions(x), _conditions(y)):
            found.setdefault(what, []).append((first, second, f"{x.label} on {x.task}"))
    rows += [(what, *all_[0][:2], len(all_), len(shared), all_[0][2]) for what, all_ in found.items()]
    return pd.DataFrame(rows, columns=["what", "first", "second", "cells", "shared", "example"])


def _conditions(cell: CellRecord) -> dict[str, Any]:
    spec = cell.spec.model_dump(mode="json")
    plain = {k: v for k, v in spec.items() if k not in _UNSAID}
    return plain | {
        **{f"settings.{k}": v for k, v in spec["settings"].items()},
        **{f"budget.{k}": v for k, v in spec["budget"].items()},
        "replicates": len(cell.spec.replicates),
        **{k: getattr(cell, k) for k in _OUTCOMES},
    }


def _unequal(x: dict[str, Any], y: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Keys whose values differ, with both as text."""
    for key in dict.fromkeys([*x, *y]):
        values = x.get(key), y.get(key)
        if values[0] != values[1]:
            first, second = (v if isinstance(v, str) else json.dumps(v, default=str) for v in values)
            yield key, first if values[0] is not None else "–", second if values[1] is not None else "–"


def _shared(a: StoredRun, b: StoredRun) -> list[tuple[CellRecord, CellRecord]]:
    others = {(c.task, c.label): c for c in b.cells}
    return [(c, others[c.task, c.label]) for c in a.cells if (c.task, c.label) in others]


def compare(a: StoredRun, b: StoredRun, metric: str | None = None) -> pd.DataFrame:
    """The second run against the first, cell by cell, by the leaderboard's statistic and test.

    Replicates of one task share their streams within a seed: with equal seeds and particles the test is paired by replicate
    (``statistics.p_no_better``, both sides), else Welch's or, where a replicate failed, the rank-sum test. Positive values are compared by
    their logarithms. A replicate that failed counts as the worst value.

    One row per cell of either run by ``metric``, by default each task's primary one, as a ratio to the floor where there is one
    (``unit`` is then ``floors``): medians ``a`` and ``b`` over all replicates; ``change`` of the mean with its 95% interval
    ``low``, ``high``, in per cent of the geometric mean (``scale`` is ``%``) or, where values are not all positive, in the
    metric's unit; NaN with a failed replicate; ``p_value`` (Holm over the table); ``verdict``: ``significantly better``,
    ``significantly worse``, ``not significantly different`` (b against a, by the metric's direction), ``significantly
    different`` where neither direction is better, ``not comparable`` with a note, ``only in the first``, ``only in the
    second``. ``InputError`` where the runs share no cell.
    """
    shared = _shared(a, b)
    if not shared:
        raise InputError(comparing.NOTHING_SHARED.format(first=a.run.id, second=b.run.id))
    rows = [_row(x, y, metric or primary_metric(a.by_task[x.task], x.task)) for x, y in shared]
    both = {(x.task, x.label) for x, _ in shared}
    for run, where in ((a, "first"), (b, "second")):
        alone = [c for c in run.cells if (c.task, c.label) not in both]
        only = comparing.ONLY_IN.format(which=where)
        rows += [_empty(c, "", only, "" if c.status is Status.OK else str(c.status)) for c in alone]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    known = frame["p_value"].notna()
    frame.loc[known, "p_value"] = holm(frame.loc[known, "p_value"].tolist())
    frame.loc[known, "verdict"] = [_verdict(row) for row in frame[known].to_dict("records")]
    return frame


def _empty(cell: CellRecord, metric: str, verdict: str, note: str) -> tuple[Any, ...]:
    return (cell.task, cell.label, metric, "", False, 0, *[math.nan] * 5, "", math.nan, verdict, note)


def _row(x: CellRecord, y: CellRecord, metric: str) -> tuple[Any, ...]:
    obstacle = _obstacle(x, y, metric)
    if obstacle:
        return _empty(x, metric, comparing.NOT_COMPARABLE, obstacle)
    known = lb.floor(x.task, metric, x.samples) if x.samples == y.samples else None
    unit, scale = ("floors", known.median) if known else (metric, 1.0)
    u, v = (np.array(metric_values(metric, c.values[metric])) / scale for c in (x, y))
    lost = [int((~np.isfinite(w)).sum()) for w in (u, v)]
    note = comparing.LOST.format(first=lost[0], second=lost[1]) if any(lost) else ""
    medians = [median_interval(list(w))[0] for w in (u, v)]
    paired = x.spec.seed == y.spec.seed and x.particles == y.particles
    sign = -1 if lb.higher_is_better(metric) else 1
    positive = bool((u > 0).all() and (v > 0).all())
    if positive:
        u, v = np.log(u), np.log(v)
    n, change, p = _test(u, v, sign, lb.overlap(x.task) if paired else None)
    if any(lost):
        change = [math.nan] * 3
    elif positive:
        change = [100 * math.expm1(c) for c in change]
    return (x.task, x.label, metric, unit, paired, n, *medians, *change, "%" if positive else unit, p, "", note)


def _test(
    u: NDArray[np.float64], v: NDArray[np.float64], sign: int, share: float | None
) -> tuple[int, list[float], float]:
    """Replicates compared, mean of v - u with its 95% interval, and the two-sided p-value; unpaired if ``share`` is None."""
    n = min(len(u), len(v))
    if share is not None:
        u, v = u[:n], v[:n]
        change = paired_difference(v, u, overlap=share)[1:4]
        p = min(1.0, 2 * p_no_better(sign * u, sign * v, share), 2 * p_no_better(sign * v, sign * u, share))
        return n, list(change), p if n >= FEWEST else math.nan
    if not (np.isfinite(u).all() and np.isfinite(v).all()):
        return n, [math.nan] * 3, float(stats.mannwhitneyu(u, v).pvalue) if n >= FEWEST else math.nan
    difference = float(v.mean() - u.mean())
    if n < FEWEST or not (u.std() or v.std()):
        return n, [difference, math.nan, math.nan], math.nan
    test = stats.ttest_ind(v, u, equal_var=False)
    return n, [difference, *map(float, test.confidence_interval(0.95))], float(test.pvalue)


def _obstacle(x: CellRecord, y: CellRecord, metric: str) -> str:
    """Why two cells are not comparable; empty where they are."""
    for which, c in (("the first", x), ("the second", y)):
        if c.status is not Status.OK:
            return comparing.FAILED.format(which=which, status=c.status, reason=c.reason)[:300]
        if metric not in c.values:
            return comparing.NOT_MEASURED.format(which=which, metric=metric or "metric")
    if x.spec.task_version != y.spec.task_version:
        return comparing.OTHER_TASK.format(first=x.spec.task_version, second=y.spec.task_version)
    return ""


def _verdict(row: lb.Row) -> str:
    if row["p_value"] > ALPHA:
        return comparing.SAME
    if registry.direction(str(row["metric"])) == "neutral":
        return comparing.DIFFERENT
    up = row["change"] > 0 if math.isfinite(row["change"]) else row["b"] > row["a"]
    return comparing.BETTER if up == lb.higher_is_better(str(row["metric"])) else comparing.WORSE
