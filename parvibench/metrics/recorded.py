"""What a run has recorded of itself, as metrics: cost, regret of decisions, movement, and reports of the algorithm."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from parvibench.core.metric import Context, Cost, Decisions, Metric, metric

from .common import given


def recorded_cost(context: Context) -> Cost:
    """The cost of the samples; ``NotApplicable`` where none was recorded."""
    return given(context.cost, "no cost was recorded")


def spent(samples: Tensor, context: Context, name: str) -> Tensor:
    """What the samples cost, the same for all replicates of a chunk, (R,); lower is better.

    - ``seconds``: steady compute time of one replicate, without metrics, compilation and warm-up; the replicates of a chunk
      share its time evenly.
    - ``score_evaluations``: those charged to one replicate, in rows.
    - ``peak_memory``: peak so far, in MiB: on a GPU what PyTorch had allocated there since the chunk began; otherwise the
      resident memory of the process since its start, libraries and metrics included: compare it with the anchors'.

    >>> [float(spent(x, chains, name)) for name in ("seconds", "score_evaluations", "peak_memory")]
    [0.5, 400.0, 128.0]
    """
    cost = given(getattr(recorded_cost(context), name), f"no {name.replace('_', ' ')} was recorded")
    return samples.new_full((len(samples),), cost)


def _cost(name: str, unit: str, summary: str, when: Literal["every", "last"] = "every") -> Metric:
    return Metric(name, partial(spent, name=name), "lower", unit, "cost", summary, when=when)


seconds = _cost("seconds", "s", "steady compute time per replicate")
score_evaluations = _cost("score_evaluations", "rows", "score evaluations charged per replicate")
peak_memory = _cost("peak_memory", "MiB", "most memory held: the process's, or on a GPU PyTorch's", "last")


@metric("lower", "reward", "decisions", "reward missed against the best actions in hindsight")
def regret(samples: Tensor, context: Context) -> Tensor:
    """Reward missed against the best action known in hindsight, ``sum_t best_t - reward_t``.

    (R,) in units of the reward; lower is better. O(T).

    >>> regret(x, bandit)
    tensor([3.], dtype=torch.float64)
    """
    made = _decisions(context)
    return (made.best - made.reward).sum(1).to(samples)


@metric("lower", "%", "decisions", "regret in percent of the uniform policy's")
def regret_percent(samples: Tensor, context: Context) -> Tensor:
    """``regret`` in percent of the uniform policy's on the same contexts (Riquelme et al. 2018, arXiv:1802.09127).

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

    >>> contexts(x, bandit)
    tensor([3.], dtype=torch.float64)
    """
    return samples.new_full((len(samples),), _decisions(context).reward.shape[1])


def _decisions(context: Context) -> Decisions:
    return given(context.decisions, "no decisions are made on this task")


@metric("neutral", "x", "motion", "mean distance moved over the last fifth of the budget", when="last")
def displacement(samples: Tensor, context: Context) -> Tensor:
    """Mean distance that particles or chains moved over the last fifth of the budget, (R,) in units of x. O(N D).

    ``mean_i ||x_i(end) - x_i(0.8 of the budget)||``: near zero for particles that no longer move, converged or
    not, so neither direction is better (Zhang, Cheng & Zhang 2024, arXiv:2410.17935, Fig. 2, compare two such moments).

    >>> displacement(x, Context(banana, moved=(x, x + 3)))
    tensor([4.2426], dtype=torch.float64)
    """
    earlier, now = given(context.moved, "fresh draws of a generator keep no identity from one moment to the next")
    return (now - earlier).to(samples).norm(dim=-1).mean(1)


def reported(samples: Tensor, context: Context, name: str) -> Tensor:
    """What the algorithm reports of its steps under the metric's name, (R,).

    Of log Z, its standard error and its doubt the last report counts, of the others the mean since the checkpoint before:

    - ``acceptance``: probability of accepting a proposal, in [0, 1]; neither direction is better.
    - ``divergences``: share of transitions whose energy error exceeded 1000 or was not a number; lower is better.
    - ``tree_depth``: doublings of a trajectory of NUTS; neither direction is better.
    - ``refit_loss``: loss of the network that is refitted in every step; comparable within one method only.
    - ``log_z``: estimated logarithm of the integral of exp(log density), the evidence where the density is a joint one
      with all constants; neither direction is better.
    - ``log_z_se``: its standard error by the method's own account: of one run, and too small where it missed mass.
    - ``log_z_doubt``: 1 where the method's own diagnostics say that neither is to be trusted (few ancestors of the
      particles, a ladder without communication, a Pareto k of the weights above 0.7), else 0; lower is better.

    >>> reported(x, Context(banana, diagnostics={"acceptance": torch.tensor([0.5])}), "acceptance")
    tensor([0.5000], dtype=torch.float64)
    """
    return given(context.diagnostics.get(name), "the algorithm reports none").to(samples)


def _passed_on(name: str, direction: Literal["lower", "neutral"], unit: str, summary: str) -> Metric:
    return Metric(name, partial(reported, name=name), direction, unit, "diagnostics", summary)


acceptance = _passed_on("acceptance", "neutral", "1", "mean acceptance probability since the checkpoint before")
divergences = _passed_on("divergences", "lower", "1", "share of divergent transitions since the checkpoint before")
tree_depth = _passed_on(
    "tree_depth", "neutral", "doublings", "mean doublings of a trajectory since the checkpoint before"
)
refit_loss = _passed_on("refit_loss", "neutral", "1", "mean loss of the refitted network since the checkpoint before")
log_z = _passed_on("log_z", "neutral", "nats", "estimate of log Z, the logarithm of the normalising constant")
log_z_se = _passed_on("log_z_se", "neutral", "nats", "standard error of log Z, as the method itself estimates it")
log_z_doubt = _passed_on("log_z_doubt", "lower", "1", "share of runs whose own diagnostics put log Z in doubt")


@metric("lower", "nats", "diagnostics", "absolute error of log Z, where the task states it")
def log_z_error(samples: Tensor, context: Context) -> Tensor:
    """Absolute difference of ``log_z`` from the task's, (R,); lower is better.

    >>> from parvibench.core.task import Facts
    >>> task = replace(banana, facts=Facts(log_z=1.5))
    >>> log_z_error(x, Context(task, diagnostics={"log_z": torch.tensor([0.5])}))
    tensor([1.], dtype=torch.float64)
    """
    known = given(context.task.facts.log_z, "the task states no log Z")
    return (log_z(samples, context) - known).abs()


@metric("lower", "se", "diagnostics", "error of log Z in units of its stated standard error")
def log_z_deviation(samples: Tensor, context: Context) -> Tensor:
    """Absolute error of ``log_z`` over ``log_z_se``, (R,); lower is better, above 2 in 5% of right runs.

    >>> from parvibench.core.task import Facts
    >>> told = {"log_z": torch.tensor([0.5]), "log_z_se": torch.tensor([0.25])}
    >>> log_z_deviation(x, Context(replace(banana, facts=Facts(log_z=1.5)), diagnostics=told))
    tensor([4.], dtype=torch.float64)
    """
    return log_z_error(samples, context) / log_z_se(samples, context)
