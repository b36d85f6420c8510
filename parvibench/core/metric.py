"""What a metric is: a function of samples and their context, one value per replicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from .reference import Reference
from .target import Target
from .task import PredictiveData, Task

Need = Literal[
    "reference",
    "target",
    "path",
    "predictive",
    "modes",
    "moments",
    "unmixing",
    "cost",
    "decisions",
    "motion",
    "diagnostics",
]


class NotApplicable(Exception):
    """Raised by a metric that does not apply; its message, the reason, is recorded in place of a value."""


@dataclass(frozen=True)
class Cost:
    """What a checkpoint has cost so far, per replicate.

    Attributes:
        iterations: outer iterations.
        score_evaluations: as charged by the meter.
        seconds: steady compute time of the chunk divided by its width.
        peak_memory: most memory held so far, MiB, or None where it is not known.
    """

    iterations: int
    score_evaluations: float
    seconds: float
    peak_memory: float | None = None


@dataclass(frozen=True)
class Decisions:
    """What the decisions of a sequential task earned, one column per decision, (R, T) each.

    Attributes:
        reward: of the action taken.
        best: of the best action.
        uniform: of an action drawn uniformly.
    """

    reward: Tensor
    best: Tensor
    uniform: Tensor


@dataclass(frozen=True)
class Context:
    """All a metric may look at besides the samples.

    Attributes:
        task: the task.
        reference: certified draws, or None.
        target: the density, unmetered, bound to the replicates' data (full batch), or None.
        predictive: test data of each replicate, or None.
        path: recorded chain positions after the burn-in, (R, T, N, D), or None.
        cost: what was spent, or None for samples from outside.
        excluded_rows: (R, n) rows of the reference that are themselves the samples (anchor ``exact``
            where the reference is a file): each replicate is scored against the other rows.
        moved: positions of the same particles or chains at 80% of the budget and at its end, (R, N, D) each,
            or None.
        decisions: of a sequential task, or None.
        diagnostics: what the algorithm reported of its steps since the checkpoint before: name -> means, (R,).
    """

    task: Task
    reference: Reference | None = None
    target: Target | None = None
    predictive: PredictiveData | None = None
    path: Tensor | None = None
    cost: Cost | None = None
    excluded_rows: Tensor | None = field(default=None, repr=False)
    moved: tuple[Tensor, Tensor] | None = field(default=None, repr=False)
    decisions: Decisions | None = field(default=None, repr=False)
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def reference_rows(self, replicate: int) -> Tensor:
        """The reference rows replicate number ``replicate`` of the batch is judged against, (m, D).

        Raises:
            NotApplicable: the task has no reference.
        """
        if self.reference is None:
            raise NotApplicable("the task has no reference samples")
        if self.excluded_rows is None:
            return self.reference.draws
        keep = torch.ones(len(self.reference.draws), dtype=torch.bool)
        keep[self.excluded_rows[replicate]] = False
        return self.reference.draws[keep]


Compute = Callable[[Tensor, Context], Tensor]


@dataclass(frozen=True)
class Metric:
    """A metric: a function of samples and their context, and what is known of its values.

    Attributes:
        name: canonical name.
        compute: (R, n, D) float64 samples and a context -> (R,) values; raises NotApplicable with the reason.
        direction: which values are better.
        unit: of the value.
        need: what the context must hold.
        summary: one line.
        when: ``every`` checkpoint, or the ``last`` one for costly metrics.
        floor_ratio: True where the floor's median is positive by construction.
    """

    name: str
    compute: Compute
    direction: Literal["lower", "higher", "neutral"]
    unit: str
    need: Need
    summary: str
    when: Literal["every", "last"] = "every"
    floor_ratio: bool = False

    def __call__(self, samples: Tensor, context: Context) -> Tensor:
        """One value per replicate, (R,)."""
        return self.compute(samples, context)


def metric(
    direction: Literal["lower", "higher", "neutral"],
    unit: str,
    need: Need,
    summary: str,
    *,
    when: Literal["every", "last"] = "every",
    floor_ratio: bool = False,
) -> Callable[[Compute], Metric]:
    """Declare the decorated function a metric of its own name; the arguments are the attributes of ``Metric``."""
    return lambda compute: Metric(compute.__name__, compute, direction, unit, need, summary, when, floor_ratio)
