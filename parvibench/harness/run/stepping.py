"""Taking the steps of a chunk, many between two inspections of the state, averaging what they report, and finding scores past the meter."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from parvibench.core.algorithm import AlgorithmSettings, take_steps
from parvibench.core.errors import BudgetExhausted, BudgetIgnored
from parvibench.core.task import Problem

from .clock import Clock

Advance = Callable[..., Any]
#: Most steps between two inspections of the state.
BLOCK = 16
_METHODS = ("log_density", "score", "log_density_and_score", "fit_gradient")


class Path(Protocol):
    """What records the positions of chains."""

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
            held = self.sums.get(name)
            self.sums[name] = value.to(torch.float64) if held is None else held + value

    def means(self) -> dict[str, Tensor]:
        """Means per step since the last call, (R,) float64 on the CPU; none without steps."""
        found = {name: (value / self.steps).cpu() for name, value in self.sums.items()}
        self.sums, self.steps = {}, 0
        return found


@dataclass
class Stepper:
    """Takes the steps of a chunk, a block at a time."""

    problem: Problem
    settings: AlgorithmSettings
    advance: Advance  #: the algorithm's ``step``, or a compiled one
    clock: Clock  #: runs while steps are taken
    path: Path | None  #: is offered every position
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
        positions: list[Tensor] | None = None if self.path is None else []
        state, step, began = self.state, self.step, self.step
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
            self.state, self.step = state, step
            self._record(began, positions)
        return True

    def _record(self, began: int, positions: list[Tensor] | None) -> None:
        if self.path is not None:
            for step, x in enumerate(positions or (), began + 1):
                self.path.add(step, x)


class Watch:
    """Counts what is asked of a problem's target, or of another of its class, without a charge to the meter.

    Every metered call charges the meter first; a call before which nothing was charged is none of the problem's. Not
    found are densities that an algorithm has written itself, and one call after each backward pass, which charges, too.

    """

    def __init__(self, problem: Problem) -> None:
        self._paused = False
        self._problem, self._type = problem, type(problem._target)
        self._own = {name: vars(self._type).get(name) for name in _METHODS}
        self._rows = self._depth = 0
        self._seen = self._charged()

    def __enter__(self) -> Self:
        for name in _METHODS:
            setattr(self._type, name, self._counted(getattr(self._type, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._own.items():
            if method is None:
                delattr(self._type, name)
            else:
                setattr(self._type, name, method)

    def check(self) -> None:
        """Raise ``BudgetIgnored`` if something was asked past the meter."""
        if self._rows:
            raise BudgetIgnored(f"asked the target for {self._rows} rows past the meter of its budget")

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count what the harness itself asks of the target."""
        self._paused = True
        yield
        self._paused = False

    def _charged(self) -> tuple[float, float, float]:
        meter = self._problem.meter
        return meter.scores, meter.hessian_vector_products, meter.log_densities

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def counted(target: Any, x: Tensor, *args: Any, **options: Any) -> Any:
            if not self._paused and not self._depth:
                charged = self._charged()
                self._rows += x.shape[-2] if charged == self._seen else 0
                self._seen = charged
            self._depth += 1
            try:
                return method(target, x, *args, **options)
            finally:
                self._depth -= 1

        return counted
