"""The kernel Stein discrepancy and the same number as one writes it from the formula, by broadcasting."""

import math
from functools import cache

import torch
from torch import Tensor

from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.registry import load_metric, load_task
from parvibench.metrics.common import median_distance

DIM, SAMPLES, ROWS = 8, 1000, 2000


@cache
def context() -> Context:
    """The mixture of two Gaussians in 8 dimensions with exact draws as reference."""
    task = load_task(f"lapd-mixture-{DIM}")
    draws = task.exact(ROWS, torch.Generator().manual_seed(1))
    reference = Reference(draws, True, {"bandwidth": median_distance(draws)})
    return Context(task, reference, task.target((0,), "cpu", torch.float64))


@cache
def samples() -> Tensor:
    """Draws that are not quite right, (1, n, D)."""
    return context().task.exact(SAMPLES, torch.Generator().manual_seed(2)).mul(1.1).unsqueeze(0)


def ours() -> Tensor:
    """The metric of the one replicate, (1,)."""
    return load_metric("ksd").compute(samples(), context())


def twin() -> float:
    """Its twin on the same samples."""
    x, c2 = samples()[0], context().reference.bandwidth ** 2
    s = context().target.score(x[None])[0]
    apart = x[:, None, :] - x[None, :, :]
    base = 1 + (apart**2).sum(-1) / c2
    cross = ((s[:, None, :] - s[None, :, :]) * apart).sum(-1)
    stein = (s @ s.T) * base**-0.5 + (cross + x.shape[1]) * base**-1.5 / c2
    stein = stein - 3 * (apart**2).sum(-1) * base**-2.5 / c2**2
    return math.sqrt(float(stein.mean()))
