"""Discrepancy between samples and reference: divergence by nearest neighbours, accuracy of a classifier."""

import math
from functools import lru_cache

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.kernels.gram import squared_distances

from .common import against_reference, row_blocks, thin

NEIGHBOUR = 3
#: Metrics of nearest neighbours: copies are at distance zero.
NEAREST = ("kl_knn",)
#: Up to this dimension a k-d tree is faster than all pairs.
TREE_DIMENSIONS = 8
#: Candidates beyond the k-th neighbour that are measured exactly.
SPARE = 5
#: Of the classifier: folds, features, rows of either side.
FOLDS, CENTRES, MOST_POINTS = 5, 100, 1000
#: In reference sds: the kernel is zero far below it, and squares stay finite.
FARTHEST = 1e6


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
        # Single precision and Gram products blur distances: a few more candidates, measured again.
        count = min(k + SPARE, len(points))
        candidates = squared_distances(near[None, block], far[None])[0].topk(count, dim=1, largest=False).indices
        exact = (queries[block, None] - points[candidates]).norm(dim=2)
        found[block] = exact.kthvalue(k, dim=1).values
    return found


_tree = lru_cache(maxsize=2)(lambda points: cKDTree(points.numpy()))  # the cache's key is the tensor's identity


@metric("lower", "1", "reference", "accuracy of a classifier against the reference; 0.5 for exact draws", when="last")
def c2st(samples: Tensor, context: Context) -> Tensor:
    """Accuracy of a classifier that separates samples from reference rows, on held-out points.

    Five-fold cross-validated accuracy (Lopez-Paz & Oquab 2017, arXiv:1610.06545) of ridge regression on 100
    Nystroem features of the Gaussian kernel ``exp(-||z - z'||^2 / (2 D))``, z in reference sds about the
    reference's mean. As many evenly spaced reference rows as samples enter, at most 1,000 of each; folds and
    features are fixed by a seed, and depend on the order of the samples. Unlike a nearest-neighbour
    classifier it detects samples that are too narrow in 20 dimensions and more.

    (R,), a share; lower is better, about 0.5 for exact draws and 1 for samples that are fully separable. About 0.3 s
    a replicate at n = 1000. Needs n >= 5 and as many reference rows.

    >>> c2st(torch.cat([x, x], 1), Context(banana, Reference(square.repeat(2, 1), True, {})))
    tensor([0.8000], dtype=torch.float64)
    """
    return against_reference(samples, context, _accuracy)


def _accuracy(x: Tensor, rows: Tensor) -> float:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline

    n, dim = min(len(x), len(rows), MOST_POINTS), x.shape[1]
    if n < FOLDS:
        raise NotApplicable(f"{FOLDS} folds need as many samples and reference rows, got {n}")
    mean, sd = rows.mean(0), rows.std(0)
    sides = [((thin(side, n) - mean) / sd).clamp(-FARTHEST, FARTHEST).numpy() for side in (x, rows)]
    features = Nystroem(gamma=0.5 / dim, n_components=min(CENTRES, n), random_state=0)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    labels = np.repeat([0, 1], n)
    scores = cross_val_score(make_pipeline(features, RidgeClassifier()), np.concatenate(sides), labels, cv=folds)
    return float(scores.mean())
