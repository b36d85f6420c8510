"""Distances between one-dimensional marginals."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from parvibench.core.metric import Context, metric


@metric("lower", "1", "reference", "largest Kolmogorov-Smirnov distance over coordinates")
def ks_marginal(samples: Tensor, context: Context) -> Tensor:
    """Largest Kolmogorov-Smirnov distance over the coordinates.

    ``max_d sup_t |F_d(t) - G_d(t)|`` with F_d and G_d the empirical distribution functions of coordinate d of
    samples and reference. It depends on the marginals only, and is
    invariant under increasing maps of a coordinate.

    Args:
        samples: (R, n, D).
        context: needs a reference.

    Returns:
        (R,), a probability in [0, 1]; lower is better, of order n^(-1/2) for exact draws. O(n log(n m) D) once
        the reference is sorted.

    >>> ks_marginal(x, context)
    tensor([0.5000], dtype=torch.float64)
    """
    values = []
    for r, x in enumerate(samples):
        a, b = _ordered(x), _ordered_reference(context.reference_rows(r))
        # Between two samples F is constant and G rises: they are farthest apart at a sample, or just before.
        gaps = [(_cdf(a, a, right) - _cdf(b, a, right)).abs().amax() for right in (True, False)]
        values.append(torch.stack(gaps).amax())
    return torch.stack(values)


def _ordered(x: Tensor) -> Tensor:
    """(n, D) -> (D, n), each row ascending."""
    return x.T.contiguous().sort(1).values


_ordered_reference = lru_cache(maxsize=2)(_ordered)  # the cache's key is the tensor's identity


def _cdf(ordered: Tensor, at: Tensor, right: bool) -> Tensor:
    """Empirical distribution functions of the rows of (D, n) ascending points at (D, k) places, or just before."""
    return torch.searchsorted(ordered, at, right=right).to(ordered) / ordered.shape[1]
