"""Distances between one-dimensional marginals."""

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


@metric("lower", "x", "reference", "1-Wasserstein distances of the coordinates, summed")
def w1_marginal(samples: Tensor, context: Context) -> Tensor:
    """Sum over coordinates of the 1-Wasserstein distances between the marginals.

    ``sum_d int |F_d(t) - G_d(t)| dt``, F_d and G_d as in ``ks_marginal``. It is what Ye, Ren & Liu (2020),
    arXiv:2002.09070, call Wasserstein distance, by their program; it sees no dependence between coordinates.

    Args:
        samples: (R, n, D), in units of x.
        context: needs a reference.

    Returns:
        (R,) in units of x; lower is better, of order D n^(-1/2) for exact draws. O((n + m) log(n + m) D).

    >>> w1_marginal(x, context)
    tensor([2.], dtype=torch.float64)
    """
    values = []
    for r, x in enumerate(samples):
        a, b = _ordered(x), _ordered_reference(context.reference_rows(r))
        ends = torch.cat((a, b), 1).sort(1).values
        # Both functions are constant between neighbouring points of the two samples together.
        gaps = (_cdf(a, ends[:, :-1].contiguous(), True) - _cdf(b, ends[:, :-1].contiguous(), True)).abs()
        values.append((gaps * ends.diff(dim=1)).sum())
    return torch.stack(values)


def _ordered(x: Tensor) -> Tensor:
    """(n, D) -> (D, n), each row ascending."""
    return x.T.contiguous().sort(1).values


_ordered_reference = lru_cache(maxsize=2)(_ordered)  # the cache's key is the tensor's identity


def _cdf(ordered: Tensor, at: Tensor, right: bool) -> Tensor:
    """Empirical distribution functions of the rows of (D, n) ascending points at (D, k) places, or just before."""
    return torch.searchsorted(ordered, at, right=right).to(ordered) / ordered.shape[1]
