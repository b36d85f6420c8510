"""Radial kernels k(D), D = ||x - y||^2: values and derivatives with respect to D."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .gram import exp_, median_bandwidth, squared_distances

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
    profile: Profile, x: Tensor, y: Tensor, weights: Tensor, bandwidth: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """A kernel matrix and the gradients of S = sum_ij w_ij k(x_i, y_j), bandwidth held fixed.

    dS/dx_i = sum_j w_ij k'(D_ij) 2 (x_i - y_j), and likewise for y: two matrix products.

    Args:
        profile: the kernel.
        x: (R, n, d).
        y: (R, m, d).
        weights: w, (R, n, m).
        bandwidth: h; by default the median heuristic's between the two sets.

    Returns:
        k (R, n, m), dS/dx (R, n, d) and dS/dy (R, m, d).
    """
    d = squared_distances(x, y)
    k, slope = profile(d, median_bandwidth(d) if bandwidth is None else x.new_full((1, 1, 1), bandwidth))
    c = slope.mul_(weights).mul_(2)
    grad_x = c.sum(-1).unsqueeze(-1) * x - c @ y
    grad_y = c.sum(-2).unsqueeze(-1) * y - c.mT @ x
    return k, grad_x, grad_y
