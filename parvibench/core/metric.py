"""What a metric is: a function of samples and their context, one value per replicate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from .reference import Reference
from .target import Target
from .task import PredictiveData, Task

Need = Literal[
    "reference", "target", "path", "predictive", "modes", "moments", "unmixing", "cost", "decisions", "motion",
    "diagnostics",
]  # fmt: skip


class NotApplicable(Exception):
    """Raised by a metric that does not apply; its message, the reason, is recorded in place of a value."""


@dataclass(frozen=True)
class Cost:
    """What a checkpoint has cost so far, per replicate."""

    iterations: int  #: outer iterations
    score_evaluations: float  #: as charged by the meter
    seconds: float  #: steady compute time of the chunk divided by its width
    peak_memory: float | None = None  #: peak memory so far, MiB, or None where it is not known


@dataclass(frozen=True)
class Decisions:
    """What the decisions of a sequential task earned, one column per decision, (R, T) each."""

    reward: Tensor  #: of the action taken
    best: Tensor  #: of the best action
    uniform: Tensor  #: of an action drawn uniformly


@dataclass(frozen=True)
class Context:
    """All a metric may look at besides the samples."""

    task: Task  #: the task
    reference: Reference | None = None  #: certified draws, or None
    target: Target | None = None  #: the density, unmetered, bound to the replicates' data (full batch), or None
    predictive: PredictiveData | None = None  #: test data of each replicate, or None
    path: Tensor | None = None  #: recorded chain positions after the burn-in, (R, T, N, D), or None
    cost: Cost | None = None  #: what was spent, or None for samples from outside
    #: (R, n) rows of the reference that are themselves the samples (anchor ``exact`` where the reference is a file):
    #: each replicate is scored against the other rows
    excluded_rows: Tensor | None = field(default=None, repr=False)
    #: positions of the same particles or chains at 80% of the budget and at its end, (R, N, D) each, or None
    moved: tuple[Tensor, Tensor] | None = field(default=None, repr=False)
    decisions: Decisions | None = field(default=None, repr=False)  #: of a sequential task, or None
    #: what the algorithm reported of its steps since the checkpoint before: name -> means, (R,)
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def reference_rows(self, replicate: int) -> Tensor:
        """The reference rows that replicate number ``replicate`` is judged against, (m, D); else ``NotApplicable``."""
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
    """A metric: a function of samples and their context, and what is known of its values."""

    name: str  #: canonical name
    compute: Compute  #: (R, n, D) float64 samples and a context -> (R,) values; raises NotApplicable with the reason
    direction: Literal["lower", "higher", "neutral"]  #: which values are better
    unit: str  #: of the value
    need: Need  #: what the context must hold
    summary: str  #: one line
    when: Literal["every", "last"] = "every"  #: ``every`` checkpoint, or the ``last`` one for costly metrics
    floor_ratio: bool = False  #: True where the floor's median is positive by construction

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
