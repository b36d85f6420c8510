"""Finding samplers that spend past the meter of their budget."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from torch import Tensor

from parvibench.core.errors import BudgetIgnored
from parvibench.core.task import Problem

_METHODS = ("log_density", "score", "log_density_and_score", "fit_gradient")


class Guard:
    """Refuses a run whose sampler has changed its meter or, where ``watched``, called the target without it.

    Watched calls are those of the problem's target and of others of its class. Every metered call charges the meter
    first; a call before which nothing was charged is none of the problem's. Not noticed are densities that an algorithm
    has written itself, and one call after each backward pass, which charges, too.
    """

    def __init__(self, problem: Problem, *, watched: bool) -> None:
        self._problem, self._meter, self._limit = problem, problem.meter, problem.meter.limit
        self._charged = problem.meter.charged
        self._type = type(problem._target)
        self._own = {name: vars(self._type).get(name) for name in _METHODS} if watched else {}
        self._paused = False
        self._rows = self._depth = 0
        self._seen = self._booked()

    def __enter__(self) -> Self:
        for name in self._own:
            setattr(self._type, name, self._counted(getattr(self._type, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._own.items():
            if method is None:
                delattr(self._type, name)
            else:
                setattr(self._type, name, method)

    def check(self) -> None:
        """Raise ``BudgetIgnored`` if the meter was changed, or something was asked past it."""
        if self._rows:
            raise BudgetIgnored(f"asked the target for {self._rows} rows past the meter of its budget")
        before, self._charged = self._charged, self._meter.charged
        if self._problem.meter is not self._meter or self._meter.limit != self._limit or self._charged < before:
            raise BudgetIgnored("changed the meter of its budget")

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count what the harness itself asks of the target."""
        self._paused = True
        yield
        self._paused = False

    def _booked(self) -> tuple[float, float, float]:
        meter = self._problem.meter
        return meter.scores, meter.hessian_vector_products, meter.log_densities

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def counted(target: Any, x: Tensor, *args: Any, **options: Any) -> Any:
            if not self._paused and not self._depth:
                booked = self._booked()
                self._rows += x.shape[-2] if booked == self._seen else 0
                self._seen = booked
            self._depth += 1
            try:
                return method(target, x, *args, **options)
            finally:
                self._depth -= 1

        return counted
