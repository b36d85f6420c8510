"""Comparison of one set of samples with a task's reference: the document of ``parvibench evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parvibench.core.metric import Context, Cost
from parvibench.core.reference import STORED_SIZES_ONLY, Floored, Reference
from parvibench.core.registry import load_metric
from parvibench.core.result import to_json_number
from parvibench.core.task import Task

from .compute import check_samples, compute
from .equivalent import equivalent_sample_size
from .floors import ALPHA, FloorTests, floor_tests


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
        ``{"task", "n", "verdict", "metrics": [...]}``: JSON types only; null where a number is missing.

    Raises:
        ShapeError: the samples are no finite (n, D) array.
        DataMissingError: the task's data set is not on disk.
    """
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
    copies = 0 if context.reference is None else _count_copies(x, context.reference)
    if copies:
        reason = f"{copies} of {len(x)} samples are rows of the reference itself"
        values, absent = {}, dict.fromkeys(names, reason)
    else:
        found, absent = compute(names, x[None], context)
        values = {name: float(value[0]) for name, value in found.items()}
    tests = floor_tests(values, len(x), floored)
    rows = [
        _absent(name, absent[name]) if name in absent else _row(name, values[name], len(x), floored, tests)
        for name in names
    ]
    return {"task": task.name, "n": len(x), "verdict": tests.verdict, "metrics": rows}


def _row(name: str, value: float, n: int, reference: Floored | None, tests: FloorTests) -> dict[str, Any]:
    """One metric's row; without a floor at this n the value stands alone."""
    row = _absent(name, _why_no_floor(name, n, reference)) | {"value": to_json_number(value)}
    if reference is None or name not in tests.floors:
        return row
    floor, p = tests.floors[name], tests.p_values[name]
    size, interval, reason = equivalent_sample_size(name, value, n, reference)
    return row | {
        "floor": {"median": floor.median, "q95": floor.quantile(0.95)},
        "ratio": to_json_number(value / floor.median) if load_metric(name).floor_ratio else None,
        "p_value": p,
        "equivalent_sample_size": size,
        "equivalent_sample_size_interval": None if interval is None else list(interval),
        "verdict": "distinguishable" if p <= ALPHA else "indistinguishable",
        "reason": reason,
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


def _why_no_floor(name: str, n: int, reference: Floored | None) -> str:
    sizes = [] if reference is None else sorted(reference.floors.get(name, {}))
    if not sizes:
        return "no floor: the value stands alone"
    if name in STORED_SIZES_ONLY:
        return f"floors are known at n = {', '.join(map(str, sizes))} only, not at {n}: thin the samples"
    return f"floors are known for n = {sizes[0]} to {sizes[-1]}, not for {n}: thin the samples"


def _count_copies(x: Tensor, reference: Reference) -> int:
    """How many samples are rows of the reference, bit for bit in float32 (as it is stored)."""
    stored = {row.tobytes() for row in reference.draws.numpy().astype(np.float32)}
    return sum(row.tobytes() in stored for row in x.numpy().astype(np.float32))
