"""The two ends of every leaderboard: fresh exact draws, and the initial distribution.

Anchors take no steps. The harness calls ``draw`` with the task itself, because an algorithm's view of a
task knows nothing of its reference.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, ParticleState
from parvibench.core.errors import UnsupportedError
from parvibench.core.streams import Streams
from parvibench.core.task import Problem, Task

Draws = tuple[Tensor, Tensor | None]


class _Anchor(Algorithm[AlgorithmSettings, ParticleState]):
    kind = "anchor"
    settings_type = AlgorithmSettings

    def init(
        self, problem: Problem, settings: AlgorithmSettings, streams: Streams, horizon: int
    ) -> ParticleState:
        """The task's initial points."""
        return ParticleState.start(problem)

    def step(
        self, problem: Problem, settings: AlgorithmSettings, state: ParticleState, streams: Streams
    ) -> ParticleState:
        """Stay."""
        return state

    def output(
        self, problem: Problem, settings: AlgorithmSettings, state: ParticleState, n: int, streams: Streams
    ) -> Tensor:
        """Samples without the task: n initial points."""
        return problem.init(n)


class Exact(_Anchor):
    """What independent exact draws achieve: nobody can be better but by luck."""

    name = "exact"
    needs = frozenset({"exact"})
    summary = "fresh exact draws: the best a sampler can do"

    def output(
        self, problem: Problem, settings: AlgorithmSettings, state: ParticleState, n: int, streams: Streams
    ) -> Tensor:
        """Refused: a problem holds no exact draws."""
        raise UnsupportedError("exact draws come from the task: call draw(task, problem, n, streams)")

    def draw(self, task: Task, problem: Problem, n: int, streams: Streams) -> Draws:
        """Independent exact draws, or n distinct rows of the reference where no sampler exists.

        Args:
            task: where the draws come from.
            problem: its replicates, device and dtype are those of the samples.
            n: samples per replicate.
            streams: randomness, stream ``exact``.

        Returns:
            Samples (R, n, D), and the rows (R, n) of the reference that they are, or None.

        Raises:
            UnsupportedError: the task has neither, or its reference has no row to spare.
        """
        generators = streams.generators("exact")
        try:
            samples, rows = torch.stack([task.exact(n, g) for g in generators]), None
        except UnsupportedError:
            samples, rows = _reference_rows(task, n, generators)
        return samples.to(problem.device, problem.dtype), rows


class Initial(_Anchor):
    """What doing nothing achieves."""

    name = "initial"
    needs = frozenset[str]()
    summary = "the initial distribution: what doing nothing achieves"

    def draw(self, task: Task, problem: Problem, n: int, streams: Streams) -> Draws:
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
