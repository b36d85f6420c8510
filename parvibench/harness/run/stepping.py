"""Taking the steps of a chunk, many between two inspections of the state, and finding scores past the meter."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol, Self

from torch import Tensor

from parvibench.core.algorithm import AlgorithmSettings, take_steps
from parvibench.core.errors import BudgetExhausted, BudgetIgnored
from parvibench.core.task import Problem

from .clock import Clock
from .tally import Tally

Advance = Callable[..., Any]
#: Most steps between two inspections of the state.
BLOCK = 16
_METHODS = ("log_density", "score", "log_density_and_score", "fit_gradient")


class Path(Protocol):
    """What records the positions of chains."""

    def add(self, step: int, x: Tensor) -> None:
        """Offer the position after iteration ``step``."""
        ...


class Stepper:
    """Takes the steps of a chunk, a block at a time.

    Args:
        problem: what is sampled.
        settings: of the algorithm.
        advance: the algorithm's ``step``, or a compiled one.
        clock: runs while steps are taken.
        path: is offered every position, or None.
        state: after ``step`` iterations.
        step: their number.
        tally: receives what the algorithm reports of its steps.

    Attributes:
        state: after the last complete step.
        step: number of complete steps.
        ignored: whether the algorithm went on after its budget was spent.
    """

    def __init__(
        self,
        problem: Problem,
        settings: AlgorithmSettings,
        advance: Advance,
        clock: Clock,
        path: Path | None,
        state: Any,
        step: int,
        tally: Tally,
    ) -> None:
        self._steps = take_steps(advance, problem, settings, state, step)
        self._problem, self._clock, self._path = problem, clock, path
        self.state, self.step, self.ignored = state, step, False
        self._tally = tally

    def go(self, stop: int, enough: float = math.inf) -> bool:
        """Take steps up to iteration ``stop``, or until ``enough`` score evaluations are charged; one at least.

        Returns:
            False when the budget allows no further step.
        """
        # What is done here at every step adds up to a few tenths of a microsecond.
        meter, counting = self._problem.meter, enough < math.inf
        positions: list[Tensor] | None = None if self._path is None else []
        state, step, began = self.state, self.step, self.step
        self._clock.start()
        try:
            for after, info in self._steps:
                if meter.refusals:
                    self.ignored = True
                    return False
                state = after
                step += 1
                if info is not None:
                    self._tally.add(info)
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
            self._clock.stop()
            self.state, self.step = state, step
            self._record(began, positions)
        return True

    def _record(self, began: int, positions: list[Tensor] | None) -> None:
        if self._path is not None:
            for step, x in enumerate(positions or (), began + 1):
                self._path.add(step, x)


class Watch:
    """Counts what is asked of a problem's target, or of another of its class, without a charge to the meter.

    Every metered call charges the meter first; a call before which nothing was charged is none of the problem's. Not
    found are densities that an algorithm has written itself, and one call after each backward pass, which charges, too.

    Args:
        problem: metered.

    Attributes:
        paused: while the harness itself uses the target.
    """

    def __init__(self, problem: Problem) -> None:
        self.paused = False
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
        """Look at the count.

        Raises:
            BudgetIgnored: something was asked past the meter.
        """
        if self._rows:
            raise BudgetIgnored(f"asked the target for {self._rows} rows past the meter of its budget")

    def _charged(self) -> tuple[float, float, float]:
        meter = self._problem.meter
        return meter.scores, meter.hessian_vector_products, meter.log_densities

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def counted(target: Any, x: Tensor, *args: Any, **options: Any) -> Any:
            if not self.paused and not self._depth:
                charged = self._charged()
                self._rows += x.shape[-2] if charged == self._seen else 0
                self._seen = charged
            self._depth += 1
            try:
                return method(target, x, *args, **options)
            finally:
                self._depth -= 1

        return counted
