"""The Riesz kernel in the l1 norm, k(x, y) = (||x||_1 + ||y||_1 - ||x - y||_1) / h.

Unbounded and not translation invariant; positive definite (up to scale the covariance of Brownian
motion in each coordinate). From the code of KSIVI (arXiv:2405.18997), whose text has no formula;
h = median of the numerator / log(n + 1), held fixed. Trap: points in opposite quadrants have a numerator of 0, in one
dimension about half of all pairs, and the median is then 0 or a rounding error; the mean takes its place there (ours).
"""

import math

import torch
from torch import Tensor

from .gram import lower_median_bandwidth

#: Share of the mean below which a median is a rounding error.
_ROUNDING = 1e-5


def pull_back(x: Tensor, y: Tensor, weights: Tensor, bandwidth: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel matrix and the gradients of sum_ij w_ij k(x_i, y_j): as ``radial.pull_back``."""
    with torch.enable_grad():  # the l1 distance's own derivative needs no (n, m, d) array
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        numerator = x.abs().sum(-1).unsqueeze(-1) + y.abs().sum(-1).unsqueeze(-2) - torch.cdist(x, y, p=1.0)
        h = _bandwidth(numerator.detach()) if bandwidth is None else bandwidth
        grad_x, grad_y = torch.autograd.grad(numerator, (x, y), grad_outputs=weights / h)
    return numerator.detach() / h, grad_x, grad_y


def _bandwidth(numerator: Tensor) -> Tensor:
    """(R, n, m) -> (R, 1, 1)."""
    h = lower_median_bandwidth(numerator)
    by_mean = numerator.mean((-2, -1), keepdim=True) / math.log(numerator.shape[1] + 1)
    return torch.where(h > _ROUNDING * by_mean, h, by_mean)
