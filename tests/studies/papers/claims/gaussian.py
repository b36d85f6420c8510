"""A Gaussian in 50 dimensions that is stiff in two: the target of a claim, given as an unregistered task."""

from __future__ import annotations

import torch
from torch import Tensor

import parvibench as pb

SHARED, STIFF_CURVATURE, DIM, STIFF_DIRECTIONS = 1.0, 4.0, 50, 2
CURVATURES = torch.full((DIM,), SHARED, dtype=torch.float64)
CURVATURES[:STIFF_DIRECTIONS] = STIFF_CURVATURE


def log_density(x: Tensor) -> Tensor:
    """Unnormalised, in nats: (n, D) -> (n,)."""
    return -0.5 * (CURVATURES.to(x) * x**2).sum(-1)


STIFF = pb.task(log_density, DIM, name="stiff-gaussian", batched=True, score=lambda x: -CURVATURES.to(x) * x)
