"""Errors of the first two marginal moments, in units of the target's standard deviation."""

from __future__ import annotations

from torch import Tensor

from parvibench.core.metric import Context, NotApplicable


def mean_error(samples: Tensor, context: Context) -> Tensor:
    """Root mean square over coordinates of (sample mean - mean) / sd.

    Mean and sd are the task's exact ones where known, the reference's otherwise.

    Args:
        samples: (R, n, D), in units of x.
        context: needs moments.

    Returns:
        (R,), in target sd; lower is better, about n^(-1/2) for exact draws. O(n D).
    """
    mean, sd = _moments(context)
    return ((samples.mean(1) - mean.to(samples)) / sd.to(samples)).square().mean(1).sqrt()


def sd_error(samples: Tensor, context: Context) -> Tensor:
    """Root mean square over coordinates of (sample sd / sd - 1).

    Args:
        samples: (R, n, D), n >= 2; the sample sd divides by n - 1.
        context: needs moments.

    Returns:
        (R,), relative; lower is better, about (2 n)^(-1/2) for exact Gaussian draws. O(n D).
    """
    _, sd = _moments(context)
    return (samples.std(1) / sd.to(samples) - 1).square().mean(1).sqrt()


def _moments(context: Context) -> tuple[Tensor, Tensor]:
    facts, reference = context.task.facts, context.reference
    if facts.mean is not None and facts.sd is not None:
        return facts.mean, facts.sd
    if reference is None:
        raise NotApplicable("neither exact moments nor a reference are known")
    return reference.mean, reference.sd
