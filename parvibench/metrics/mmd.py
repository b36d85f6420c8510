"""Maximum mean discrepancy to the reference, and the energy distance.

``MMD^2 = E k(x, x') - 2 E k(x, y) + E k(y, y')`` for x, x' from the samples and y, y' from the reference
(Gretton et al. 2012, JMLR 13:723-773, Eq. 5 squared), estimated by means over all pairs (V-statistic) or over
pairs of different rows (U-statistic). The bandwidth h is the median distance between reference rows, fixed
per task.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from torch import Tensor

from parvibench.core.metric import Context, metric
from parvibench.kernels.gram import squared_distances

from .common import against_reference, row_blocks

#: (||x - y||^2 / h^2, overwritten) -> k(x, y), with k(x, x) = 1.
Kernel = Callable[[Tensor], Tensor]
#: h of the kernel exp(-||x - y||^2 / 10).
_FIXED_BANDWIDTH = math.sqrt(5)


def gaussian(q: Tensor) -> Tensor:
    """``exp(-||x - y||^2 / (2 h^2))``."""
    return q.mul_(-0.5).exp_()


@metric("lower", "1", "reference", "squared MMD, V-statistic, RBF at the reference's median distance", floor_ratio=True)
def mmd2(samples: Tensor, context: Context) -> Tensor:
    """Squared maximum mean discrepancy, V-statistic, Gaussian kernel.

    ``mean_ij k(x_i, x_j) - 2 mean_ij k(x_i, y_j) + mean_ij k(y_i, y_j)``,
    ``k(x, y) = exp(-||x - y||^2 / (2 h^2))``.

    (R,), dimensionless, in [0, 2]; lower is better, about (1 - E k)/n for n exact draws. O(n (n + m) D) a replicate,
    in blocks; the reference's own term comes from its certificate.

    >>> mmd2(x, context)
    tensor([0.6011], dtype=torch.float64)
    """
    return _statistic(samples, context).clamp(min=0)


@metric("lower", "1", "reference", "squared MMD, U-statistic, RBF at the reference's median distance")
def mmd2_u(samples: Tensor, context: Context) -> Tensor:
    """Squared maximum mean discrepancy, U-statistic, Gaussian kernel.

    As ``mmd2`` without the pairs i = j (Gretton et al. 2012, Eq. 3): unbiased, so zero in expectation for
    exact draws against exact draws.

    (R,), dimensionless, at most 2 and possibly negative; lower is better. Cost as ``mmd2``.

    >>> mmd2_u(x, context)
    tensor([0.3646], dtype=torch.float64)
    """
    return _statistic(samples, context, unbiased=True)


@metric("lower", "1", "reference", "squared MMD, U-statistic, kernel exp(-||x - y||^2 / 10) whatever the task")
def mmd2_u_fixed(samples: Tensor, context: Context) -> Tensor:
    """Squared maximum mean discrepancy, U-statistic, with the SRLD authors' kernel.

    As ``mmd2_u`` with ``k(x, y) = exp(-0.1 ||x - y||^2)``, the one that the program of Ye, Ren & Liu (2020),
    arXiv:2002.09070, takes for its two-dimensional targets; the paper names none.

    (R,), dimensionless, at most 2 and possibly negative; lower is better. Cost as ``mmd2``, and once O(m^2 D) for the reference's own term.

    >>> mmd2_u_fixed(x, context)
    tensor([0.2385], dtype=torch.float64)
    """
    return _statistic(samples, context, bandwidth=_FIXED_BANDWIDTH, unbiased=True)


@metric("lower", "x", "reference", "energy distance, V-statistic, no root", when="last", floor_ratio=True)
def energy_distance(samples: Tensor, context: Context) -> Tensor:
    """Energy distance, V-statistic.

    ``2 mean_ij ||x_i - y_j|| - mean_ij ||x_i - x_j|| - mean_ij ||y_i - y_j||`` (Szekely & Rizzo 2013, JSPI
    143:1249-1272, Eq. 6.1): the squared maximum mean discrepancy of the kernel -||x - y||, which needs no
    bandwidth. No root is taken.

    (R,) in units of x; lower is better, about E||x - x'|| / n for n exact draws. O((n + m)^2 D) for the first
    replicate, in blocks, and O(n (n + m) D) for the others, which share the reference's own term.

    >>> energy_distance(x, context)
    tensor([1.4716], dtype=torch.float64)
    """

    def distance(x: Tensor, rows: Tensor) -> float:
        return 2 * mean_distance(x, rows) - mean_distance(x, x) - _own_distance(rows)

    return against_reference(samples, context, distance).clamp(min=0)


def kernel_mean(x: Tensor, y: Tensor, bandwidth: float) -> float:
    """Mean of the Gaussian k(x_i, y_j) over all pairs, (n, D) and (m, D); ``bandwidth`` is h, > 0; absolute error below 1e-7."""
    return _pair_sum(x, y, bandwidth, gaussian) / (len(x) * len(y))


def mean_distance(x: Tensor, y: Tensor) -> float:
    """Mean of ||x_i - y_j|| over all pairs, (n, D) and (m, D), in units of x; relative error below 1e-6."""
    scale = float(y.std(0).norm()) or 1.0
    total = _pair_sum(x, y, scale, Tensor.sqrt_, zero_diagonal=x is y)  # the root would blow up the rounding of zero
    return scale * total / (len(x) * len(y))


def _pair_sum(x: Tensor, y: Tensor, scale: float, function: Kernel, zero_diagonal: bool = False) -> float:
    """Sum over all pairs of a function of ||x_i - y_j||^2 / scale^2, which it overwrites.

    In single precision, blocks summed in double, at a third of the time.
    """
    # About the centre of y: far out kernels vanish, and squares must not overflow.
    a, b = (((side - y.mean(0)) / scale).clamp(-1e15, 1e15).float() for side in (x, y))
    total = 0.0
    for block in row_blocks(len(x), len(y), wide=True):
        q = squared_distances(a[None, block], b[None])[0]
        if zero_diagonal:
            q[:, block].diagonal().zero_()
        total += float(function(q).sum())
    return total


@lru_cache(maxsize=4)
def self_similarity(rows: Tensor, bandwidth: float) -> float:
    """Mean of the Gaussian k over all pairs of reference rows; the cache's key is the tensor's identity."""
    return kernel_mean(rows, rows, bandwidth)


_own_distance = lru_cache(maxsize=2)(lambda rows: mean_distance(rows, rows))  # the cache's key is the tensor's identity


def _statistic(samples: Tensor, context: Context, bandwidth: float | None = None, unbiased: bool = False) -> Tensor:
    """V-statistic, or U-statistic; with the reference's bandwidth by default."""

    def distance(x: Tensor, rows: Tensor) -> float:
        reference = context.reference
        assert reference is not None  # these are its rows
        h, n, m = bandwidth or reference.bandwidth, len(x), len(rows)
        recorded = reference.certificate.get("self_similarity")  # over all rows
        if recorded is not None and bandwidth is None and rows is reference.draws:
            term = float(recorded)
        else:
            term = self_similarity(rows, h)
        inner = kernel_mean(x, x, h)
        if unbiased:
            inner, term = (n * inner - 1) / (n - 1), (m * term - 1) / (m - 1)
        return inner - 2 * kernel_mean(x, rows, h) + term

    return against_reference(samples, context, distance)
