"""Movement of the particles at the end of a run."""

from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric


@metric("neutral", "x", "motion", "mean distance moved over the last fifth of the budget", when="last")
def displacement(samples: Tensor, context: Context) -> Tensor:
    """Mean distance that particles or chains moved over the last fifth of the budget.

    ``mean_i ||x_i(end) - x_i(0.8 of the budget)||``: near zero for particles that no longer move, converged or
    not (Zhang, Cheng & Zhang 2024, arXiv:2410.17935, Fig. 2, compare two such moments).

    Args:
        samples: (R, n, D); not used.
        context: needs the two moments' positions.

    Returns:
        (R,) in units of x; neither direction is better. O(N D).

    >>> displacement(x, Context(banana, moved=(x, x + 3)))
    tensor([4.2426], dtype=torch.float64)
    """
    if context.moved is None:
        raise NotApplicable("fresh draws of a generator keep no identity from one moment to the next")
    earlier, now = context.moved
    return (now - earlier).to(samples).norm(dim=-1).mean(1)
