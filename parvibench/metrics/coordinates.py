"""The worst coordinate: means and spreads one by one, where other metrics average over coordinates."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from parvibench.core.metric import Context, metric
from parvibench.core.reference import Reference

from .needs import given

#: A tail is heavy where 0.1% of the rows make a third of a coordinate's fourth central moment: 6% of a Gaussian's, 18% of
#: Laplace's, most of Student's with three degrees of freedom. Then a sample's sd rests on a few draws.
_FEW, _THIRD = 1000, 1 / 3


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
