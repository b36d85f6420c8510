"""Errors coordinate by coordinate: of means and standard deviations, of marginals; and of correlations."""

from functools import lru_cache

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric

from .needs import against_reference, given


@metric("lower", "sd", "moments", "root mean square error of the means, in reference sd")
def mean_error(samples: Tensor, context: Context) -> Tensor:
    """Root mean square over coordinates of (sample mean - mean) / sd.

    Mean and sd are the task's exact ones where known, the reference's otherwise.

    (R,), in target sd; lower is better, about n^(-1/2) for exact draws. O(n D).

    >>> mean_error(x, context)
    tensor([1.0801], dtype=torch.float64)
    """
    mean, sd = _moments(context)
    return ((samples.mean(1) - mean.to(samples)) / sd.to(samples)).square().mean(1).sqrt()


@metric("lower", "1", "moments", "root mean square relative error of the standard deviations")
def sd_error(samples: Tensor, context: Context) -> Tensor:
    """Root mean square over coordinates of (sample sd / sd - 1).

    (R,), relative; lower is better, about (2 n)^(-1/2) for exact Gaussian draws; the sample sd divides by n - 1. O(n D).

    >>> sd_error(x, context)
    tensor([0.5582], dtype=torch.float64)
    """
    _, sd = _moments(context)
    return (samples.std(1) / sd.to(samples) - 1).square().mean(1).sqrt()


@metric("lower", "1", "reference", "root mean square error of the correlations")
def correlation_error(samples: Tensor, context: Context) -> Tensor:
    """Root mean square over pairs of coordinates of (sample correlation - the reference's).

    (R,), dimensionless, in [0, 2]; lower is better, about n^(-1/2) for exact draws. NaN where a coordinate never
    varies. O((n + m) D^2). Needs D >= 2.

    >>> correlation_error(x, context)
    tensor([0.], dtype=torch.float64)
    """
    dim = samples.shape[2]
    if dim == 1:
        raise NotApplicable("one coordinate has no correlations")
    _refuse_infinite(context)
    pairs = torch.triu_indices(dim, dim, 1).unbind()

    def error(x: Tensor, rows: Tensor) -> Tensor:
        return (torch.corrcoef(x.T) - _reference_correlations(rows))[pairs].square().mean().sqrt()

    return against_reference(samples, context, error)


_reference_correlations = lru_cache(maxsize=2)(lambda rows: torch.corrcoef(rows.T))  # the key is the tensor's identity


def _refuse_infinite(context: Context) -> None:
    if context.task.facts.infinite_moments:
        raise NotApplicable("the target's second moments are infinite")


def _moments(context: Context) -> tuple[Tensor, Tensor]:
    _refuse_infinite(context)
    facts = context.task.facts
    if facts.mean is not None and facts.sd is not None:
        return facts.mean, facts.sd
    reference = given(context.reference, "neither exact moments nor a reference are known")
    return reference.mean, reference.sd


@metric("lower", "1", "reference", "largest Kolmogorov-Smirnov distance over coordinates")
def ks_marginal(samples: Tensor, context: Context) -> Tensor:
    """Largest Kolmogorov-Smirnov distance over the coordinates.

    ``max_d sup_t |F_d(t) - G_d(t)|`` with F_d and G_d the empirical distribution functions of coordinate d of
    samples and reference. It depends on the marginals only, and is invariant under increasing maps of a coordinate.

    (R,), a probability in [0, 1]; lower is better, of order n^(-1/2) for exact draws. O(n log(n m) D) once the
    reference is sorted.

    >>> ks_marginal(x, context)
    tensor([0.5000], dtype=torch.float64)
    """

    def distance(x: Tensor, rows: Tensor) -> Tensor:
        a, b = _ordered(x), _ordered_reference(rows)
        # Between two samples F is constant and G rises: they are farthest apart at a sample, or just before.
        gaps = [(_cdf(a, a, right) - _cdf(b, a, right)).abs().amax() for right in (True, False)]
        return torch.stack(gaps).amax()

    return against_reference(samples, context, distance)


@metric("lower", "x", "reference", "1-Wasserstein distances of the coordinates, summed")
def w1_marginal(samples: Tensor, context: Context) -> Tensor:
    """Sum over coordinates of the 1-Wasserstein distances between the marginals.

    ``sum_d int |F_d(t) - G_d(t)| dt``, F_d and G_d as in ``ks_marginal``. It is what Ye, Ren & Liu (2020),
    arXiv:2002.09070, call Wasserstein distance, by their program; it sees no dependence between coordinates.

    (R,) in units of x; lower is better, of order D n^(-1/2) for exact draws. O((n + m) log(n + m) D).

    >>> w1_marginal(x, context)
    tensor([2.], dtype=torch.float64)
    """

    def distance(x: Tensor, rows: Tensor) -> Tensor:
        a, b = _ordered(x), _ordered_reference(rows)
        ends = torch.cat((a, b), 1).sort(1).values
        starts = ends[:, :-1].contiguous()
        # Both functions are constant between neighbouring points of the two samples together.
        return ((_cdf(a, starts, True) - _cdf(b, starts, True)).abs() * ends.diff(dim=1)).sum()

    return against_reference(samples, context, distance)


def _ordered(x: Tensor) -> Tensor:
    """(n, D) -> (D, n), each row ascending."""
    return x.T.contiguous().sort(1).values


_ordered_reference = lru_cache(maxsize=2)(_ordered)  # the cache's key is the tensor's identity


def _cdf(ordered: Tensor, at: Tensor, right: bool) -> Tensor:
    """Empirical distribution functions of the rows of (D, n) ascending points at (D, k) places, or just before."""
    return torch.searchsorted(ordered, at, right=right).to(ordered) / ordered.shape[1]
