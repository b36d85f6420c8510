"""What a chain's whole path, (R, T, N, D), is worth, where other metrics judge its last states."""

from dataclasses import replace

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.core.registry import load_metric

from .equivalent import equivalent_sample_size
from .needs import given

MOST_STATES = 1000


@metric("lower", "of the primary", "path", "the task's primary metric on the whole path of a chain", when="last")
def path_primary(samples: Tensor, context: Context) -> Tensor:
    """The task's primary metric on at most 1,000 states spread evenly over the path after the burn-in.

    (R,) in the primary metric's unit; NaN where the path is not finite. Needs T N >= 2, and what that metric needs.

    >>> path_primary(x, Context(banana, context.reference, path=x.repeat(1, 4, 1)[:, :, None]))
    tensor([0.9851], dtype=torch.float64)
    """
    states = whole_path(context)
    finite = states.isfinite().flatten(1).all(1)
    usable = torch.where(finite[:, None, None], states, 0.0)
    found = load_metric(context.task.primary).compute(usable, replace(context, excluded_rows=None))
    return torch.where(finite, found, torch.nan)


@metric("higher", "draws", "path", "equivalent n of the whole path of a chain", when="last")
def path_equivalent_n(samples: Tensor, context: Context) -> Tensor:
    """How many independent exact draws come as close by the primary metric as the whole path (``path_primary``).

    (R,) in draws, at most four times the states judged; 0 for a path worse than the fewest draws simulated. Needs
    T N >= 2, and floors of the primary metric.

    >>> path_equivalent_n(x, Context(banana, context.reference, path=x.repeat(1, 4, 1)[:, :, None]))
    tensor([5.6452], dtype=torch.float64)
    """
    reference, primary = context.task.floored(), context.task.primary
    if reference is None or not reference.floors.get(primary):
        raise NotApplicable(f"{primary} has no floors on this task")
    states = whole_path(context).shape[1]
    sizes = []
    for value in path_primary(samples, context).tolist():
        size, _, reason = equivalent_sample_size(primary, value, states, reference)
        if size is None and not reason.startswith(("worse than", "the value is not finite")):
            raise NotApplicable(reason)
        sizes.append(size or 0.0)
    return torch.tensor(sizes, dtype=samples.dtype)


def whole_path(context: Context) -> Tensor:
    """At most 1,000 states (R, m, D), evenly spread over the times of a path and cycling through its chains."""
    path = given(context.path, "no chain path is recorded")
    _, times, chains, _ = path.shape
    states = min(MOST_STATES, times * chains)
    if states < 2:
        raise NotApplicable(f"the chain path has {states} states; at least 2 are needed")
    order = torch.arange(states)
    when = ((order.double() + 0.5) * times / states).long()
    return path[:, when, order % chains].to(torch.float64)
