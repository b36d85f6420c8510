"""Verdicts on log Z: against the truth where a task states it, else replicates and methods against one another.

With estimates L_r, stated standard errors s_r and the truth L of a cell's replicates (without those in doubt by their own
diagnostics), 1.96 s_r about L_r should hold L in 95% of them. A cell *claims too much* when as many misses as it has are less
likely than 1%. Without a truth, sum_r (L_r - mean)^2 / s_r^2 is chi-square of R - 1 degrees of freedom: replicates *disagree*
below 1%. Two methods disagree when their means differ by more than chance allows at 1% over all pairs, the
error of a mean being the larger of that stated and that of the replicates' spread.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import stats

from parvibench.core.result import CellRecord

LEVEL, WIDTH = 0.01, 1.96


class LogZ(NamedTuple):
    """Estimates of a cell, one a replicate that is not in doubt."""

    label: str
    values: np.ndarray  # (R',)
    errors: np.ndarray  # (R',) standard errors as stated
    doubtful: int  # replicates in doubt
    replicates: int  # R

    @property
    def mean(self) -> float:
        """Mean of the estimates."""
        return float(self.values.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean: as stated or by the spread, whichever is larger."""
        n = len(self.values)
        spread = self.values.std(ddof=1) if n > 1 else 0.0
        return max(float(np.sqrt(np.mean(self.errors**2))), float(spread)) / math.sqrt(n)


def estimates(cell: CellRecord) -> LogZ | None:
    """Estimates of log Z of a cell; None without any."""
    values, errors = (cell.values.get(name) for name in ("log_z", "log_z_se"))
    if values is None or errors is None:
        return None
    doubts = cell.values.get("log_z_doubt") or [0.0] * len(values)
    rows = [(v, s, d) for v, s, d in zip(values, errors, doubts, strict=True) if v is not None and s is not None]
    sound = np.array([(v, s) for v, s, d in rows if not d and s > 0]).reshape(-1, 2)
    return LogZ(cell.label, sound[:, 0], sound[:, 1], sum(bool(d) for *_, d in rows), len(values))


#: Kinds of findings, in the order of their lines.
KINDS = {
    "doubt": "log Z is in doubt by the methods' own diagnostics, do not rely on it",
    "truth": "log Z is off by more than the stated errors explain",
    "spread": "log Z differs between replicates by more than the stated errors explain",
    "apart": "methods disagree on log Z, and annealed estimates that miss mass are too low",
}


def verdicts(tasks: Iterable[tuple[str, float | None, Iterable[CellRecord]]]) -> list[str]:
    """Sentences on the log Z of tasks, of name, true log Z or None, and cells: at most one a kind, none where all is as stated."""
    lines: dict[str, dict[str, list[str]]] = {kind: {} for kind in KINDS}
    for task, truth, cells in tasks:
        known = [found for cell in cells if (found := estimates(cell)) is not None]
        sound = [t for t in known if len(t.values)]
        doubts = (("doubt", f"{t.label} in {t.doubtful} of {t.replicates} replicates") for t in known if t.doubtful)
        for kind, text in (*doubts, *(_apart(sound) if truth is None else _from_truth(sound, truth))):
            lines[kind].setdefault(task, []).append(text)
    told = {kind: [f"{task} ({', '.join(texts)})" for task, texts in of.items()] for kind, of in lines.items()}
    return [f"{KINDS[kind]}: {'; '.join(texts)}" for kind, texts in told.items() if texts]


def _from_truth(told: Sequence[LogZ], truth: float) -> Iterable[tuple[str, str]]:
    for t in told:
        off, n = t.values - truth, len(t.values)
        misses = int((np.abs(off) > WIDTH * t.errors).sum())
        surprising = (
            np.abs(off / t.errors).max() > stats.norm.isf(LEVEL / 2)
            if n == 1
            else misses and stats.binom.sf(misses - 1, n, 0.05) < LEVEL
        )
        if surprising:
            claimed = f"{t.label} claims {np.median(t.errors):.2g} and is off by {np.median(off):+.2g}"
            yield "truth", f"{claimed}: {n - misses} of {n} intervals hold {truth:.6g}"


def _apart(told: Sequence[LogZ]) -> Iterable[tuple[str, str]]:
    for t in told:
        n = len(t.values)
        weights = 1 / t.errors**2
        mean = (weights * t.values).sum() / weights.sum()
        if n > 1 and stats.chi2.sf((weights * (t.values - mean) ** 2).sum(), n - 1) < LEVEL:
            yield "spread", f"{t.label} over {np.ptp(t.values):.2g}, claims {np.median(t.errors):.2g}"
    pairs = list(combinations(told, 2))
    for a, b in pairs:
        if abs(a.mean - b.mean) > stats.norm.isf(LEVEL / 2 / len(pairs)) * math.hypot(a.error, b.error):
            yield "apart", f"{a.label} {a.mean:.6g} ± {a.error:.2g} and {b.label} {b.mean:.6g} ± {b.error:.2g}"
