"""Evaluate many metrics on the samples of a batch of replicates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from parvibench.core.errors import ShapeError
from parvibench.core.metric import Context, Metric, NotApplicable
from parvibench.core.registry import load_metric
from parvibench.core.task import Task


def compute(
    names: Iterable[str], samples: Tensor, context: Context, when: Literal["every", "last"] = "last"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All metrics of a checkpoint, on samples and paths in the task's canonical coordinates.

    A replicate with a non-finite sample, or whose value is not a number, gets the worst value: +inf where
    lower is better, NaN otherwise. Costs and diagnostics stand as they are.

    Args:
        names: canonical metric names.
        samples: (R, n, D), n >= 2.
        context: everything else the metrics may use.
        when: ``every`` leaves out the metrics meant for the last checkpoint; ``last`` takes all.

    Returns:
        Values, name -> (R,) float64 on the CPU, and the reasons of the metrics that do not apply.

    Raises:
        ShapeError: samples are no (R, n, D) batch of the task.
        UnknownNameError: no such metric.
    """
    samples = _checked_batch(samples, context.task)
    finite = samples.isfinite().flatten(1).all(1)
    # Zeros keep the other replicates of the batch computable; their values are overwritten.
    usable = context.task.canonical(torch.where(finite[:, None, None], samples, 0.0))
    if context.path is not None:
        context = replace(context, path=context.task.canonical(context.path))
    values: dict[str, Tensor] = {}
    absent: dict[str, str] = {}
    for metric in map(load_metric, names):
        if when == "every" and metric.when == "last":
            continue
        try:
            with torch.no_grad():
                found = metric.compute(usable, context)
        except NotApplicable as reason:
            absent[metric.name] = str(reason)
        else:
            values[metric.name] = _worst_where_unusable(metric, found, finite)
    return values, absent


def check_samples(samples: Any, task: Task) -> Tensor:
    """A user's samples as an (n, D) float64 tensor.

    Args:
        samples: anything NumPy or PyTorch reads as a matrix, (n, D).
        task: gives D.

    Raises:
        ShapeError: not a matrix of numbers, wrong dimension, fewer than two rows, or not finite.
    """
    try:
        x = torch.as_tensor(samples, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(f"the samples are no array of numbers: {error}") from None
    wanted = f"{task.name} wants samples of shape (n, {task.dim})"
    if x.dim() != 2 or x.shape[1] != task.dim:
        raise ShapeError(f"{wanted}, got {tuple(x.shape)}")
    if len(x) < 2:
        raise ShapeError(f"{wanted} with n >= 2, got {tuple(x.shape)}")
    bad = ~x.isfinite().all(1)
    if bad.any():
        first = int(bad.nonzero()[0])
        raise ShapeError(
            f"{int(bad.sum())} of {len(x)} samples hold NaN or infinity, first in row {first}: {x[first].tolist()}"
        )
    return x


def _checked_batch(samples: Tensor, task: Task) -> Tensor:
    if samples.dim() != 3 or samples.shape[2] != task.dim or samples.shape[1] < 2:
        raise ShapeError(
            f"{task.name} wants samples of shape (R, n, {task.dim}) with n >= 2, got {tuple(samples.shape)}"
        )
    return samples.detach().to("cpu", torch.float64)


def _worst_where_unusable(metric: Metric, value: Tensor, finite: Tensor) -> Tensor:
    if metric.need in ("cost", "diagnostics"):
        return value
    worst = math.inf if metric.direction == "lower" else math.nan
    return torch.where(finite & ~value.isnan(), value, worst)
