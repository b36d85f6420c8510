"""Noise floors, and what follows from them: verdicts and equivalent sample sizes.

A floor is the distribution of a metric between n independent exact draws and the shipped reference. A value
inside it says nothing against the samples; one beyond it does. The same simulations tell how many exact draws
would have done as well, which puts chains, particles and generators on one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.task import Task

from .compute import compute
from .mmd import kernel_mean

#: Simulated values behind every floor.
SETS = 200
ALPHA = 0.05
FLOOR_METRICS = ("sliced_w2", "w2", "mmd2", "ksd", "mean_error", "sd_error")
SIZES = (100, 500, 1000)
#: The equivalent sample size inverts the sliced distance's curve, which takes more of it.
CURVE_SIZES = (2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000, 4000)

#: Number of rows n -> SETS independent sets of n exact draws, each (n, D).
Sets = Callable[[int], Iterable[Tensor]]
Interval = tuple[float, float]


def floor_sizes(metric: str) -> tuple[int, ...]:
    """Sample sizes at which a metric's floor is simulated."""
    return CURVE_SIZES if metric == "sliced_w2" else SIZES


def simulate_floors(task: Task, reference: Reference, sets: Sets) -> dict[str, dict[str, list[float]]]:
    """Floors of all metrics of the task that have one, as the certificate stores them.

    Args:
        task: the target.
        reference: the shipped draws, with moments and bandwidth.
        sets: independent exact draws, none of them in the reference.

    Returns:
        metric -> size -> sorted values, rounded to six significant digits.
    """
    context = Context(task, reference, task.target([0], "cpu", torch.float64))
    names = [name for name in FLOOR_METRICS if name in task.metrics]
    floors: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for n in sorted({n for name in names for n in floor_sizes(name)}):
        wanted = [name for name in names if n in floor_sizes(name)]
        values = [compute(wanted, x[None], context)[0] for x in sets(n)]
        for name in wanted:
            floors[name][str(n)] = sorted(_round(float(v[name])) for v in values)
    return floors


def mean_similarity(sets: Iterable[Tensor], bandwidth: float) -> float:
    """E k(x, x') of independent exact draws: the mean of the sets' U-statistics, for the kernel of mmd2."""
    means = [(len(x) ** 2 * kernel_mean(x, x, bandwidth) - len(x)) / (len(x) ** 2 - len(x)) for x in sets]
    return float(np.mean(means))


def equivalent_sample_size(
    metric: str, value: float, n: int, reference: Reference
) -> tuple[float | None, Interval | None, str]:
    """How many independent exact draws come as close to the reference as these samples.

    Args:
        metric: ``sliced_w2`` or ``mmd2``; the others have none.
        value: of the metric, for n samples.
        n: number of samples.
        reference: with its floors.

    Returns:
        The number, at most 4n and at most the largest size simulated; its 95% interval; and a reason, which
        is empty unless the number is missing or capped.
    """
    if metric not in ("sliced_w2", "mmd2"):
        return None, None, "no equivalent sample size is defined for this metric"
    if not np.isfinite(value):
        return None, None, "the value is not finite"
    estimate = _from_curve if metric == "sliced_w2" else _from_similarity
    found = estimate(value, n, reference)
    if isinstance(found, str):
        return None, None, found
    cap = min(4.0 * n, max(CURVE_SIZES)) if metric == "sliced_w2" else 4.0 * n
    size, low, high = (min(_round(v), cap) for v in found)
    return size, (low, high), "" if size < cap else f"at least {cap:g}"


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: reject those at most alpha (Holm 1979, Scand. J. Stat. 6)."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return [float(v) for v in adjusted]


def verdict(p_values: Sequence[float]) -> str:
    """``distinguishable`` when Holm rejects any of the p-values at 5%, else ``indistinguishable``.

    Two hundred simulated values give p-values down to 1/201, enough for nine metrics at once.
    """
    if not p_values:
        return "not applicable"
    return "distinguishable" if min(holm(p_values)) <= ALPHA else "indistinguishable"


def _round(value: float) -> float:
    """Six significant digits."""
    return float(f"{value:.6g}")


def _from_curve(value: float, n: int, reference: Reference) -> tuple[float, float, float] | str:
    """Size at which the sliced distance's floor has its median at ``value``, and where its 95% band ends.

    The floor is measured against the shipped reference, so its finite size is allowed for. The medians of 200
    values know the size to about 6%, one value to a factor of two or three: see the interval.
    """
    table = reference.certificate.get("floors", {}).get("sliced_w2", {})
    if len(table) < 2:
        return "the reference has no floors"
    sizes = np.array(sorted(int(k) for k in table))
    values = np.array([table[str(k)] for k in sizes])
    if value > np.median(values[0]):
        return f"worse than {sizes[0]} exact draws"
    size, low, high = (_invert(sizes, np.quantile(values, q, axis=1), value) for q in (0.5, 0.025, 0.975))
    return size, low, high


def _invert(sizes: NDArray[Any], curve: NDArray[np.float64], value: float) -> float:
    """Size at which a falling curve takes a value, linear in logarithms, held at its ends."""
    falling = np.log(np.minimum.accumulate(curve))
    return float(np.exp(np.interp(-np.log(value), -falling, np.log(sizes))))


def _from_similarity(value: float, n: int, reference: Reference) -> tuple[float, float, float] | str:
    """Closed form for the V-statistic.

    For e independent draws ``E mmd2 = (E k(x, x) - E k(x, x')) / e + b``, b the squared discrepancy of the
    shipped reference from the law, which is what the floor's mean leaves over. The interval ends where the
    floor's 95% band does: its spread about b, in units of the mean, changes slowly with e and is interpolated
    between the stored sizes, held beyond them.
    """
    similarity = reference.certificate.get("mean_similarity")
    table = reference.certificate.get("floors", {}).get("mmd2", {})
    if similarity is None or not table:
        return "the reference has no floors"
    sizes = np.array(sorted(int(k) for k in table))
    values = np.array([table[str(k)] for k in sizes])
    gap = 1 - similarity  # k(x, x) = 1
    bias = float(values[-1].mean()) - gap / sizes[-1]
    grid = np.geomspace(1, 4 * n, 500)

    def end(level: float) -> float:
        spread = (np.quantile(values, level, axis=1) - bias) * sizes / gap
        curve = bias + gap / grid * np.interp(np.log(grid), np.log(sizes), spread)
        return _invert(grid, curve, value)

    return gap / max(value - bias, gap / (4 * n)), end(0.025), end(0.975)
