"""The kernels of KSIVI (arXiv:2405.18997) by name: two radial ones, and two in the l1 norm, as in the authors' code.

    laplace   k(x, y) = exp(-||x - y||_1 / h)
    riesz     k(x, y) = (||x||_1 + ||y||_1 - ||x - y||_1) / h

h is the median of the numerator / log(n + 1), fixed. The Riesz kernel, of which the paper has no formula, is
unbounded and not translation invariant; positive definite (up to scale the covariance of Brownian motion in each
coordinate). Trap: points in opposite quadrants have a numerator of 0, in one dimension about half of all pairs, and the
median is then 0 or a rounding error; the mean takes its place there (ours).
"""

import math
from typing import Literal

import torch
from torch import Tensor

from . import radial
from .gram import lower_median_bandwidth

Kernel = Literal["gaussian", "imq", "riesz", "laplace"]
#: Share of the mean below which a median is a rounding error.
_ROUNDING = 1e-5


def pull_back(
    kernel: Kernel, x: Tensor, y: Tensor, weights: Tensor, bandwidth: float | None, through_median: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel matrix and gradients as ``radial.pull_back``; ``through_median`` acts on the Gaussian only."""
    if kernel == "gaussian":
        return radial.pull_back(radial.gaussian, x, y, weights, bandwidth, through_median)
    if kernel == "imq":
        return radial.pull_back(radial.inverse_multiquadric, x, y, weights, bandwidth)
    with torch.enable_grad():  # the l1 distance's own derivative needs no (n, m, d) array
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        numerator = torch.cdist(x, y, p=1.0)
        if kernel == "riesz":
            numerator = x.abs().sum(-1).unsqueeze(-1) + y.abs().sum(-1).unsqueeze(-2) - numerator
        entries = numerator.detach()
        h = _bandwidth(kernel, entries) if bandwidth is None else bandwidth
        k = entries / h if kernel == "riesz" else torch.exp(-entries / h)
        slope = weights / h if kernel == "riesz" else -weights * k / h
        grad_x, grad_y = torch.autograd.grad(numerator, (x, y), grad_outputs=slope)
    return k, grad_x, grad_y


def _bandwidth(kernel: Kernel, numerator: Tensor) -> Tensor:
    """(R, n, m) -> (R, 1, 1)."""
    h = lower_median_bandwidth(numerator)
    if kernel == "laplace":
        return h
    by_mean = numerator.mean((-2, -1), keepdim=True) / math.log(numerator.shape[1] + 1)
    return torch.where(h > _ROUNDING * by_mean, h, by_mean)
