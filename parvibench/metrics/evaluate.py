"""Comparison of one set of samples with a task's reference: the document of ``parvibench evaluate``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from parvibench.core import registry
from parvibench.core.metric import Context, Cost
from parvibench.core.reference import Floored
from parvibench.core.registry import load_metric
from parvibench.core.result import to_json_number
from parvibench.core.task import Task

from .compute import check_samples, compute, compute_guarded
from .equivalent import equivalent_sample_size
from .floors import ALPHA, SIZES, FloorTests, floor_tests, judged_size
from .pairwise import thin

_CHAIN = "neighbouring samples are correlated, and the interval is that of independent ones"


def evaluate_samples(
    task: Task, samples: Any, cost: Cost | None = None, metrics: Sequence[str] | None = None
) -> dict[str, Any]:
    """Value, floor, verdict and equivalent sample size of every metric of a task.

    Predictive tasks are judged on the data split of replicate 0.

    Args:
        task: whose target the samples should follow.
        samples: array-like, (n, D), n >= 2.
        cost: of the samples, if known.
        metrics: names; default: the task's.

    Returns:
        ``{"task", "n", "n_judged", "verdict", "judged_by", "reason", "metrics": [...]}``: JSON types only; null where a
        number is missing. Values and equivalent sample sizes are of all n samples; floors, ratios and tests are of the
        ``n_judged`` evenly thinned ones, the next smaller size with floors, and by the metrics ``judged_by``.

    Raises:
        ShapeError: the samples are no finite (n, D) array.
        DataMissingError: the task's data set is not on disk.
        InputError: the task bears the name of a built-in one and is another.
    """
    registry.require_own_name(task)
    x = check_samples(samples, task)
    names = task.metrics if metrics is None else metrics
    context = Context(
        task,
        task.reference(),
        task.target([0], "cpu", torch.float64),
        task.predictive([0], "cpu", torch.float64),
        cost=cost,
    )
    floored = task.floored()
    found, absent = compute_guarded(names, x[None], context)
    values = {name: float(value[0]) for name, value in found.items()}
    n = judged_size(len(x), floored)
    judged = values
    if n is not None and n < len(x):
        tested = [name for name in values if name in getattr(floored, "floors", {})]
        judged = {name: float(value[0]) for name, value in compute(tested, thin(x, n)[None], context)[0].items()}
    tests = floor_tests(judged, n or len(x), floored, task.metrics)
    why = f"no interval: {_CHAIN}" if serially_correlated(x) else ""
    rows = [
        _absent(name, absent[name])
        if name in absent
        else _row(name, values[name], judged.get(name), len(x), floored, tests, why)
        for name in names
    ]
    return {
        "task": task.name,
        "n": len(x),
        "n_judged": n,
        "verdict": tests.verdict,
        "judged_by": list(tests.floors),
        "reason": tests.reason,
        "metrics": rows,
    }


def _row(
    name: str, value: float, judged: float | None, n: int, reference: Floored | None, tests: FloorTests, dependent: str
) -> dict[str, Any]:
    """One metric's row; without a floor at the size judged the value stands alone."""
    row = _absent(name, "no floor: the value stands alone") | {"value": to_json_number(value)}
    if reference is None or not reference.floors.get(name):
        return row
    size, interval, reason = equivalent_sample_size(name, value, n, reference)
    if interval is not None and dependent:
        interval, reason = None, reason or dependent
    row |= {
        "equivalent_sample_size": size,
        "equivalent_sample_size_interval": None if interval is None else list(interval),
        "reason": reason,
    }
    if name not in tests.floors or judged is None:
        return row | {"reason": _why_no_floor(name, reference)}
    floor, p = tests.floors[name], tests.p_values[name]
    return row | {
        "floor": {"median": floor.median, "q95": floor.quantile(0.95)},
        "ratio": to_json_number(judged / floor.median) if load_metric(name).floor_ratio else None,
        "p_value": p,
        "verdict": "distinguishable" if p <= ALPHA else "indistinguishable",
    }


def _absent(name: str, reason: str) -> dict[str, Any]:
    return {
        "metric": name,
        "value": None,
        "floor": None,
        "ratio": None,
        "p_value": None,
        "equivalent_sample_size": None,
        "equivalent_sample_size_interval": None,
        "verdict": "not applicable",
        "reason": reason,
    }


def _why_no_floor(name: str, reference: Floored) -> str:
    sizes = ", ".join(str(n) for n in SIZES if n in reference.floors[name])
    return f"floors are known at n = {sizes} only"


def serially_correlated(x: Tensor) -> bool:
    """Whether neighbouring rows of (n, D) samples are correlated, as a chain's are: at 0.1%, over all coordinates."""
    n, dim = x.shape
    ranks = x.argsort(0).argsort(0).double()
    centred = ranks - ranks.mean(0)
    lag = (centred[1:] * centred[:-1]).sum(0) / centred.square().sum(0)
    return bool((lag * math.sqrt(n) > stats.norm.isf(1e-3 / dim)).any())
