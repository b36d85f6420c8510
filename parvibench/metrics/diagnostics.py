"""Diagnostics that algorithms report of their steps, as metrics: means since the previous checkpoint.

Of log Z the last estimate counts. Z is the integral of exp(log density), and log Z the evidence where the density is a joint
one with all constants.
"""

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


@metric("neutral", "nats", "diagnostics", "estimate of log Z, the logarithm of the normalising constant")
def log_z(samples: Tensor, context: Context) -> Tensor:
    """Estimated logarithm of the integral of exp(log density), (R,); neither direction is better.

    >>> log_z(x, Context(banana, diagnostics={"log_z": torch.tensor([0.5])}))
    tensor([0.5000], dtype=torch.float64)
    """
    return _reported("log_z", samples, context)


@metric("neutral", "nats", "diagnostics", "standard error of log Z, as the method itself estimates it")
def log_z_se(samples: Tensor, context: Context) -> Tensor:
    """Standard error of ``log_z`` by the method's own account, (R,): of one run, and too small where it missed mass.

    >>> log_z_se(x, Context(banana, diagnostics={"log_z_se": torch.tensor([0.5])}))
    tensor([0.5000], dtype=torch.float64)
    """
    return _reported("log_z_se", samples, context)


@metric("lower", "nats", "diagnostics", "absolute error of log Z, where the task states it")
def log_z_error(samples: Tensor, context: Context) -> Tensor:
    """Absolute difference of ``log_z`` from the task's, (R,); lower is better.

    >>> from dataclasses import replace
    >>> from parvibench.core.task import Facts
    >>> task = replace(banana, facts=Facts(log_z=1.5))
    >>> log_z_error(x, Context(task, diagnostics={"log_z": torch.tensor([0.5])}))
    tensor([1.], dtype=torch.float64)
    """
    if context.task.facts.log_z is None:
        raise NotApplicable("the task states no log Z")
    return (_reported("log_z", samples, context) - context.task.facts.log_z).abs()


def _reported(name: str, samples: Tensor, context: Context) -> Tensor:
    found = context.diagnostics.get(name)
    if found is None:
        raise NotApplicable("the algorithm reports none")
    return found.to(samples)
