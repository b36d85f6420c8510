"""The two ends of every leaderboard: fresh exact draws, and the initial distribution.

Anchors take no steps; they see the task itself, because a problem knows nothing of the task's reference.
"""

import torch
from torch import Generator, Tensor

from parvibench.core.algorithm import Anchor, Problem, Streams, Task
from parvibench.core.errors import UnsupportedError


class Exact(Anchor):
    """Independent exact draws: no method is better but by chance."""

    name = "exact"
    needs = frozenset({"exact"})
    summary = "fresh exact draws: the best a sampler can do"

    def draw(self, task: Task, problem: Problem, n: int, streams: Streams) -> tuple[Tensor, Tensor | None]:
        """Independent exact draws, or n distinct rows of the reference where no sampler exists; see ``Anchor.draw``.

        ``UnsupportedError`` where the task has neither, or its reference has no row to spare.
        """
        generators = streams.generators("exact")
        try:
            samples, rows = torch.stack([task.exact(n, g) for g in generators]), None
        except UnsupportedError:
            samples, rows = _reference_rows(task, n, generators)
        return samples.to(problem.device, problem.dtype), rows


class Initial(Anchor):
    """The initial points as they are."""

    name = "initial"
    needs = frozenset[str]()
    summary = "the initial distribution: what doing nothing achieves"

    def draw(self, task: Task, problem: Problem, n: int, streams: Streams) -> tuple[Tensor, Tensor | None]:
        """Initial points (R, n, D); never rows of a reference."""
        return problem.init(n), None


def _reference_rows(task: Task, n: int, generators: list[Generator]) -> tuple[Tensor, Tensor]:
    reference = task.reference()
    if reference is None:
        raise UnsupportedError(f"{task.name} has neither an exact sampler nor a reference")
    m = len(reference.draws)
    if n >= m:
        raise UnsupportedError(f"{task.name}: {n} of {m} reference rows leave none to be judged against")
    rows = torch.stack([torch.randperm(m, generator=g)[:n] for g in generators])
    return reference.draws[rows], rows
