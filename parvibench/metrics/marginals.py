"""Distances between one-dimensional marginals."""

from __future__ import annotations

import torch
from torch import Tensor

from parvibench.core.metric import Context


def ks_marginal(samples: Tensor, context: Context) -> Tensor:
    """Largest Kolmogorov-Smirnov distance over the coordinates.

    ``max_d sup_t |F_d(t) - G_d(t)|`` with F_d and G_d the empirical distribution functions of coordinate d of
    samples and reference. Blind to everything but the marginals, and to monotone maps of them.

    Args:
        samples: (R, n, D).
        context: needs a reference.

    Returns:
        (R,), a probability in [0, 1]; lower is better, of order n^(-1/2) for exact draws.
        O((n + m) log(n + m) D).
    """
    values = []
    for r, x in enumerate(samples):
        a, b = (side.T.contiguous().sort(1).values for side in (x, context.reference_rows(r)))
        # Both functions are steps: they are farthest apart at one of the points.
        gaps = [(_cdf(a, t) - _cdf(b, t)).abs().amax() for t in (a, b)]
        values.append(torch.stack(gaps).amax())
    return torch.stack(values)


def _cdf(ordered: Tensor, at: Tensor) -> Tensor:
    """Empirical distribution functions of the rows of (D, n) ascending points at (D, k) places."""
    return torch.searchsorted(ordered, at, right=True) / ordered.shape[1]
