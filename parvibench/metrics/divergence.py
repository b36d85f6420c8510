"""Kullback-Leibler divergence from the reference by nearest neighbours."""

import math
from functools import lru_cache

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.kernels.gram import squared_distances

from .needs import against_reference
from .pairwise import row_blocks

NEIGHBOUR = 3
#: Up to this dimension a k-d tree is faster than all pairs.
TREE_DIMENSIONS = 8
#: Candidates beyond the k-th neighbour that are measured exactly.
SPARE = 5


@metric("lower", "nats", "reference", "KL(samples || reference) by third nearest neighbours")
def kl_knn(samples: Tensor, context: Context) -> Tensor:
    """Kullback-Leibler divergence KL(samples || reference) by third nearest neighbours.

    ``D mean_i log(nu_i / rho_i) + log(m / (n - 1))``, where rho_i is the distance of x_i to its third
    neighbour among the other samples and nu_i to its third among the m reference rows (Perez-Cruz 2008,
    ISIT, Eq. 14; Wang, Kulkarni & Verdu 2009, IEEE Trans. Inf. Theory 55:2392-2405). Consistent, and biased at
    any n: compare with the floor.

    (R,) in nats; lower is better, near zero and possibly negative for exact draws; +inf when four or more samples
    coincide. A k-d tree up to D = 8, O(n (n + m) D) in blocks beyond. Needs n >= 4.

    >>> kl_knn(x, context)
    tensor([0.6900], dtype=torch.float64)
    """
    n, dim = samples.shape[1:]
    if n <= NEIGHBOUR:
        raise NotApplicable(f"n = {n} samples have no {NEIGHBOUR}rd neighbour: at least {NEIGHBOUR + 1}")

    def divergence(x: Tensor, rows: Tensor) -> Tensor:
        if len(rows) < NEIGHBOUR:
            raise NotApplicable(f"the reference has {len(rows)} rows: at least {NEIGHBOUR} are needed")
        own = _neighbour_distance(x, x, NEIGHBOUR + 1)  # every sample is its own first neighbour
        other = _neighbour_distance(rows, x, NEIGHBOUR)
        value = dim * (other / own).log().mean() + math.log(len(rows) / (n - 1))
        return torch.where(own.eq(0).any(), math.inf, value)

    return against_reference(samples, context, divergence)


def _neighbour_distance(points: Tensor, queries: Tensor, k: int) -> Tensor:
    """Distance of every query (n, D) to its k-th nearest point (m, D), (n,) in units of x."""
    if points.shape[1] <= TREE_DIMENSIONS:
        return torch.from_numpy(_tree(points).query(queries.numpy(), k=[k])[0][:, 0])
    found = queries.new_empty(len(queries))  # small tensors between large blocks would fragment the memory
    centre = points.mean(0)
    near, far = (queries - centre).float(), (points - centre).float()
    for block in row_blocks(len(queries), len(points), wide=True):
        # Single precision and Gram products blur distances: a few more candidates, measured anew.
        count = min(k + SPARE, len(points))
        candidates = squared_distances(near[None, block], far[None])[0].topk(count, dim=1, largest=False).indices
        exact = (queries[block, None] - points[candidates]).norm(dim=2)
        found[block] = exact.kthvalue(k, dim=1).values
    return found


@lru_cache(maxsize=2)
def _tree(points: Tensor) -> cKDTree:
    """The cache's key is the tensor's identity."""
    return cKDTree(points.numpy())
