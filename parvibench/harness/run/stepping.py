"""Taking the steps of a chunk, many between two inspections of the state, and averaging what they report."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parvibench.core.algorithm import Algorithm, take_steps
from parvibench.core.budget import Meter
from parvibench.core.errors import BudgetExhausted, BudgetIgnored
from parvibench.core.sequential import GrowingProblem

from .chunks import Chunk
from .clock import Clock
from .recorder import PathRecorder
from .thompson import RecentPositions

Advance = Callable[..., Any]
BLOCK = 16  #: Most steps between two inspections of the state.
_TRIAL_STEPS = 2
_FORECAST_STEPS, _ENOUGH_S = 6, 1.0  #: Steps that a forecast takes, fewer when they take longer than this, s.
#: Reports of log Z: the last one counts, where others are averaged.
SO_FAR = ("log_z", "log_z_se", "log_z_doubt")


def step_mode(algorithm: Algorithm) -> AbstractContextManager[Any]:
    """Without gradients where the algorithm takes none."""
    return nullcontext() if algorithm.differentiates else torch.inference_mode()


class Trial:
    """First steps of a chunk, not part of its time: they initialise libraries and caches and give the cost of a step."""

    horizon: int  #: iterations that the budget allows
    setup: float  #: seconds before the first step
    pace: float  #: seconds of a step, the least of those taken
    state: Any  #: after the steps
    seconds: float  #: all of it took
    start: str  #: where it began: the specification's start or ``own``

    def __init__(self, chunk: Chunk, *, forecast: bool = False) -> None:
        cell, algorithm, settings = chunk.cell, chunk.method, chunk.settings
        # Processor time for a forecast, so that other processes of the machine do not count.
        timer = time.process_time if forecast and cell.spec.device != "cuda" else time.perf_counter
        start = timer()
        problem = chunk.problem(None)
        if forecast and isinstance(problem, GrowingProblem):  # steps on all of the data, as most of a run's are
            turns = torch.arange(problem.posterior.rows, device=cell.spec.device) % problem.posterior.n_actions
            problem.posterior.observe(turns.expand(len(chunk.replicates), -1))
        with step_mode(algorithm):
            state: Any = algorithm.init(problem, settings, problem.streams, _TRIAL_STEPS)
            self.setup = timer() - start
            first_steps = take_steps(algorithm.step, problem, settings, state)
            paces: list[float] = []
            while len(paces) < _TRIAL_STEPS or (forecast and len(paces) < _FORECAST_STEPS and sum(paces) < _ENOUGH_S):
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


@dataclass
class Tally:
    """Sums of the fields of an algorithm's Info, (R,) each, on its device."""

    sums: dict[str, Tensor] = field(default_factory=dict)  #: field -> sum since the last ``means``, float64
    steps: int = 0  #: how many steps were added

    def add(self, info: Any) -> None:
        """Add a step's Info: a NamedTuple of tensors (R,). Waits for no device."""
        self.steps += 1
        for name, value in zip(info._fields, info, strict=True):
            held = None if name in SO_FAR else self.sums.get(name)
            self.sums[name] = value.to(torch.float64) if held is None else held + value

    def means(self) -> dict[str, Tensor]:
        """Means per step since the last call, (R,) float64 on the CPU, the last values of ``SO_FAR``; none without steps."""
        steps = dict.fromkeys(SO_FAR, 1)
        found = {name: (value / steps.get(name, self.steps)).cpu() for name, value in self.sums.items()}
        self.sums, self.steps = {}, 0
        return found


@dataclass
class Stepper:
    """Takes the steps of a chunk, a block at a time."""

    steps: Iterator[tuple[Any, Any]]  #: see ``take_steps``
    advance: Advance  #: the algorithm's ``step``, or a recorded one, which they call
    meter: Meter
    clock: Clock  #: runs while steps are taken
    recorder: PathRecorder | RecentPositions | None  #: is offered every position
    tally: Tally  #: receives what the algorithm reports of its steps
    state: Any  #: after the last complete step
    step: int  #: number of complete steps
    done: bool = False  #: whether the algorithm has ended
    ignored: bool = False  #: whether the algorithm went on after its budget was spent
    ended: Callable[[Any], bool] | None = None  #: whether a state is the last; None: none is

    def go(self, stop: int, enough: float = math.inf) -> bool:
        """Take steps, at least one, up to iteration ``stop`` or ``enough`` charged scores; False where the run is over."""
        # What is done here at every step adds up to a few tenths of a microsecond.
        meter, counting = self.meter, enough < math.inf
        positions: list[Tensor] = []
        recording = self.recorder is not None
        state, step = self.state, self.step
        compiling = getattr(self.advance, "seconds", 0.0)  # spent on recording so far, see ``RecordedStep``
        self.clock.start()
        try:
            for after, info in self.steps:
                if meter.refusals:
                    self.ignored = True
                    return False
                state = after
                step += 1
                if info is not None:
                    self.tally.add(info)
                if recording:
                    positions.append(state.x)
                if self.ended is not None and self.ended(state):
                    self.done = True
                    return False
                if step >= stop or (counting and meter.charged >= enough):
                    break
        except BudgetExhausted:
            return False
        except BudgetIgnored:
            self.ignored = True
            return False
        finally:
            self.clock.stop(getattr(self.advance, "seconds", 0.0) - compiling)
            if self.recorder is not None:
                for number, x in enumerate(positions, self.step + 1):
                    self.recorder.add(number, x)
            self.state, self.step = state, step
        return True
