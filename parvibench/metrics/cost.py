"""What the samples have cost, as metrics beside the others."""

from __future__ import annotations

from torch import Tensor

from parvibench.core.metric import Context, Cost, NotApplicable


def seconds(samples: Tensor, context: Context) -> Tensor:
    """Steady compute time of one replicate, (R,) in seconds; lower is better.

    Metrics, compilation and warm-up are not in it; replicates of a chunk share its time evenly.
    """
    return samples.new_full((len(samples),), _cost(context).seconds)


def score_evaluations(samples: Tensor, context: Context) -> Tensor:
    """Score evaluations charged to one replicate, (R,) in rows; lower is better."""
    return samples.new_full((len(samples),), _cost(context).score_evaluations)


def _cost(context: Context) -> Cost:
    if context.cost is None:
        raise NotApplicable("no cost was recorded")
    return context.cost
