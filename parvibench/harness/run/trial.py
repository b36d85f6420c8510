"""What comes before a run: a few steps on a problem that is thrown away."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Method, take_steps
from parvibench.core.task import Problem, Task
from parvibench.harness.suite.cells import Cell

from .stepping import Advance

_STEPS = 2


def make_problem(cell: Cell, replicates: Sequence[int], task: Task, method: Method, limit: float | None) -> Problem:
    """The problem of a chunk, with a limit of score evaluations."""
    return task.problem(
        replicates,
        cell.spec.seed,
        cell.spec.device,
        cell.torch_dtype,
        particles=cell.particles,
        limit=limit,
        full_batch="full-batch" in method.needs,
    )


def step_mode(cell: Cell, algorithm: Algorithm) -> AbstractContextManager[Any]:
    """Without gradients where the algorithm takes none; the compiler does not know inference mode well."""
    if algorithm.differentiates:
        return nullcontext()
    return torch.no_grad() if cell.spec.compiled else torch.inference_mode()


class Trial:
    """First steps of a chunk, untimed: they set up libraries and caches, and tell what a step costs."""

    horizon: int  #: iterations that the budget allows
    pace: float  #: seconds of a step
    state: Any  #: after the steps
    seconds: float  #: all of it took

    def __init__(
        self,
        cell: Cell,
        replicates: Sequence[int],
        task: Task,
        algorithm: Algorithm,
        settings: AlgorithmSettings,
        advance: Advance,
    ) -> None:
        start = time.perf_counter()
        problem = make_problem(cell, replicates, task, algorithm, None)
        with step_mode(cell, algorithm):
            state: Any = algorithm.init(problem, settings, problem.streams, _STEPS)
            first_steps = take_steps(advance, problem, settings, state)
            for _ in range(_STEPS):
                before, tick = problem.meter.charged, time.perf_counter()
                state, _ = next(first_steps)
                cost, self.pace = problem.meter.charged - before, time.perf_counter() - tick
        self.state = state
        budget = cell.spec.budget
        allowed = min(
            float(budget.iterations or np.inf),
            (budget.score_evaluations or np.inf) / cost if cost else np.inf,
            (budget.seconds or np.inf) / max(self.pace, 1e-9),
        )
        self.horizon = max(1, int(allowed)) if np.isfinite(allowed) else 1
        self.seconds = time.perf_counter() - start


def foresee(cell: Cell) -> tuple[int, float]:
    """Iterations that a cell's budget allows, and seconds of one for a chunk, by two steps; errors as of a run."""
    task, algorithm = cell.load()
    if not isinstance(algorithm, Algorithm):
        return 0, 0.0
    settings = algorithm.make_settings(dict(cell.settings))
    plain = cell.varied(compiled=False)  # compiling takes longer than most runs
    trial = Trial(plain, cell.chunks[0], task, algorithm, settings, algorithm.step)
    return trial.horizon, trial.pace
