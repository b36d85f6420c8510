"""Noise floors, and tests of samples against them.

A floor is the distribution of a metric between n independent exact draws and the shipped reference. A value within it
is consistent with exact draws; one beyond it is evidence against the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from torch import Tensor

from parvibench.core import registry
from parvibench.core.metric import Context
from parvibench.core.reference import Floor, Floored, Reference
from parvibench.core.task import Task
from parvibench.statistics import holm

from .compute import compute

#: Simulated values per floor: for cheap metrics up to the largest of SIZES, and for all others.
SETS = 1000
COSTLY_SETS = 300
CHEAP = (
    "sliced_w2", "mmd2", "mmd2_linear", "mean_error", "sd_error", "correlation_error", "ks_marginal",
    "modes_found", "mode_weight_tv", "amari",
)  # fmt: skip
ALPHA = 0.05
#: Metrics with one of these needs have floors: they compare samples with the target.
JUDGED = ("reference", "target", "moments", "modes", "unmixing")
#: Why the others have none.
NO_FLOOR = {
    "path": "describes a chain; independent draws have none",
    "predictive": "held-out rows have no law to draw from; certified predictions bring floors of their own",
    "cost": "describes the run",
    "decisions": "compares with the best action on the same contexts",
    "motion": "describes the run",
    "diagnostics": "describes the run",
}
SIZES = (100, 500, 1000)
#: More sizes for the sliced distance, whose curve the equivalent n inverts.
CURVE_SIZES = (2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000, 4000)

#: Number of rows n -> independent sets of n exact draws, each (n, D), at most SETS of them.
Sets = Callable[[int], Iterable[Tensor]]


def judged_metrics() -> list[str]:
    """All metrics that have floors."""
    return [row.name for row in registry.metrics().values() if row.need in JUDGED]


def floor_sizes(metric: str) -> tuple[int, ...]:
    """Sample sizes at which a metric's floor is simulated."""
    return CURVE_SIZES if metric == "sliced_w2" else SIZES


def floor_sets(metric: str, n: int) -> int:
    """Most simulated values of a metric's floor at a sample size."""
    return SETS if metric in CHEAP and n <= SIZES[-1] else COSTLY_SETS


def simulate_floors(
    task: Task, reference: Reference, sets: Sets, metrics: Sequence[str] | None = None
) -> dict[str, dict[int, NDArray[np.float64]]]:
    """Floors of all metrics that apply to a task.

    Args:
        task: the target.
        reference: the shipped draws, with moments and bandwidth.
        sets: independent exact draws, none of them in the reference.
        metrics: names; default all that have floors.

    Returns:
        metric -> size -> sorted values.
    """
    context = Context(task, reference, task.target([0], "cpu", torch.float64))
    names = judged_metrics() if metrics is None else metrics
    floors: dict[str, dict[int, NDArray[np.float64]]] = {}
    for n in sorted({n for name in names for n in floor_sizes(name)}):
        found: dict[str, list[float]] = {name: [] for name in names if n in floor_sizes(name)}
        for i, x in enumerate(sets(n)):
            due = [name for name in found if i < floor_sets(name, n)]
            if not due:
                break
            for name, value in compute(due, x[None], context)[0].items():
                found[name].append(float(value[0]))
        for name, values in found.items():
            if values:
                floors.setdefault(name, {})[n] = np.sort(values)
    return floors


class FloorTests(NamedTuple):
    """Tests of samples against floors.

    Attributes:
        floors: of every metric that has one at the samples' size.
        p_values: of the same metrics.
        adjusted: the p-values adjusted by Holm.
        verdict: of all of them, see ``verdict``.
    """

    floors: dict[str, Floor]
    p_values: dict[str, float]
    adjusted: dict[str, float]
    verdict: str


def floor_tests(values: Mapping[str, ArrayLike], n: int, reference: Floored | None) -> FloorTests:
    """Test every metric that has a floor at this sample size.

    Args:
        values: metric -> values of the replicates, as for ``p_value``.
        n: samples of a replicate.
        reference: with its floors; None has none.
    """
    known = {} if reference is None else {metric: reference.floor(metric, n) for metric in values}
    floors = {metric: floor for metric, floor in known.items() if floor is not None}
    p_values = {metric: p_value(metric, values[metric], floor) for metric, floor in floors.items()}
    adjusted = dict(zip(floors, holm(list(p_values.values())), strict=True))
    return FloorTests(floors, p_values, adjusted, verdict(list(p_values.values())))


def p_value(metric: str, values: ArrayLike, floor: Floor) -> float:
    """One-sided p-value that samples are worse than exact draws by this metric.

    One value is ranked among the m of the floor: with k values at least as bad, ``(1 + k + sqrt(k)) / (1 + m)``.
    The root is the standard error of k: floors are of finite size and used many times, and without it the level
    of a test against a single floor would exceed its nominal value about half the time. The values of several replicates are compared
    with the floor's by the Mann-Whitney test, where failures rank worst.

    Args:
        metric: gives the direction.
        values: of one or more replicates; NaN counts as worst.
        floor: at the replicates' sample size.
    """
    sign = -1.0 if registry.metrics()[metric].direction == "higher" else 1.0
    found = sign * np.atleast_1d(np.asarray(values, dtype=float))
    found = np.where(np.isnan(found), np.inf, found)
    known = sign * floor.values
    if len(found) == 1:
        worse = int(np.sum(known >= found[0]))
        return min(1.0, (1 + worse + math.sqrt(worse)) / (1 + len(known)))
    return float(stats.mannwhitneyu(found, known, alternative="greater", method="asymptotic").pvalue)


def verdict(p_values: Sequence[float]) -> str:
    """``distinguishable`` when Holm rejects any of the p-values at 5%, else ``indistinguishable``.

    Three hundred simulated values give p-values down to 1/301, enough for fifteen metrics at once.
    """
    if not p_values:
        return "not applicable"
    return "distinguishable" if min(holm(p_values)) <= ALPHA else "indistinguishable"
