"""Tasks whose data arrive while the sampler runs: the outcomes of decisions made with its samples.

A sequential task requires T decisions, in blocks. Between two blocks the sampler goes on, from the state it is in,
on the posterior given all decisions so far; the task says which share of the budget each of these trainings gets.
So one protocol serves budgets in iterations, in score evaluations and in seconds.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor

from .errors import InputError
from .metric import Decisions
from .target import Target
from .task import Problem, Task

DECISION_METRICS = ("regret", "regret_percent", "contexts", "seconds", "score_evaluations", "peak_memory")


class GrowingTarget(Target):
    """A posterior given the decisions made so far; ``rows`` is T, the number of all decisions."""

    rows: int
    n_actions: int  #: K, actions to choose from
    seen: int = 0  #: decisions made; the data are their outcomes

    @abstractmethod
    def values(self, x: Tensor, count: int) -> Tensor:
        """Expected rewards of all actions in the next ``count`` contexts: (R, n, D) -> (R, n, count, K)."""

    @abstractmethod
    def observe(self, actions: Tensor) -> None:
        """Take these actions in the next contexts, (R, count) indices; their rewards are data from now on.

        Actions given at once make the same posterior as given one by one, so that an interrupted run can resume.
        """

    @property
    @abstractmethod
    def taken(self) -> Tensor:
        """The actions taken so far, (R, seen) indices."""

    @abstractmethod
    def decisions(self) -> Decisions:
        """What the decisions so far have earned, (R, seen)."""


class GrowingProblem(Problem):
    """A posterior that grows, metered: B rows are drawn, with replacement, from what was seen, and cost B/T."""

    @property
    def posterior(self) -> GrowingTarget:
        """The density, for the harness to let it grow."""
        return cast(GrowingTarget, self._target)

    def _batch(self) -> Tensor | None:
        if self._batch_size is None:
            return None
        seen = self.posterior.seen
        uniform = self.streams.uniform("batch", (self._batch_size if seen else 0,))
        return (uniform * seen).long().clamp_(max=seen - 1)  # float32 may round up to ``seen``


@dataclass(frozen=True, kw_only=True)
class SequentialTask(Task):
    """A task of T = ``rows`` decisions in contexts that come one by one.

    It offers no ``full-batch`` scores: algorithms that need them keep densities from one step to the next, and
    those are of another posterior once the data have grown.
    """

    rows: int
    metrics: tuple[str, ...] = DECISION_METRICS
    primary: str = "regret"
    period: int = 50  #: decisions between two trainings
    pulls: int = 2  #: how often each action is taken in turn, before any choice
    first_training: int = 2000  #: protocol's sampler steps of the first training
    later_training: int = 100  #: of every training after the ``easing`` first ones; steps fall evenly in between
    easing: int = 20  #: number of trainings with more steps than later ones
    thinning: int = 100  #: protocol's steps between two positions of a chain that serve as samples

    @abstractmethod
    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> GrowingTarget:
        """The posterior before any decision, bound to each replicate's contexts and rewards."""

    def trainings(self) -> Tensor:
        """The protocol's sampler steps before each block of decisions but the first, (blocks - 1,) int64."""
        eased = torch.linspace(self.first_training, self.later_training, self.easing, dtype=torch.float64)
        steps = torch.full((-(-self.rows // self.period) - 1,), self.later_training)
        steps[: self.easing] = eased.long()[: len(steps)]
        return steps

    def with_contexts(self, contexts: int) -> Self:
        """The same task with another number of decisions; ``InputError`` where no training would follow."""
        if contexts <= self.period:
            raise InputError(
                f"{self.name}: contexts must exceed {self.period}, the decisions before the first training; "
                f"got {contexts}"
            )
        return replace(self, rows=contexts)

    def _problem_type(self) -> type[Problem]:
        return GrowingProblem
