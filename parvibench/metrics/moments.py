"""Errors coordinate by coordinate: of means and standard deviations, also of the worst one, of marginals; and of correlations."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.core.reference import Reference

from .common import against_reference, given

#: A tail is heavy where 0.1% of the rows make a third of a coordinate's fourth central moment: 6% of a Gaussian's, 18% of
#: Laplace's, most of Student's with three degrees of freedom. Then a sample's sd rests on a few draws.
_FEW, _THIRD = 1000, 1 / 3


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


@metric("lower", "1", "reference", "largest standardised error of a coordinate's mean or spread", when="last")
def worst_coordinate(samples: Tensor, context: Context) -> Tensor:
    """Largest error of the mean or the standard deviation of a coordinate, in standard errors of a single draw.

    ``max_d max(|sample mean - mean| / sd, |sample sd / sd - 1| / sqrt((kurtosis - 1) / 4))``, with mean and sd of the
    reference and the kurtosis of its rows. Of a coordinate with heavy tails, the shares of samples below the median of the
    rows and between their 10% and 90% quantiles, less those of the rows, each over its binomial standard deviation.

    (R,), dimensionless; lower is better, about ``sqrt(2 log(2 D) / n)`` for exact draws. O(n D).

    >>> worst_coordinate(x, context)
    tensor([1.7321], dtype=torch.float64)
    """
    reference = given(context.reference, "the task has no reference samples")
    return _errors(samples, reference).flatten(1).amax(1)


def _errors(x: Tensor, reference: Reference) -> Tensor:
    """Absolute standardised errors of the location and the spread of each coordinate of (R, n, D): (R, 2, D)."""
    quantiles, shares, unit, heavy = _marginals(reference.draws)
    heavy = heavy | reference.sd.isinf()
    below, within = (part.mean(1) for part in _inside(x, quantiles))
    moments = (x.mean(1) - reference.mean) / reference.sd, (x.std(1) / reference.sd - 1) / unit
    counts = (below - shares[0]) / 0.5, (within - shares[1]) / 0.4
    return torch.stack([torch.where(heavy, c, m) for m, c in zip(moments, counts, strict=True)], 1).abs()


@lru_cache(maxsize=4)  # the key is the tensor's identity
def _marginals(rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of the rows (m, D): quantiles (3, D), shares (2, D), standard error of log sd times sqrt(n), and heavy tails, (D,)."""
    m = len(rows)
    quantiles = rows.sort(0).values[[m // 10, m // 2, m - 1 - m // 10]]
    shares = torch.stack([part.mean(0) for part in _inside(rows, quantiles)])
    centred = rows - rows.mean(0)
    fourth = (centred**4).sort(0).values
    kurtosis = fourth.mean(0) / centred.square().mean(0) ** 2
    # of two values of equal weight the sd does not vary to first order
    unit = ((kurtosis - 1) / 4).sqrt().clamp(min=0.1)
    return quantiles, shares, unit, fourth[-max(1, m // _FEW) :].sum(0) > _THIRD * fourth.sum(0)


def _inside(x: Tensor, quantiles: Tensor) -> tuple[Tensor, Tensor]:
    """Of every number of x, (..., D), whether it is at most the median, and between the outer quantiles: 0 or 1."""
    low, middle, high = quantiles
    return (x <= middle).to(x), ((x >= low) & (x <= high)).to(x)


def worst_named(x: Tensor, context: Context, names: Sequence[str], limit: float, most: int = 3) -> str:
    """Means and spreads of (n, D) samples that differ from the reference's by more than ``limit``, worst first."""
    reference = given(context.reference, "the task has no reference samples")
    x = reference.in_units(context.task.canonical(x))
    reference = reference if reference.units is None else reference.standardised
    quantiles, _, _, heavy = _marginals(reference.draws)
    heavy, errors = heavy | reference.sd.isinf(), _errors(x[None], reference)[0].flatten()
    ordered = x.sort(0).values
    widths = ordered[len(x) - 1 - len(x) // 10] - ordered[len(x) // 10], quantiles[2] - quantiles[0]
    parts = []
    for i in errors.argsort(descending=True)[: int((errors > limit).sum())].tolist():
        spread, d = divmod(i, x.shape[1])
        if heavy[d] and spread:
            parts.append(f"10-90% range of {names[d]}: {widths[0][d] / widths[1][d]:.2f} of the reference's")
        elif heavy[d]:
            parts.append(
                f"median of {names[d]}: {_inside(x, quantiles)[0][:, d].mean():.1%} of the samples below the reference's"
            )
        elif spread:
            parts.append(f"sd of {names[d]}: {x[:, d].std() / reference.sd[d]:.2f} of the reference's")
        else:
            parts.append(
                f"mean of {names[d]}: {(x[:, d].mean() - reference.mean[d]) / reference.sd[d]:+.2f} sd from the reference's"
            )
    return ", ".join(parts[:most]) + (f", and {len(parts) - most} more" if len(parts) > most else "")
