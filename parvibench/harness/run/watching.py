"""Finding calls of a target that go past the meter of its problem."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from torch import Tensor

from parvibench.core.errors import BudgetIgnored
from parvibench.core.task import Problem

_METHODS = ("log_density", "score", "log_density_and_score", "fit_gradient")


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
