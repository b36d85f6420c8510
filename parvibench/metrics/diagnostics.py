"""Diagnostics that algorithms report of their steps, as metrics: means since the previous checkpoint."""

from __future__ import annotations

from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric


@metric("neutral", "1", "diagnostics", "mean acceptance probability since the checkpoint before")
def acceptance(samples: Tensor, context: Context) -> Tensor:
    """Mean probability of accepting a proposal, (R,) in [0, 1]; neither direction is better.

    >>> acceptance(x, Context(banana, diagnostics={"acceptance": torch.tensor([0.5])}))
    tensor([0.5000], dtype=torch.float64)
    """
    return _reported("acceptance", samples, context)


@metric("lower", "1", "diagnostics", "share of divergent transitions since the checkpoint before")
def divergences(samples: Tensor, context: Context) -> Tensor:
    """Share of transitions whose energy error exceeded 1000 or was not a number, (R,); lower is better.

    >>> divergences(x, Context(banana, diagnostics={"divergences": torch.tensor([0.5])}))
    tensor([0.5000], dtype=torch.float64)
    """
    return _reported("divergences", samples, context)


@metric("neutral", "doublings", "diagnostics", "mean doublings of a trajectory since the checkpoint before")
def tree_depth(samples: Tensor, context: Context) -> Tensor:
    """Mean number of doublings of a trajectory of NUTS, (R,); neither direction is better.

    >>> tree_depth(x, Context(banana, diagnostics={"tree_depth": torch.tensor([0.5])}))
    tensor([0.5000], dtype=torch.float64)
    """
    return _reported("tree_depth", samples, context)


@metric("neutral", "1", "diagnostics", "mean loss of the refitted network since the checkpoint before")
def refit_loss(samples: Tensor, context: Context) -> Tensor:
    """Mean loss of the network that is refitted in every step, (R,); comparable within one method only.

    >>> refit_loss(x, Context(banana, diagnostics={"refit_loss": torch.tensor([0.5])}))
    tensor([0.5000], dtype=torch.float64)
    """
    return _reported("refit_loss", samples, context)


def _reported(name: str, samples: Tensor, context: Context) -> Tensor:
    found = context.diagnostics.get(name)
    if found is None:
        raise NotApplicable("the algorithm reports none")
    return found.to(samples)
