"""Warm-up of a run: a few steps on a problem of their own."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch

from parvibench.core.algorithm import Algorithm, take_steps
from parvibench.core.sequential import GrowingProblem
from parvibench.harness.suite.cells import Cell

from .chunks import Chunk
from .clock import one_thread
from .stepping import Advance

_STEPS = 2
#: Steps that a forecast takes, fewer when they take longer than this, s.
_FORESEEN, _ENOUGH_S = 6, 1.0
#: Settings that count steps before a method's own, which cost a fraction of these.
_BEFORE = ("pretraining", "critic_pretraining")


def step_mode(cell: Cell, algorithm: Algorithm) -> AbstractContextManager[Any]:
    """Without gradients where the algorithm takes none; the compiler does not know inference mode well."""
    if algorithm.differentiates:
        return nullcontext()
    return torch.no_grad() if cell.spec.compiled else torch.inference_mode()


class Trial:
    """First steps of a chunk, not part of its time: they initialise libraries and caches and give the cost of a step."""

    horizon: int  #: iterations that the budget allows
    setup: float  #: seconds before the first step
    pace: float  #: seconds of a step, the least of those taken
    state: Any  #: after the steps
    seconds: float  #: all of it took
    start: str  #: where it began: the specification's start or ``own``

    def __init__(
        self,
        chunk: Chunk,
        advance: Advance,
        *,
        steps: int = _STEPS,
        grown: bool = False,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        start = timer()
        cell, algorithm, settings = chunk.cell, chunk.method, chunk.settings
        problem = chunk.problem(None)
        if grown and isinstance(problem, GrowingProblem):  # steps on all of the data, as most of a run's are
            turns = torch.arange(problem.posterior.rows, device=cell.spec.device) % problem.posterior.n_actions
            problem.posterior.observe(turns.expand(len(chunk.replicates), -1))
        with step_mode(cell, algorithm):
            state: Any = algorithm.init(problem, settings, problem.streams, _STEPS)
            self.setup = timer() - start
            first_steps = take_steps(advance, problem, settings, state)
            paces: list[float] = []
            while len(paces) < _STEPS or (len(paces) < steps and sum(paces) < _ENOUGH_S):
                before, tick = problem.meter.charged, timer()
                state, _ = next(first_steps)
                cost = problem.meter.charged - before
                paces.append(timer() - tick)
            self.pace = min(paces)
        self.state = state
        self.start = cell.spec.start if problem.started else "own"
        budget = cell.spec.budget
        allowed = min(
            float(budget.iterations or np.inf),
            ((budget.score_evaluations or np.inf) - problem.start_cost) / cost if cost else np.inf,
            (budget.seconds or np.inf) / max(self.pace, 1e-9),
        )
        self.horizon = max(1, int(allowed)) if np.isfinite(allowed) else 1
        self.seconds = timer() - start


class Foresight(NamedTuple):
    """Predicted cost of a cell, in processor time of one thread."""

    iterations: int  #: that its budget allows
    setup: float  #: seconds before the first step of a chunk
    pace: float  #: seconds of a step of a chunk


def foresee(cell: Cell) -> Foresight:
    """What a cell's budget allows and what it takes, by the least of a few steps; errors as of a run.

    Processor time, so that other processes of the machine do not count.
    """
    plain = cell.varied(compiled=False)  # compiling takes longer than most runs
    chunk = Chunk.of(plain, cell.chunks[0])
    if not isinstance(chunk.method, Algorithm):
        return Foresight(0, 0.0, 0.0)
    none = {name: 0 for name in _BEFORE if name in type(chunk.settings).model_fields}
    chunk = chunk._replace(settings=chunk.settings.model_copy(update=none))
    timer = time.perf_counter if cell.spec.device == "cuda" else time.process_time
    with one_thread():
        trial = Trial(chunk, chunk.method.step, steps=_FORESEEN, grown=True, timer=timer)
    return Foresight(trial.horizon, trial.setup, trial.pace)
