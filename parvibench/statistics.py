"""Statistics of replicates: intervals, paired differences, ranks, aggregates over tasks, runtime profiles.

Aggregates over tasks come with percentile bootstrap intervals that resample the replicates within each task (Agarwal
et al. 2021, arXiv:2108.13264): they hold for these tasks, not for others. Percentile intervals of few replicates are
too short, and are expanded (Hesterberg 2015, The American Statistician 69:371-386, Section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy import special

if TYPE_CHECKING:
    import pandas as pd

#: Bootstrap resamples of an interval of an aggregate.
RESAMPLES = 2000
#: Times the ratio to the floor of methods that pass for exact draws; and the largest standard deviation of the logarithms of
#: a task's replicates, of any method, up to which that leaves a method out.
FAR, FAR_SPREAD = 5.0, 0.5
#: Fewest replicates for a difference: with two, one difference of the spread decides.
FEWEST = 3
#: Fewest pairs for a bootstrap interval of the mean: with fewer, resampling estimates the spread too poorly.
BOOTSTRAP_PAIRS = 30


class PairedDifference(NamedTuple):
    """Differences a - b over shared replicates."""

    n: int  #: pairs in which both are finite
    mean: float  #: of the differences, NaN without pairs
    #: 95% interval of the mean: by Student's t, from 30 pairs on by the bootstrap (BCa); NaN below two pairs
    low: float
    high: float  #: its upper end


class Aggregate(NamedTuple):
    """A statistic over tasks."""

    value: float  #: of the data
    low: float  #: 95% stratified bootstrap interval
    high: float  #: its upper end


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median with a distribution-free 95% interval from order statistics: median, low, high; NaN for no values.

    The interval runs from the k-th smallest to the k-th largest value, with the largest k for which
    ``P(k <= Binomial(R, 1/2) <= R - k) >= 95%``: exact for any continuous law, and conservative. Below
    six replicates no interval reaches 95%: it is then the range, with coverage 1 - 2^(1 - R) only
    (94% at 5, 87.5% at 4, 75% at 3, 50% at 2). Of ``values``, one per replicate, +inf (a failure) sorts last, and NaN
    counts as +inf; an even number of values with +inf in the upper middle has the median +inf.

    >>> median_interval([3, 1, 2, 5, 4, math.inf])
    (3.5, 1.0, inf)
    """
    x = sorted(math.inf if math.isnan(v) else float(v) for v in values)  # some ten numbers: faster than as an array
    n = len(x)
    if n == 0:
        return math.nan, math.nan, math.nan
    k = _order_statistic(n)
    low, high = x[(n - 1) // 2], x[n // 2]
    median = low if low == high else low / 2 + high / 2
    return median, x[k - 1], x[n - k]


@cache
def _order_statistic(n: int) -> int:
    """The largest k >= 1 with 2 P(Binomial(n, 1/2) < k) <= 5%."""
    return max(1, int(scipy.stats.binom.ppf(0.025, n, 0.5)))


def paired_difference(a: ArrayLike, b: ArrayLike, *, overlap: float = 0.0) -> PairedDifference:
    """Compare two algorithms on the replicates they share.

    Args:
        a: values of the first, one per replicate.
        b: values of the second, same replicates in the same order; pairs with a non-finite value drop out.
        overlap: 0 for independent replicates. Where they are random splits of one data set, test rows over training
            rows: training sets overlap, and the mean's variance is taken as (1/n + overlap) s^2 (Nadeau & Bengio
            2003, Machine Learning 52:239-281, Eq. 8), by Student's t.

    >>> paired_difference([2.0, 3.0, 5.0], [1.0, 1.0, 2.0]).mean
    2.0
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    both = np.isfinite(x) & np.isfinite(y)
    d = x[both] - y[both]
    n = len(d)
    if n < 2:
        return PairedDifference(n, float(d.mean()) if n else math.nan, math.nan, math.nan)
    mean, error = float(d.mean()), _standard_error(d, overlap)
    if n >= BOOTSTRAP_PAIRS and error > 0 and overlap == 0:
        rng = np.random.default_rng(0)
        low, high = scipy.stats.bootstrap((d,), np.mean, n_resamples=RESAMPLES, rng=rng).confidence_interval
    else:
        half = float(scipy.stats.t.ppf(0.975, n - 1)) * error
        low, high = mean - half, mean + half
    return PairedDifference(n, mean, float(low), float(high))


def _standard_error(d: NDArray[np.float64], overlap: float) -> float:
    return float(d.std(ddof=1)) * math.sqrt(1 / len(d) + overlap)


def p_no_better(a: ArrayLike, b: ArrayLike, overlap: float = 0.0) -> float:
    """One-sided p-value of a being no lower than b, paired by replicate.

    Student's t, or the signed-rank test where a replicate of either failed (NaN, +inf): a failure loses by more than any
    finite difference. ``overlap`` as in ``paired_difference``.
    """
    x, y = (np.where(np.isnan(v), math.inf, v) for v in (np.asarray(a, dtype=float), np.asarray(b, dtype=float)))
    with np.errstate(invalid="ignore"):
        d = np.nan_to_num(x - y, nan=0.0, posinf=math.inf, neginf=-math.inf)
    if not np.isfinite(d).all():
        largest = 1 + 2 * max((abs(v) for v in d[np.isfinite(d)]), default=0.0)
        return float(scipy.stats.wilcoxon(np.clip(d, -largest, largest), alternative="less").pvalue)
    if len(d) < 2:
        return 1.0
    error = _standard_error(d, overlap)
    return float(scipy.stats.t.cdf(d.mean() / error, len(d) - 1)) if error > 0 else float(d.mean() >= 0)


class Comparisons(NamedTuple):
    """All pairs of methods compared on several tasks."""

    better: list[NDArray[np.bool_]]  #: of every task, (methods, methods): whether the row's is significantly better
    #: of every task, (methods,): whether significantly more replicates failed than of the others
    unreliable: list[NDArray[np.bool_]]
    told: list[NDArray[np.bool_]]  #: of every task, (methods,): whether significantly worse than exact draws
    #: of every task, (methods,): standard deviation of logarithms; infinite where unknown
    spread: list[NDArray[np.float64]]
    pairs: int  #: comparisons of the family

    def unbeaten(self, task: int) -> NDArray[np.bool_]:
        """Methods than which no other is significantly better: on every task at least one."""
        return np.asarray(~(self.better[task].any(0) | self.unreliable[task]))

    def best(self, task: int, ratios: ArrayLike, passing: ArrayLike) -> NDArray[np.bool_]:
        """The methods of ``unbeaten``, without those that are ``FAR`` from all of them that pass for exact draws.

        Left out are only methods that are significantly worse than exact draws, and none where replicates of one of
        ``unbeaten`` spread by more than ``FAR_SPREAD``, or failed: there, of equal methods one may pass and another not
        (``tests/studies/interval_coverage.py``). ``ratios`` are medians over the floor, (methods,), NaN without one;
        ``passing``: whether each method is indistinguishable from exact draws, (methods,).
        """
        ratio, unbeaten = np.asarray(ratios, dtype=float), self.unbeaten(task)
        passes = ratio[unbeaten & np.asarray(passing, dtype=bool)]
        known = len(passes) > 0 and bool(self.spread[task][unbeaten].max() <= FAR_SPREAD)
        return np.asarray(unbeaten & ~(self.told[task] & (ratio > FAR * passes.max(initial=0.0)) & known))


def all_pairs(
    tasks: Sequence[ArrayLike], overlaps: Sequence[float], exact: Sequence[ArrayLike] = (), alpha: float = 0.05
) -> Comparisons:
    """Compare all pairs of methods on every task, paired by replicate, with one level for the whole family.

    Moderated t tests (Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3:3): few replicates hardly show a spread, so the variance
    of a pair's differences is drawn towards those of the task's other pairs. Two-sided, Holm over all pairs of all tasks,
    over the comparisons with exact draws, and, on tasks with failures, over a test of every method's number of failures
    (``p_loses_more``). On a task without values at or below zero logarithms are compared; in these tests a failure counts
    as the worst finite value of all methods. Better is a method whose median is lower, too, failures being infinite, and
    that does not fail significantly more often than the others: the methods' order is one.

    ``tasks`` hold (methods, replicates) each, lower is better, NaN and +inf are failures; ``overlaps`` of each task as in
    ``paired_difference``; ``exact``: of each task, (methods,) p-values of being no worse than exact draws, NaN where there is
    none. ``alpha``: chance that one difference or more of the family is called significant although the methods are equal.
    """
    raw = [np.asarray(x, dtype=float) for x in tasks]
    values = []
    for x in raw:
        finite = np.isfinite(x)
        capped = np.where(finite, x, x[finite].max(initial=-math.inf))
        values.append(np.log(capped) if (capped > 0).all() else capped)
    found = [_moderated(x, overlap) for x, overlap in zip(values, overlaps, strict=True)]
    known = [np.asarray(p, dtype=float) for p in exact or [np.full(len(x), math.nan) for x in values]]
    known = [np.stack([p_loses_more(~np.isfinite(x)), p]) for x, p in zip(raw, known, strict=True)]
    family = np.concatenate([[], *(p for _, p in found), *(p[~np.isnan(p)] for p in known)])
    significant = np.asarray(holm(family.tolist())) <= alpha
    limit = float(family[significant].max(initial=-math.inf))
    unreliable, told = ([p[i] <= limit for p in known] for i in (0, 1))
    *sure, _ = np.split(significant, np.cumsum([len(p) for _, p in found]))
    better = [np.zeros((len(x), len(x)), dtype=bool) for x in values]
    for beats, x, (mean, _), clear, often in zip(better, raw, found, sure, unreliable, strict=True):
        i, j = np.triu_indices(len(beats), 1)
        beats[i, j], beats[j, i] = clear & (mean < 0), clear & (mean > 0)
        medians = np.array([median_interval(row)[0] for row in x.tolist()])
        beats &= (medians[:, None] < medians) & ~often[:, None]
    return Comparisons(better, unreliable, told, [_spread(x) for x in raw], len(family))


def p_loses_more(failed: ArrayLike) -> NDArray[np.float64]:
    """One-sided p-values of the methods' failing no more often than the others together, (methods,).

    Exact, given how many methods failed in each replicate: if all are alike, each is one of them with equal chances, so that
    a method's number of failures is a sum of independent Bernoulli variables. NaN without failures; ``failed`` is (methods, replicates).

    >>> p_loses_more([[True, True, False], [False, False, False]])
    array([0.25, 1.  ])
    """
    lost = np.asarray(failed, dtype=bool)
    if not lost.any():
        return np.full(len(lost), math.nan)
    law = np.ones(1)
    for share in lost.mean(0):
        law = np.convolve(law, [1 - share, share])
    return np.minimum(1.0, law[::-1].cumsum()[::-1][lost.sum(1)])


def _spread(x: NDArray[np.float64]) -> NDArray[np.float64]:
    if x.shape[1] < FEWEST or not (x > 0).all():
        return np.full(len(x), math.inf)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.log(x).std(1, ddof=1), nan=math.inf)


def _moderated(x: NDArray[np.float64], overlap: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean differences of all pairs of rows and their p-values; 1 where there is no spread to judge by."""
    k, n = x.shape
    i, j = np.triu_indices(k, 1)
    d = x[i] - x[j]
    mean = d.mean(1) if n else np.zeros(len(i))
    if n < FEWEST or not len(d):
        return mean, np.ones(len(i))
    variance = d.var(1, ddof=1)
    some = variance > 1e-24 * np.square(x).mean()
    freedom, prior = _prior_variance(variance[some], n - 1)
    if math.isinf(freedom):
        variance, total = np.full_like(variance, prior), (k - 1) * (n - 1)
    else:
        variance = (freedom * prior + (n - 1) * variance) / (freedom + n - 1)
        total = min(freedom + n - 1, (k - 1) * (n - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * scipy.stats.t.sf(abs(mean) / np.sqrt(variance * (1 / n + overlap)), total)
    return mean, np.where(mean == 0, 1.0, p)


def _prior_variance(variances: NDArray[np.float64], freedom: int) -> tuple[float, float]:
    """Degrees of freedom and scale of the variances' inverse chi-squared prior, by moments of their logarithms (Smyth)."""
    if len(variances) < 2:
        return 0.0, 0.0
    e = np.log(variances) - special.digamma(freedom / 2) + math.log(freedom / 2)
    excess = float(e.var(ddof=1) - special.polygamma(1, freedom / 2))
    if excess <= 1e-6:
        return math.inf, float(np.exp(e.mean()))
    half = scipy.optimize.brentq(lambda v: special.polygamma(1, v) - excess, 1e-6, 2 / excess + 2)
    return 2 * half, float(np.exp(e.mean() + special.digamma(half) - math.log(half)))


def holm(p_values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Holm's adjusted p-values, in the order given: reject those at most alpha (Holm 1979, Scand. J. Stat. 6).

    ``weights``: share of the level that each is given, up to a factor (Holm's Section 3); default equal ones.

    >>> holm([0.01, 0.04, 0.5])
    [0.03, 0.08, 0.5]
    >>> holm([0.02, 0.04], weights=[1, 3])
    [0.05333333333333334, 0.05333333333333334]
    """
    p = np.asarray(p_values, dtype=float)
    weight = np.ones(len(p)) if weights is None else np.asarray(weights, dtype=float)
    order = np.argsort(p / weight)
    p, weight = p[order], weight[order]
    remaining = weight[::-1].cumsum()[::-1]
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p / weight * remaining), 1.0)
    return [float(v) for v in adjusted]


def interquartile_mean(values: Sequence[ArrayLike], rng: np.random.Generator) -> Aggregate:
    """Mean of the middle half of all replicates of all tasks, with a stratified bootstrap interval.

    Less noisy than the median, and insensitive to a quarter of outliers on either side (Agarwal et al. 2021,
    arXiv:2108.13264, Section 4.3). The tasks' values, one array of replicates each, must be on one scale, such as ratios to
    the floor; +inf is a failure, NaN counts as +inf. +inf, or an interval up to +inf, where more than a quarter failed.
    """
    tasks = [np.where(np.isnan(t), math.inf, t) for t in (np.asarray(v, dtype=float) for v in values)]
    drawn = np.concatenate([x[rng.integers(len(x), size=(RESAMPLES, len(x)))] for x in tasks], axis=1)
    tail = _tail([len(x) for x in tasks])
    # Ends are order statistics, which may be infinite.
    ends = np.quantile(_middle_half(drawn), [tail, 1 - tail], method="inverted_cdf")
    return Aggregate(float(_middle_half(np.concatenate(tasks))), *map(float, ends))


def _middle_half(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """SciPy's ``trim_mean(x, 0.25, axis=-1)`` without its checks, which take half of the time."""
    n = x.shape[-1]
    cut = n // 4
    return np.partition(x, (cut, n - cut - 1))[..., cut : n - cut].mean(-1)


def hitting_times(values: ArrayLike, spent: ArrayLike, targets: ArrayLike, replicates: int) -> NDArray[np.float64]:
    """When each replicate of one algorithm first reached each target.

    A target is reached at the first checkpoint whose value is at most that, so times are as coarse as checkpoints. Of
    ``values`` of a metric of which lower is better and what was ``spent`` until then, (C, R) at C checkpoints, NaN where a
    replicate had stopped: (replicates, T), +inf where one of the ``targets`` (T,) was not reached, as by replicates without values.

    >>> hitting_times([[3.0, 9.0], [1.0, 9.0]], [[10, 10], [20, 20]], [4.0, 2.0], replicates=2)
    array([[10., 20.],
           [inf, inf]])
    """
    found, goals = np.asarray(values, dtype=float), np.asarray(targets, dtype=float)
    times = np.full((replicates, len(goals)), math.inf)
    when = np.where(found[:, :, None] <= goals, np.asarray(spent, dtype=float)[:, :, None], math.inf)
    times[: found.shape[1]] = when.min(0, initial=math.inf)
    return times


def runtime_profile(times: Mapping[str, NDArray[np.float64]], budgets: ArrayLike, seed: int) -> pd.DataFrame:
    """Share of (task, replicate, target) triples reached within a budget: a runtime-to-target profile.

    Every task has the same weight; targets never reached stay in the denominator (Hansen et al. 2021,
    arXiv:1603.08785, "runtime distributions"). ``times``: task -> those of ``hitting_times``, (replicates, targets). One row
    per budget, with columns ``budget``, ``share``, ``low`` and ``high`` (95% stratified bootstrap, pointwise); methods with the
    same numbers of replicates share the resamples of one seed.
    """
    at = np.asarray(budgets, dtype=float)
    reached = [(t[:, :, None] <= at).mean(1) for t in times.values()]  # of every task, (replicates, budgets)
    share = np.mean([r.mean(0) for r in reached], axis=0)
    counts = tuple(map(len, reached))
    resamples, tail = _weights(counts, seed) @ np.concatenate(reached), _tail(counts)
    low, high = np.quantile(resamples, [tail, 1 - tail], axis=0)
    import pandas as pd

    return pd.DataFrame({"budget": at, "share": share, "low": low, "high": high})


@lru_cache(maxsize=8)
def _weights(counts: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """(RESAMPLES, sum of counts) weights of each task's replicates drawn with replacement, for a mean over tasks."""
    rng = np.random.default_rng(seed)
    drawn = [rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n for n in counts]
    return np.concatenate(drawn, axis=1) / len(counts)


def _tail(counts: Sequence[int]) -> float:
    """Share to cut off at either end of a bootstrap distribution for a 95% interval.

    The bootstrap's variance is (n - 1) / n of the right one, and has sum(n - 1) degrees of freedom only.
    """
    freedom = sum(n - 1 for n in counts)
    if freedom < 1:
        return 0.0
    shrinkage = float(np.mean([(n - 1) / n for n in counts]))
    return float(scipy.stats.norm.sf(scipy.stats.t.ppf(0.975, freedom) / math.sqrt(shrinkage)))
