"""Does a recorded cell agree with runs of the same method here? Comparisons behind ``verify``.

Where hardware, platform and PyTorch are those of the record, every number must repeat: samples, metrics, cost, curve and
divergence of a replicate. Elsewhere rounding leads chains along other paths, and only the law of the replicates can be
compared: ``law_p_value`` tests the recorded replicates against fresh ones.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from parvibench.core.result import CellRecord, Status

#: Metrics of time and memory: they do not repeat, and nothing about them can be verified.
UNREPEATABLE = frozenset({"seconds", "peak_memory", "ess_per_second"})
#: Relative difference allowed to a metric that is computed again from the same numbers on the same machine.
TOLERANCE = 1e-6
#: Random relabellings behind a p-value.
_RELABELLINGS = 20_000
_COUNTED = ("iteration", "score_evaluations")

#: Name of an observed number -> its value by replicate id; infinite where a replicate has none.
Observed = dict[str, dict[int, float]]


def contradictions(record: CellRecord, curve: pd.DataFrame) -> list[str]:
    """Where the parts of one stored cell contradict each other, whoever made it; nothing is run.

    The curve's last checkpoint, the values, the cost and the list of diverged replicates tell the same story in
    every cell that the harness wrote.
    """
    ids = record.spec.replicates
    found = []
    if record.status is Status.DIVERGED and len(record.diverged) != len(ids):
        found.append(f"diverged, with {len(record.diverged)} of {len(ids)} replicates listed")
    if record.status is Status.OK and ids and len(record.diverged) == len(ids):
        found.append("ok, with all replicates diverged")
    if record.n_diverged != len(record.diverged) or not record.diverged.keys() <= set(ids):
        found.append(f"n_diverged is {record.n_diverged}, listed are {len(record.diverged)}")
    found += [
        f"{metric}: {len(v)} values of {len(ids)} replicates"
        for metric, v in record.values.items()
        if len(v) != len(ids)
    ]
    if found or curve.empty:
        return found
    last = curve[curve["checkpoint"] == curve.groupby("replicate")["checkpoint"].transform("max")]
    for name, recorded in (("iteration", record.iterations), ("score_evaluations", record.score_evaluations)):
        if not math.isclose(float(last[name].max()), recorded, rel_tol=TOLERANCE):
            found.append(f"{name} ends at {last[name].max():g} in the curve, recorded {recorded:g}")
    values = {(m, r): v for m, r, v in zip(last["metric"], last["replicate"], last["value"], strict=True)}
    for metric, per_replicate in record.values.items():
        pairs = [(values[metric, r], v) for r, v in zip(ids, per_replicate, strict=True) if (metric, r) in values]
        if bad := [(a, b) for a, b in pairs if not _same(a, b)]:
            found.append(f"{metric} ends at {bad[0][0]:.6g} in the curve, recorded {bad[0][1]}")
    return found


def _same(a: float | None, b: float | None) -> bool:
    """Whether two numbers are one up to rounding; what is not finite is one value."""
    first, second = (x if x is not None and math.isfinite(x) else None for x in (a, b))
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=1e-12)


def observed(record: CellRecord, curve: pd.DataFrame) -> Observed:
    """All that is recorded of each replicate and does not depend on the clock."""
    ids = record.spec.replicates
    found: Observed = {"diverged": {r: float(r in record.diverged) for r in ids}}
    for metric, values in record.values.items():
        if metric not in UNREPEATABLE:
            found[metric] = {r: math.inf if v is None else v for r, v in zip(ids, values, strict=True)}
    rows: Any = curve.itertuples(index=False)
    for row in rows:
        if row.metric in UNREPEATABLE:
            continue
        at = f"at checkpoint {row.checkpoint}"
        found.setdefault(f"{row.metric} {at}", {})[row.replicate] = row.value if math.isfinite(row.value) else math.inf
        for name in _COUNTED:
            found.setdefault(f"{name} {at}", {})[row.replicate] = float(getattr(row, name))
    return found


def differences(recorded: Observed, again: Observed, replicate: int) -> list[str]:
    """What a rerun on the same machine does not repeat of a replicate."""
    found = []
    for name in {**recorded, **again}:
        old, new = (side.get(name, {}).get(replicate) for side in (recorded, again))
        if old is None and new is None:
            continue
        if old is None or new is None:
            found.append(f"{name} is missing in the {'record' if old is None else 'rerun'}")
        elif not _same(old, new):
            found.append(f"{name} is {new:.6g} in the rerun, recorded {old:.6g}")
    return found


def fresh_runs(replicates: int) -> int:
    """Fresh runs of every replicate that the test of a cell needs; 0 where no number would decide."""
    needed = max(math.ceil(2_000 ** (1 / replicates)) - 1, math.ceil(30 / replicates)) if replicates > 1 else 0
    return needed if needed <= 20 else 0


def law_p_value(recorded: Observed, fresh: Sequence[Observed], rng: np.random.Generator) -> tuple[float, str]:
    """p-value that the recorded replicates follow the law of the fresh ones, and a sentence on what differs most.

    Every replicate has one recorded run and ``len(fresh)`` fresh ones under other seeds, which share its data split. If
    the record is honest each of these is equally likely to be the recorded one, replicate by replicate. The statistic is
    the largest standardised sum of normal scores over all observed numbers; its law under relabelling accounts for
    their number and dependence (Westfall and Young 1993, Resampling-Based Multiple Testing, Section 2.3).
    """
    ids = sorted(recorded["diverged"])
    names, scores = [], []
    for name in recorded:
        runs = [recorded, *fresh]
        if any(set(run.get(name, {})) != set(ids) for run in runs):
            continue
        values = np.array([[run[name][r] for run in runs] for r in ids])
        centred = _normal_scores(values)
        if centred is not None:
            names.append(name)
            scores.append(centred)
    if not names:
        return 1.0, ""
    table = np.stack(scores)  # (numbers, R, 1 + fresh), variance 1 of every sum
    statistic = np.abs(table[:, :, 0].sum(1))
    picked = rng.integers(table.shape[2], size=(_RELABELLINGS, len(ids)))
    largest = np.zeros(_RELABELLINGS)
    for number in table:
        largest = np.maximum(largest, np.abs(number[np.arange(len(ids)), picked].sum(1)))
    worst = int(statistic.argmax())
    p = (1 + np.count_nonzero(largest >= statistic[worst] - 1e-9)) / (1 + _RELABELLINGS)
    name = names[worst]
    old = np.median([recorded[name][r] for r in ids])
    new = np.median([run[name][r] for run in fresh for r in ids])
    return float(p), f"{name}: median {new:.4g} in {len(fresh) * len(ids)} reruns, {old:.4g} recorded"


def _normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Normal scores (R, K) of all values, centred by row and scaled so that a sum over rows of one each has variance 1."""
    ranks = stats.rankdata(np.where(np.isnan(values), np.inf, values)).reshape(values.shape)
    scores = stats.norm.ppf(ranks / (values.size + 1))
    scores -= scores.mean(1, keepdims=True)
    variance = (scores**2).mean(1).sum()
    return None if variance < 1e-12 else scores / math.sqrt(variance)
