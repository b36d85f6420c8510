"""Taking the steps of a chunk, many between two inspections of the state, and averaging what they report."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from parvibench.core.algorithm import AlgorithmSettings, take_steps
from parvibench.core.errors import BudgetExhausted, BudgetIgnored
from parvibench.core.task import Problem

from .clock import Clock
from .compiling import compile_seconds

Advance = Callable[..., Any]
#: Most steps between two inspections of the state.
BLOCK = 16
#: Reports of what a run knows so far: the last one counts, where others are averaged.
SO_FAR = ("log_z", "log_z_se")


class Recorder(Protocol):
    """Records the positions of chains."""

    def add(self, step: int, x: Tensor) -> None:
        """Offer the position after iteration ``step``."""
        ...


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

    problem: Problem
    settings: AlgorithmSettings
    advance: Advance  #: the algorithm's ``step``, or a compiled one
    clock: Clock  #: runs while steps are taken
    recorder: Recorder | None  #: is offered every position
    state: Any  #: after the last complete step
    step: int  #: number of complete steps
    tally: Tally  #: receives what the algorithm reports of its steps
    ignored: bool = False  #: whether the algorithm went on after its budget was spent

    def __post_init__(self) -> None:
        self._steps = take_steps(self.advance, self.problem, self.settings, self.state, self.step)

    def go(self, stop: int, enough: float = math.inf) -> bool:
        """Take steps up to iteration ``stop``, or until ``enough`` score evaluations are charged; one at least.

        False when the budget allows no further step.
        """
        # What is done here at every step adds up to a few tenths of a microsecond.
        meter, counting = self.problem.meter, enough < math.inf
        positions: list[Tensor] | None = None if self.recorder is None else []
        state, step, began = self.state, self.step, self.step
        compiling = compile_seconds(self.advance)
        self.clock.start()
        try:
            for after, info in self._steps:
                if meter.refusals:
                    self.ignored = True
                    return False
                state = after
                step += 1
                if info is not None:
                    self.tally.add(info)
                if positions is not None:
                    positions.append(state.x)
                if step >= stop or (counting and meter.charged >= enough):
                    break
        except BudgetExhausted:
            return False
        except BudgetIgnored:
            self.ignored = True
            return False
        finally:
            self.clock.stop()
            self.clock.leave_out(compile_seconds(self.advance) - compiling)
            self.state, self.step = state, step
            self._record(began, positions)
        return True

    def _record(self, began: int, positions: list[Tensor] | None) -> None:
        if self.recorder is not None:
            for step, x in enumerate(positions or (), began + 1):
                self.recorder.add(step, x)
