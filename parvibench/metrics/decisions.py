"""Regret of sequential decisions."""

import torch
from torch import Tensor

from parvibench.core.metric import Context, Decisions, NotApplicable, metric


@metric("lower", "reward", "decisions", "reward missed against the best actions in hindsight")
def regret(samples: Tensor, context: Context) -> Tensor:
    """Reward missed against the best action known in hindsight, ``sum_t best_t - reward_t``.

    Args:
        samples: (R, n, D); not used.
        context: needs decisions.

    Returns:
        (R,) in units of the reward; lower is better. O(T).

    >>> regret(x, bandit)
    tensor([3.], dtype=torch.float64)
    """
    made = _decisions(context)
    return (made.best - made.reward).sum(1).to(samples)


@metric("lower", "%", "decisions", "regret in percent of the uniform policy's")
def regret_percent(samples: Tensor, context: Context) -> Tensor:
    """``regret`` in percent of the uniform policy's on the same contexts (Riquelme et al. 2018, arXiv:1802.09127).

    Args:
        samples: (R, n, D); not used.
        context: needs decisions.

    Returns:
        (R,) in percent; lower is better, 100 for the uniform policy; NaN where the uniform policy has no regret.

    >>> regret_percent(x, bandit)
    tensor([200.], dtype=torch.float64)
    """
    made = _decisions(context)
    chance = (made.best - made.uniform).sum(1)
    share = (made.best - made.reward).sum(1) / chance
    return torch.where(chance > 0, 100 * share, torch.nan).to(samples)


@metric("neutral", "count", "decisions", "decisions made so far")
def contexts(samples: Tensor, context: Context) -> Tensor:
    """Decisions made so far, (R,), the same for all replicates; regret against it is the curve of a bandit.

    Args:
        samples: (R, n, D); not used.
        context: needs decisions.

    >>> contexts(x, bandit)
    tensor([3.], dtype=torch.float64)
    """
    return samples.new_full((len(samples),), _decisions(context).reward.shape[1])


def _decisions(context: Context) -> Decisions:
    if context.decisions is None:
        raise NotApplicable("no decisions are made on this task")
    return context.decisions
