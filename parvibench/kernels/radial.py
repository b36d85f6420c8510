"""Radial kernels k(D), D = ||x - y||^2: values and derivatives with respect to D."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .gram import exp_, lower_median, squared_distances

#: (D, h) -> (k, dk/dD), all (R, n, m) but for the bandwidth h (R, 1, 1) in units of x^2.
Profile = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def gaussian(d: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Values and slopes of k = exp(-D / h)."""
    k = exp_(d / -h)
    return k, k / -h


def inverse_multiquadric(d: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Values and slopes of k = (1 + D / h)^(-1/2)."""
    base = d / h + 1
    k = base.rsqrt()
    return k, k / base / (-2 * h)


def pull_back(
    profile: Profile,
    x: Tensor,
    y: Tensor,
    weights: Tensor,
    bandwidth: float | None = None,
    through_median: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """A kernel matrix k (R, n, m) and the gradients of S = sum_ij w_ij k(D_ij / h), D_ij = ||x_i - y_j||^2, in x and y.

    With c_ij = dS/dD_ij the gradient in x_i is sum_j c_ij 2 (x_i - y_j), and likewise for y: two matrix products. x is
    (R, n, d), y (R, m, d), ``weights`` (R, n, m). The default h = median(D) / log(n + 1), the lower of two, over all
    pairs, is itself one of the distances, up to the factor. S depends on D / h only, so that h dS/dh = -sum_ij c_ij
    D_ij at fixed D, which is added to the c of the pair that is the median if gradients flow ``through_median``;
    otherwise h is fixed.
    """
    d = squared_distances(x, y)
    if bandwidth is None:
        median, position = (v.unsqueeze(1) for v in lower_median(d.flatten(1)))
        k, slope = profile(d, median.unsqueeze(2) / math.log(x.shape[1] + 1))
    else:
        k, slope = profile(d, x.new_full((1, 1, 1), bandwidth))
    c = slope.mul_(weights)
    if bandwidth is None and through_median:
        by_median = -torch.linalg.vecdot(c.flatten(1), d.flatten(1)).unsqueeze(1) / median
        c.flatten(1).scatter_add_(1, position, by_median)
    c.mul_(2)
    grad_x = c.sum(-1).unsqueeze(-1) * x - c @ y
    grad_y = c.sum(-2).unsqueeze(-1) * y - c.mT @ x
    return k, grad_x, grad_y
