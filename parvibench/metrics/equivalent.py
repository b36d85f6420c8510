"""Equivalent n: the number of exact draws that come as close to the reference.

It puts chains, particles and generators on one scale. It is a global measure: of the whole distance, to which a missing
tail or a wrong coordinate of many adds little. Its interval is that of independent draws: of samples that depend on
each other, such as a chain's, it would hold the number too rarely, and none is shown. For V-statistics there is a closed form: with a kernel k,
n independent draws have

    E value = gap / n + bias,   gap = E k(x, x) - E k(x, x')

and bias the squared discrepancy between the shipped reference and the law, which no number of draws removes. For
the sliced distance the floor's medians over n are inverted instead.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.core.reference import Floored, Reference
from parvibench.core.registry import load_metric
from parvibench.core.task import Task

from .common import given
from .compute import in_parallel, values_of
from .mmd import kernel_mean, mean_distance

Interval = tuple[float, float]

#: The gap needs fewer: four sets estimate it to 0.3%.
_GAP_POOLS = 4
_RESAMPLES = 2000
#: States of a chain's whole path that are judged, where other metrics judge its last ones.
MOST_STATES = 1000


#: Unbiased estimates of the gap from one set of draws, (n, D).
V_STATISTICS: dict[str, Callable[[Tensor, Reference], float]] = {
    "mmd2": lambda x, reference: 1 - (len(x) * kernel_mean(x, x, reference.bandwidth) - 1) / (len(x) - 1),
    "energy_distance": lambda x, reference: len(x) * mean_distance(x, x) / (len(x) - 1),
}


def v_constants(
    task: Task, reference: Reference, pools: Iterable[Tensor], metrics: Sequence[str] = tuple(V_STATISTICS)
) -> dict[str, dict[str, float]]:
    """Gap and bias of V-statistics, as the certificate stores them: metric -> ``{"gap", "bias"}``, in the metric's unit.

    ``pools`` are sets of exact draws, (n, D) each with a large n, none of them in the reference.
    """
    context = Context(task, reference)

    def value_and_gap(numbered: tuple[int, Tensor]) -> tuple[int, dict[str, float], dict[str, float]]:
        number, x = numbered
        gaps = {m: V_STATISTICS[m](reference.in_units(x), reference) for m in metrics if number < _GAP_POOLS}
        return len(x), values_of(metrics, x, context), gaps

    sizes, values, gaps = zip(*in_parallel(value_and_gap, enumerate(pools)), strict=True)
    found = {}
    for name in metrics:
        gap = float(np.mean([g[name] for g in gaps if g]))
        found[name] = {"gap": gap, "bias": float(np.mean([v[name] for v in values])) - gap / sizes[-1]}
    return found


def equivalent_sample_size(
    metric: str, values: ArrayLike, n: int, reference: Floored
) -> tuple[float | None, Interval | None, str]:
    """How many independent exact draws come as close to the reference as these samples.

    By ``sliced_w2`` or a V-statistic (``mmd2``, ``energy_distance``), of which there are ``values``, one per replicate of n
    samples; several are pooled, V-statistics by their mean and the sliced distance by its median. The number, at most 4n and
    at most the largest size simulated; its 95% interval, which holds the number of exact draws whose values would have come
    out like these; and a reason, which is empty unless the number is missing or capped.
    """
    found = np.atleast_1d(np.asarray(values, dtype=float))
    if metric != "sliced_w2" and metric not in V_STATISTICS:
        return None, None, "no equivalent sample size is defined for this metric"
    if not np.isfinite(found).all():
        return None, None, "the value is not finite"
    table = reference.floors.get(metric, {})
    if len(table) < (2 if metric == "sliced_w2" else 1):
        return None, None, "the reference has no floors"
    sizes, floors = np.array(sorted(table)), [table[size].tobytes() for size in sorted(table)]
    if metric == "sliced_w2":
        cap = min(4.0 * n, float(sizes[-1]))
        numbers = _from_curve(found, sizes, floors)
        if numbers is None:
            return None, None, f"worse than {sizes[0]} exact draws"
    else:
        cap = 4.0 * n
        numbers = _from_closed_form(found, n, sizes, floors, **reference.certificate["v_statistics"][metric])
    size, low, high = (min(float(f"{v:.6g}"), cap) for v in numbers)
    return size, (low, high), "" if size < cap else f"at least {cap:g}"


def _from_curve(values: NDArray[Any], sizes: NDArray[Any], floors: list[bytes]) -> tuple[float, float, float] | None:
    """Size at which the floor has its median at the values' median, and where its 95% band ends.

    The floor is measured against the shipped reference, so its finite size is allowed for.
    """
    value = float(np.median(values))
    medians = np.array([_median(f) for f in floors])
    if value > medians[0]:
        return None
    low, high = np.transpose([_band(f, len(values), np.median) for f in floors])
    return _invert(sizes, medians, value), _invert(sizes, low, value), _invert(sizes, high, value)


def _from_closed_form(
    values: NDArray[Any], n: int, sizes: NDArray[Any], floors: list[bytes], *, gap: float, bias: float
) -> tuple[float, float, float]:
    """``gap / (mean - bias)``; the interval ends where the floor's 95% band does.

    The band's ends above the bias, in units of the mean, change slowly with the size: they are interpolated
    between the stored sizes and constant beyond them; an end below the bias, which fewer draws do not have, as a share of all.
    """
    value = float(values.mean())
    grid, least = np.geomspace(1, 4 * n, 500), bias * sizes[0] / gap
    spreads = [(_band(f, len(values), np.mean) - bias) * s / gap for s, f in zip(sizes, floors, strict=True)]

    def end_of_interval(ends: NDArray[np.float64]) -> float:
        left = ends[0] if ends[0] > 0 else (ends[0] + least) / (1 + least)
        return _invert(grid, bias + gap / grid * np.interp(np.log(grid), np.log(sizes), ends, left=left), value)

    low, high = map(end_of_interval, np.transpose(spreads))
    return gap / max(value - bias, gap / (4 * n)), low, high


@lru_cache(maxsize=1024)
def _median(floor: bytes) -> float:
    """Median of a floor, float64."""
    return float(np.median(np.frombuffer(floor)))


@lru_cache(maxsize=1024)
def _band(floor: bytes, count: int, statistic: Callable[..., Any]) -> NDArray[np.float64]:
    """Ends of the 95% band of the statistic of ``count`` values drawn from a floor, float64; of all cells of a task alike."""
    values = np.frombuffer(floor)
    if count > 1:
        drawn = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, count))
        values = statistic(values[drawn], axis=1)
    return np.asarray(np.quantile(values, [0.025, 0.975]))


def _invert(sizes: NDArray[Any], curve: NDArray[Any], value: float) -> float:
    """Size at which a falling curve takes a value, linear in logarithms, constant beyond its ends."""
    falling = np.log(np.maximum(np.minimum.accumulate(curve), 1e-300))
    return float(np.exp(np.interp(-np.log(max(value, 1e-300)), -falling, np.log(sizes))))


@metric("lower", "of the primary", "path", "the task's primary metric on the whole path of a chain", when="last")
def path_primary(samples: Tensor, context: Context) -> Tensor:
    """The task's primary metric on at most 1,000 states spread evenly over the path after the burn-in.

    (R,) in the primary metric's unit; NaN where the path is not finite. Needs T N >= 2, and what that metric needs.

    >>> path_primary(x, Context(banana, context.reference, path=x.repeat(1, 4, 1)[:, :, None]))
    tensor([0.9851], dtype=torch.float64)
    """
    states = whole_path(context)
    finite = states.isfinite().flatten(1).all(1)
    usable = torch.where(finite[:, None, None], states, 0.0)
    found = load_metric(context.task.primary).compute(usable, replace(context, excluded_rows=None))
    return torch.where(finite, found, torch.nan)


@metric("higher", "draws", "path", "equivalent n of the whole path of a chain", when="last")
def path_equivalent_n(samples: Tensor, context: Context) -> Tensor:
    """How many independent exact draws come as close by the primary metric as the whole path (``path_primary``).

    (R,) in draws, at most four times the states judged; 0 for a path worse than the fewest draws simulated. Needs
    T N >= 2, and floors of the primary metric.

    >>> path_equivalent_n(x, Context(banana, context.reference, path=x.repeat(1, 4, 1)[:, :, None]))
    tensor([5.6452], dtype=torch.float64)
    """
    states, reference, primary = whole_path(context).shape[1], context.task.floored(), context.task.primary
    if reference is None or not reference.floors.get(primary):
        raise NotApplicable(f"no floors of {primary} are stored for this task")
    sizes = []
    for value in path_primary(samples, context).tolist():
        size, _, reason = equivalent_sample_size(primary, value, states, reference)
        if size is None and not reason.startswith(("worse than", "the value is not finite")):
            raise NotApplicable(reason)
        sizes.append(size or 0.0)
    return torch.tensor(sizes, dtype=samples.dtype)


def whole_path(context: Context) -> Tensor:
    """At most 1,000 states (R, m, D), evenly spread over the times of a path and cycling through its chains."""
    path = given(context.path, "no chain path is recorded")
    _, times, chains, _ = path.shape
    states = min(MOST_STATES, times * chains)
    if states < 2:
        raise NotApplicable(f"the chain path has {states} states; at least 2 are needed")
    order = torch.arange(states)
    when = ((order.double() + 0.5) * times / states).long()
    return path[:, when, order % chains].to(torch.float64)
