"""Noise floors, and tests of samples against them.

A floor is the distribution of a metric between n independent exact draws and the shipped reference. A value within it
is consistent with exact draws; one beyond it is evidence against the samples.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import ArrayLike, NDArray

from parvibench.core import registry
from parvibench.core.errors import UnsupportedError
from parvibench.core.reference import Floor, Floored, Reference
from parvibench.core.target import Target
from parvibench.core.task import Task
from parvibench.statistics import holm

#: Simulated values per metric of a verdict: each can be rejected alone, by Holm, with the weights below.
SETS_A_METRIC = 40
ALPHA = 0.05
#: Metrics with one of these needs have floors: they compare samples with the target.
JUDGED = ("reference", "target", "moments", "modes", "unmixing")
#: Sample sizes that verdicts are given at; the last where there are enough draws.
SIZES = (50, 100, 200, 500, 1000, 2000)
#: Weights in the verdict, one for all others. Wrong weights of modes, and missing tails, show in one metric only.
WEIGHTS = {"mode_weight_tv": 8.0, "tail_error": 3.0}
#: Without these of a task's metrics, and one of the second group, nothing is called indistinguishable.
NEEDED = ("mmd2", "sliced_w2")
NEEDED_ONE = ("kl_knn", "ks_marginal")

#: Called with a description of the work, how much of it is done, and how much there is.
Notify = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""


def judged_metrics() -> list[str]:
    """All metrics that have floors."""
    return [row.name for row in registry.metrics().values() if row.need in JUDGED]


def verdict_metrics(task: Task) -> list[str]:
    """The metrics of a task that its verdict rests on by default."""
    return [name for name in task.metrics if registry.metrics()[name].need in JUDGED]


def density_of(task: Task) -> Target | None:
    """The density of replicate 0, or None: draws may be all that is known."""
    try:
        return task.target([0], "cpu", torch.float64)
    except UnsupportedError:
        return None


class FloorTests(NamedTuple):
    """Tests of samples against floors."""

    floors: dict[str, Floor]  #: of every metric that has one at the samples' size
    p_values: dict[str, float]  #: of the same metrics
    adjusted: dict[str, float]  #: the p-values adjusted by Holm with the weights of ``WEIGHTS``
    #: ``distinguishable`` when any is at most 5%; else ``not applicable`` where metrics are missing, ``too few replicates`` where one
    #: could not be rejected alone by the worst of values, or ``indistinguishable``; one set of samples is always judged
    verdict: str
    reason: str = ""  #: of the verdicts that are neither; else empty


def verdict_sizes(reference: Floored | None) -> tuple[int, ...]:
    """Sizes that verdicts are given at: ``SIZES``, and that of the samples a reference was made for."""
    made_for = () if reference is None else reference.certificate.get("made_for", ())
    return tuple(sorted({*SIZES, *made_for}))


def judged_size(n: int, reference: Floored | None) -> int | None:
    """The largest of the ``verdict_sizes``, at most n, that the reference has floors for; None without one."""
    metrics = () if reference is None else reference.floors.keys() - {"sliced_w2"}
    return max(sizes_judged(n, reference, metrics).values(), default=None)


def sizes_judged(n: int, reference: Floored | None, metrics: Iterable[str]) -> dict[str, int]:
    """The largest of the ``verdict_sizes``, at most n, at which each metric has a floor; others are left out."""
    tables = {} if reference is None else reference.floors
    sizes = [size for size in verdict_sizes(reference) if size <= n]
    known = {m: max((size for size in sizes if size in tables.get(m, {})), default=0) for m in metrics}
    return {metric: size for metric, size in known.items() if size}


def floor_tests(
    values: Mapping[str, ArrayLike],
    n: int,
    reference: Floored | None,
    metrics: Sequence[str],
    sizes: Mapping[str, int] | None = None,
) -> FloorTests:
    """Test every metric that has a floor at this sample size, and combine them.

    ``values``: metric -> values of the replicates of n samples, as for ``p_value``; without floors of this very size (see
    ``judged_size``), or a reference, nothing is tested. Of the task's ``metrics`` some must be among the values; ``sizes`` are of
    those whose values are of fewer samples, see ``sizes_judged``.
    """
    smaller = sizes or {}
    floors: dict[str, Floor] = {}
    if reference is not None and judged_size(n, reference) == n:
        for metric in values:
            size = smaller.get(metric, n)
            if (found := reference.floors.get(metric, {}).get(size)) is not None:
                floors[metric] = Floor(size, found)
    p_values = {metric: p_value(metric, values[metric], floor) for metric, floor in floors.items()}
    weights = [WEIGHTS.get(metric, 1.0) for metric in floors]
    adjusted = dict(zip(floors, holm(list(p_values.values()), weights), strict=True))
    verdict, reason = "indistinguishable", ""
    if not floors:
        known = [s for s in verdict_sizes(reference) if judged_size(s, reference) == s]
        elsewhere = f"floors are known at n = {', '.join(map(str, known))}, not at {n}"
        fewer = f"no floors for {n} samples, fewer than {min(SIZES)}" if n < min(SIZES) else "no floors"
        verdict, reason = "not applicable", elsewhere if known and n not in known else fewer
    elif min(adjusted.values()) <= ALPHA:
        verdict = "distinguishable"
    elif lacking := _lacking(floors, metrics) if isinstance(reference, Reference) else "":
        verdict, reason = "not applicable", f"not judged by {lacking}"
    elif hopeless := _never_rejected(values, floors, weights):
        verdict, reason = "too few replicates", f"{hopeless} could not be rejected, however bad its values"
    return FloorTests(floors, p_values, adjusted, verdict, reason)


def _lacking(floors: Mapping[str, Floor], metrics: Sequence[str]) -> str:
    """Metrics without which samples are not called indistinguishable, as far as the task names them."""
    lacking = [metric for metric in NEEDED if metric in metrics and metric not in floors]
    one = [metric for metric in NEEDED_ONE if metric in metrics]
    return " and ".join([*lacking, *([" or ".join(one)] if one and not set(one) & set(floors) else [])])


def _never_rejected(values: Mapping[str, ArrayLike], floors: Mapping[str, Floor], weights: Sequence[float]) -> str:
    """A metric that several replicates worse than all exact draws would not reject alone; empty without one."""
    for (metric, floor), weight in zip(floors.items(), weights, strict=True):
        worst = np.full(np.size(values[metric]), math.nan)
        if len(worst) > 1 and p_value(metric, worst, floor) * sum(weights) / weight > ALPHA:
            return metric
    return ""


def rounded(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Values as floors store them: 17 binary digits, four in a million, in float32, whose zeros compress."""
    mantissa, exponent = np.frexp(values)
    with np.errstate(over="ignore"):
        return np.ldexp(np.round(mantissa * 2**17) / 2**17, exponent).astype(np.float32)


def p_value(metric: str, values: ArrayLike, floor: Floor) -> float:
    """One-sided p-value that samples are worse than exact draws by this metric.

    One value is ranked among the m of the floor: with k values at least as bad, ``(1 + k + sqrt(k)) / (1 + m)``.
    The root is the standard error of k: floors are of finite size and used many times, and without it the level
    of a test against a single floor would exceed its nominal value about half the time. The values of several
    replicates are compared with the floor's by the Mann-Whitney test, where failures, NaN, rank worst.
    """
    found, known = _lower_is_better(metric, values, floor)
    if len(found) == 1:
        worse = int(np.sum(known >= found[0]))
        return min(1.0, (1 + worse + math.sqrt(worse)) / (1 + len(known)))
    return _rank_sum_p_value(found, known)


def _rank_sum_p_value(x: NDArray[np.float32], y: NDArray[np.float32]) -> float:
    """SciPy's ``mannwhitneyu(x, y, alternative="greater", method="asymptotic")`` without its checks, which take most of its time."""
    n, m = len(x), len(y)
    both = np.sort(np.concatenate([x, y]))
    first = np.flatnonzero(np.append(True, both[1:] != both[:-1]))
    tied = np.zeros(n + m, np.float32)
    tied[first] = np.diff(first, append=n + m)
    places = np.searchsorted(both, x, "left") + np.searchsorted(both, x, "right") + 1  # twice the ranks
    above = np.float32(places.sum() / 2 - n * (n + 1) / 2) - n * m / 2 - 0.5
    spread = np.sqrt(n * m / 12 * ((n + m + 1) - (tied**3 - tied).sum() / ((n + m) * (n + m - 1))))
    with np.errstate(divide="ignore"):
        return float(scipy.special.ndtr(-above / spread))


def exact_p_value(metric: str, values: ArrayLike, floor: Floor) -> float:
    """``p_value`` by the exact law of the rank sum, which falls far below that of the normal approximation.

    With five replicates and 200 values of the floor it can be 3e-10, so that it survives in a family of thousands of
    tests. Ties with the floor count for the samples, so that it holds for counts and shares.
    """
    found, known = _lower_is_better(metric, values, floor)
    if len(found) == 1:
        return p_value(metric, values, floor)
    return _exact_rank_sum(int(np.searchsorted(np.sort(known), found).sum()), len(found), len(known))


@cache  # thousands of cells have few sums
def _exact_rank_sum(above: int, n: int, m: int) -> float:
    """Chance that n values exceed m others in ``above`` pairs or more, by exchangeability; single precision, as ``rounded``."""
    wins = np.clip(above - m * np.arange(n), 0, m)  # a sample with that many
    others = np.arange(m, dtype=np.float32)
    found = (wins - 0.5).astype(np.float32)
    return float(scipy.stats.mannwhitneyu(found, others, alternative="greater", method="exact").pvalue)


def _lower_is_better(metric: str, values: ArrayLike, floor: Floor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Values and those of the floor, rounded alike, so that ties of shares and counts stay ties; NaN as +inf."""
    higher = registry.metrics()[metric].direction == "higher"
    better = np.negative if higher else np.positive
    found = better(rounded(np.atleast_1d(np.asarray(values, dtype=float))))
    return np.where(np.isnan(found), np.inf, found), better(rounded(floor.values))
