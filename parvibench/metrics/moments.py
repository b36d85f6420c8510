"""Errors of the first two moments: means and standard deviations in units of the target's, correlations."""

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric


@metric("lower", "sd", "moments", "root mean square error of the means, in reference sd")
def mean_error(samples: Tensor, context: Context) -> Tensor:
    """Root mean square over coordinates of (sample mean - mean) / sd.

    Mean and sd are the task's exact ones where known, the reference's otherwise.

    Args:
        samples: (R, n, D), in units of x.
        context: needs moments.

    Returns:
        (R,), in target sd; lower is better, about n^(-1/2) for exact draws. O(n D).

    >>> mean_error(x, context)
    tensor([1.0801], dtype=torch.float64)
    """
    mean, sd = _moments(context)
    return ((samples.mean(1) - mean.to(samples)) / sd.to(samples)).square().mean(1).sqrt()


@metric("lower", "1", "moments", "root mean square relative error of the standard deviations")
def sd_error(samples: Tensor, context: Context) -> Tensor:
    """Root mean square over coordinates of (sample sd / sd - 1).

    Args:
        samples: (R, n, D), n >= 2; the sample sd divides by n - 1.
        context: needs moments.

    Returns:
        (R,), relative; lower is better, about (2 n)^(-1/2) for exact Gaussian draws. O(n D).

    >>> sd_error(x, context)
    tensor([0.5582], dtype=torch.float64)
    """
    _, sd = _moments(context)
    return (samples.std(1) / sd.to(samples) - 1).square().mean(1).sqrt()


@metric("lower", "1", "reference", "root mean square error of the correlations")
def correlation_error(samples: Tensor, context: Context) -> Tensor:
    """Root mean square over pairs of coordinates of (sample correlation - the reference's).

    Args:
        samples: (R, n, D), D >= 2.
        context: needs a reference.

    Returns:
        (R,), dimensionless, in [0, 2]; lower is better, about n^(-1/2) for exact draws. NaN where a coordinate
        never varies. O((n + m) D^2).

    >>> correlation_error(x, context)
    tensor([0.], dtype=torch.float64)
    """
    dim = samples.shape[2]
    if dim == 1:
        raise NotApplicable("one coordinate has no correlations")
    _refuse_infinite(context)
    pairs = torch.triu_indices(dim, dim, 1).unbind()
    errors = [
        (torch.corrcoef(x.T) - torch.corrcoef(context.reference_rows(r).T))[pairs].square().mean().sqrt()
        for r, x in enumerate(samples)
    ]
    return torch.stack(errors)


def _refuse_infinite(context: Context) -> None:
    if context.task.facts.infinite_moments:
        raise NotApplicable("the target's second moments are infinite")


def _moments(context: Context) -> tuple[Tensor, Tensor]:
    _refuse_infinite(context)
    facts, reference = context.task.facts, context.reference
    if facts.mean is not None and facts.sd is not None:
        return facts.mean, facts.sd
    if reference is None:
        raise NotApplicable("neither exact moments nor a reference are known")
    return reference.mean, reference.sd
