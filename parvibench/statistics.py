"""Turning replicates into statements: intervals of medians, paired differences, average ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class PairedDifference(NamedTuple):
    """Differences a - b over shared replicates.

    Attributes:
        n: pairs in which both are finite.
        mean: of the differences, NaN without pairs.
        low: 95% interval of the mean by Student's t, NaN below two pairs.
        high: its upper end.
        p_t: two-sided p-value of the paired t test.
        p_wilcoxon: two-sided p-value of the signed-rank test.
    """

    n: int
    mean: float
    low: float
    high: float
    p_t: float
    p_wilcoxon: float


class AverageRanks(NamedTuple):
    """Ranks of algorithms over tasks, 1 the best.

    Attributes:
        ranks: one average per algorithm.
        p_value: of Friedman's test that all algorithms are alike; NaN below three algorithms or two tasks.
    """

    ranks: list[float]
    p_value: float


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Median with a distribution-free interval from order statistics.

    The interval runs from the k-th smallest to the k-th largest value, with the largest k for which
    ``P(k <= Binomial(R, 1/2) <= R - k) >= level``: exact for any continuous law, and conservative. Below
    six replicates no interval reaches 95%: it is then the range, with coverage 1 - 2^(1 - R) only
    (94% at 5, 87.5% at 4, 75% at 3, 50% at 2).

    Args:
        values: one per replicate; +inf (a failure) sorts last, NaN counts as +inf.
        level: coverage wanted, in (0, 1).

    Returns:
        Median, low, high; NaN for no values. An even number of values with +inf in the upper middle has
        the median +inf.
    """
    x = np.sort(np.where(np.isnan(v := np.asarray(values, dtype=float)), math.inf, v))
    n = len(x)
    if n == 0:
        return math.nan, math.nan, math.nan
    k = _order_statistic(n, level)
    low, high = x[(n - 1) // 2], x[n // 2]
    median = float(low) if low == high else float(low / 2 + high / 2)
    return median, float(x[k - 1]), float(x[n - k])


@cache
def _order_statistic(n: int, level: float) -> int:
    """The largest k >= 1 with 2 P(Binomial(n, 1/2) < k) <= 1 - level."""
    k = 1
    while k < (n + 1) // 2 and 2 * stats.binom.cdf(k, n, 0.5) <= 1 - level:
        k += 1
    return k


def paired_difference(a: ArrayLike, b: ArrayLike) -> PairedDifference:
    """Compare two algorithms on the replicates they share.

    Args:
        a: values of the first, one per replicate.
        b: values of the second, same replicates in the same order; pairs with a non-finite value drop out.

    Raises:
        ValueError: lengths differ.
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"paired values need one length, got shapes {x.shape} and {y.shape}")
    d = (x - y)[np.isfinite(x) & np.isfinite(y)]
    n = len(d)
    if n < 2:
        return PairedDifference(n, float(d.mean()) if n else math.nan, *[math.nan] * 4)
    mean, error = float(d.mean()), float(d.std(ddof=1)) / math.sqrt(n)
    # Constant differences leave no error to divide by.
    p_t = float(2 * stats.t.sf(abs(mean) / error, n - 1)) if error > 0 else float(mean == 0)
    half = float(stats.t.ppf(0.975, n - 1)) * error
    p_wilcoxon = float(stats.wilcoxon(d).pvalue) if np.any(d) else 1.0
    return PairedDifference(n, mean, mean - half, mean + half, p_t, p_wilcoxon)


def average_ranks(values: ArrayLike) -> AverageRanks:
    """Average ranks over tasks and Friedman's test (Demsar 2006, JMLR 7:1-30).

    Args:
        values: (tasks, algorithms), lower is better; NaN and +inf rank last, ties share their ranks. Rows
            are tasks, never replicates.
    """
    x = np.asarray(values, dtype=float)
    if x.ndim != 2:
        raise ValueError(f"expected a table (tasks, algorithms), got shape {x.shape}")
    ranks = stats.rankdata(np.where(np.isnan(x), math.inf, x), axis=1)
    n_tasks, n_algorithms = ranks.shape
    p_value = math.nan
    if n_tasks >= 2 and n_algorithms >= 3:
        p_value = 1.0 if np.all(ranks == ranks[:, :1]) else float(stats.friedmanchisquare(*ranks.T).pvalue)
    return AverageRanks([float(r) for r in ranks.mean(0)] if n_tasks else [], p_value)
