"""Maximum mean discrepancy to the reference."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from parvibench.core.metric import Context
from parvibench.kernels.gram import squared_distances

from .pairwise import row_blocks


def mmd2(samples: Tensor, context: Context) -> Tensor:
    """Squared maximum mean discrepancy, V-statistic, Gaussian kernel.

    ``mean_ij k(x_i, x_j) - 2 mean_ij k(x_i, y_j) + mean_ij k(y_i, y_j)`` with
    ``k(x, y) = exp(-||x - y||^2 / (2 h^2))`` and h the median distance between reference rows, fixed
    per task. Gretton et al. (2012), JMLR 13:723-773, Eq. 5 (squared).

    Args:
        samples: (R, n, D), in units of x.
        context: needs a reference.

    Returns:
        (R,), dimensionless, in [0, 2]; lower is better, about (1 - E k)/n for n exact draws.
        O(n (n + m) D) a replicate, in blocks; the reference's own term comes from its certificate.
    """
    values = []
    for r, x in enumerate(samples):
        rows = context.reference_rows(r)
        assert context.reference is not None  # reference_rows has just looked
        h = context.reference.bandwidth
        own = context.reference.certificate.get("self_similarity")
        if own is None or rows is not context.reference.draws:
            own = self_similarity(rows, h)
        values.append(kernel_mean(x, x, h) - 2 * kernel_mean(x, rows, h) + own)
    return torch.tensor(values, dtype=samples.dtype).clamp(min=0)


def kernel_mean(x: Tensor, y: Tensor, bandwidth: float) -> float:
    """Mean of k(x_i, y_j) over all pairs, (n, D) and (m, D); ``bandwidth`` is the kernel's sd, > 0."""
    scale = -0.5 / bandwidth**2
    total = sum(
        float(squared_distances(x[None, block], y[None]).mul_(scale).exp_().sum())
        for block in row_blocks(len(x), len(y))
    )
    return total / (len(x) * len(y))


@lru_cache(maxsize=4)
def self_similarity(rows: Tensor, bandwidth: float) -> float:
    """Mean of k over all pairs of reference rows; the cache's key is the tensor's identity."""
    return kernel_mean(rows, rows, bandwidth)
