"""Equal-weight mixtures of isotropic Gaussians centred at particles."""

import torch
from torch import Tensor

from .gram import squared_distances


def mixture_score(x: Tensor, z: Tensor, sigma: float | Tensor) -> Tensor:
    """Score at x (R, m, D) of (1/n) sum_j N(z_j, sigma^2 I), z (R, n, D): (R, m, D); sigma is a number or (R, 1, 1)."""
    p = torch.softmax(squared_distances(x, z) / (-2 * sigma**2), -1)
    return (p @ z - x) / sigma**2
