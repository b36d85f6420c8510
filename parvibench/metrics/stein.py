"""Kernel Stein discrepancy: needs the target's score and no reference samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable
from parvibench.kernels.gram import squared_distances

from .pairwise import row_blocks


def ksd(samples: Tensor, context: Context) -> Tensor:
    """Kernel Stein discrepancy: root of the V-statistic, inverse multiquadric kernel.

    With ``k(x, y) = u^(-1/2)``, ``u = 1 + ||x - y||^2 / c^2`` and s the target's score, the Stein kernel is::

        k_p(x, y) = s(x).s(y) u^(-1/2) + (s(x) - s(y)).(x - y) u^(-3/2) / c^2
                    + D u^(-3/2) / c^2 - 3 ||x - y||^2 u^(-5/2) / c^4

    and ``ksd = sqrt(mean_ij k_p(x_i, x_j))``, pairs i = j included (Gorham & Mackey 2017,
    arXiv:1703.01717). c is the reference's median distance, fixed per task; sqrt(D) without a reference.
    The discrepancy hardly sees the weights of well separated modes.

    Args:
        samples: (R, n, D), in units of x.
        context: needs a target.

    Returns:
        (R,) in units of 1/x; lower is better, of order n^(-1/2) for exact draws. O(n^2 D), in blocks.
    """
    if context.target is None:
        raise NotApplicable("the density is not available")
    scale = math.sqrt(samples.shape[2]) if context.reference is None else context.reference.bandwidth
    scores = context.target.score(samples).to(samples)
    means = [_stein_mean(x, s, scale) for x, s in zip(samples, scores, strict=True)]
    return torch.stack(means).clamp(min=0).sqrt()


def _stein_mean(x: Tensor, s: Tensor, c: float) -> Tensor:
    """Mean of the Stein kernel over all pairs of (n, D) points with scores (n, D)."""
    n, dim = x.shape
    x = x - x.mean(0)  # Gram products lose digits far from the origin
    own = (s * x).sum(1)
    total = x.new_zeros(())
    for b in row_blocks(n, n):
        r2 = squared_distances(x[None, b], x[None])[0] / c**2
        v = (1 + r2).rsqrt()
        # (s_i - s_j).(x_i - x_j) without an (n, n, D) array
        cross = own[b, None] + own - s[b] @ x.T - x[b] @ s.T
        bracket = (s[b] @ s.T) + v.square() * ((cross + dim) - 3 * r2 * v.square()) / c**2
        total = total + (v * bracket).sum()
    return total / n**2
