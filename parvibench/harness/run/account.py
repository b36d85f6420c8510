"""The budget of a run: what was spent, where it is inspected next; guards against its bypass and unsteady densities."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor

from parvibench.core.errors import BudgetIgnored, InputError
from parvibench.core.metric import Cost
from parvibench.core.target import Target
from parvibench.core.task import Problem
from parvibench.targets.densities import same_again

from .chunks import Chunk
from .clock import Clock, peak_memory
from .stepping import BLOCK

#: Iterations without a score evaluation after which a budget of these alone is taken never to end.
_MOST_FREE = 5000
_METHODS = ("log_density", "score", "log_density_and_score", "fit_gradient")


class Account:
    """Iterations, score evaluations and seconds spent on a problem, with their limits."""

    def __init__(self, chunk: Chunk, problem: Problem) -> None:
        self._chunk, self._budget = chunk, chunk.cell.spec.budget
        self._meter, self._device = problem.meter, problem.device
        self.clock = Clock(problem.device)
        self._earlier_peak = 0.0  #: memory of an earlier process of this run, MiB
        self._charged: tuple[float, int] | None = None  #: charged after the last charge, and the iteration

    def share(self, step: int) -> float:
        """Share of the budget that is used after ``step`` iterations, by its scarcest limit."""
        limits = self._budget
        share = step / limits.iterations if limits.iterations else 0.0
        if limits.score_evaluations:
            share = max(share, self._meter.charged / limits.score_evaluations)
        return max(share, self.clock.seconds / limits.seconds) if limits.seconds else share

    def until(self, step: int, share: float) -> tuple[int, float]:
        """The next inspection: an iteration, and the score evaluations at which ``share`` of the budget is used."""
        iterations, scores = self._budget.iterations, self._budget.score_evaluations
        stop = (step // BLOCK + 1) * BLOCK
        if iterations:
            due = int(share * iterations)
            stop = min(stop, max(step + 1, due + (due / iterations < share)))
        return stop, share * scores if scores else math.inf

    def require_charge(self, step: int) -> None:
        """Raise ``InputError`` where nothing limits the run but score evaluations, and it asks for none."""
        if self._budget.iterations or self._budget.seconds:
            return
        if self._charged is None or self._charged[0] != self._meter.charged:
            self._charged = self._meter.charged, step
        elif (free := step - self._charged[1]) >= _MOST_FREE:
            raise InputError(
                f"{free} iterations without a score evaluation: a budget of score evaluations alone would never end; "
                "limit the iterations, too (--budget iterations=N)"
            )

    def cost(self, step: int) -> Cost:
        """What ``step`` iterations have cost each replicate."""
        return Cost(step, self._meter.charged, self.clock.seconds / len(self._chunk.replicates), self._memory())

    @property
    def saved(self) -> dict[str, Any]:
        """All but the clock, for ``restore``."""
        meter = self._meter
        return {
            "meter": (meter.scores, meter.hessian_vector_products, meter.log_densities),
            "calls": (meter.score_calls, meter.product_calls, meter.density_calls),
            "memory": self._memory(),
        }

    def restore(self, saved: Mapping[str, Any], seconds: float) -> None:
        """Go on from what an earlier process of this run has spent."""
        meter = self._meter
        meter.scores, meter.hessian_vector_products, meter.log_densities = saved["meter"]
        meter.score_calls, meter.product_calls, meter.density_calls = saved.get("calls", (0, 0, 0))
        self._earlier_peak = saved["memory"] or 0.0
        self.clock = Clock(self._device, seconds)

    def _memory(self) -> float | None:
        """Peak memory, MiB, earlier processes of this run included."""
        now = peak_memory(self._device)
        return None if now is None else max(now, self._earlier_peak)


class Guard:
    """Refuses a run whose sampler has changed its meter or, where ``watched``, called the target without it.

    Watched calls are those of the problem's target and of others of its class. Every metered call charges the meter
    first; a call before which nothing was charged is none of the problem's. Not noticed are densities that an algorithm
    has written itself, and one call after each backward pass, which charges, too.
    """

    def __init__(self, problem: Problem, *, watched: bool) -> None:
        self._problem, self._meter, self._limit = problem, problem.meter, problem.meter.limit
        self._kept: tuple[float, float, float] | None = None  #: the meter after its last charge
        self._type = type(problem._target)
        self._own = {name: vars(self._type).get(name) for name in _METHODS} if watched else {}
        self._paused = False
        self._rows = self._depth = 0
        self._seen = self._booked()

    def __enter__(self) -> Self:
        for name in self._own:
            setattr(self._type, name, self._counted(getattr(self._type, name)))
        start = self._problem.init

        def uncounted(n: int | None = None) -> Tensor:  # initial points may depend on the density
            with self.pausing():
                return start(n)

        self._problem.init = uncounted  # type: ignore[method-assign]
        book = self._meter.charge

        def charge(**asked: float) -> None:
            self.check()
            book(**asked)
            self._kept = self._booked()

        self._meter.charge = charge  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        del self._problem.init
        vars(self._meter).pop("charge", None)
        for name, method in self._own.items():
            if method is None:
                delattr(self._type, name)
            else:
                setattr(self._type, name, method)

    def check(self) -> None:
        """Raise ``BudgetIgnored`` if the meter was changed or bypassed."""
        if self._rows:
            raise BudgetIgnored(f"evaluated the target at {self._rows} rows past the meter of its budget")
        other = self._problem.meter is not self._meter or self._meter.limit != self._limit
        if other or self._kept not in (None, self._booked()):
            raise BudgetIgnored("changed the meter of its budget")

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count the harness's own calls of the target."""
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


#: Flag of a run.
CHANGED = (
    "the density of one point changed between calls: it is no function of the point, and the samples follow no law"
)
ENDED = "ended before its budget was spent: further steps would change nothing"
UNDEFINED = (
    "the log density was NaN or +inf at some points: samplers avoid them or diverge, and the samples may be wrong"
)


class Repeated:
    """Calls density and score at the first sample of the first checkpoint, (R, 1, D), outside of meter and clock."""

    def __init__(self, target: Target, dtype: torch.dtype) -> None:
        self._target, self._dtype = target, dtype
        self._first: tuple[Tensor, Tensor] | None = None  #: point and values

    @property
    def undefined(self) -> bool:
        """Whether a density of the user's was no number at a point so far."""
        return bool(getattr(self._target, "undefined", False))

    def changed(self, samples: Tensor) -> bool:
        """Whether the values differ from the first ones; the first time they are computed twice."""
        with torch.inference_mode(False), torch.no_grad():
            if self._first is None:
                point = samples[:, :1].clone().to(self._dtype)
                self._first = point, self._called(point)
            point, values = self._first
            return not same_again(values, self._called(point), single=True)

    def _called(self, point: Tensor) -> Tensor:
        density, score = self._target.log_density_and_score(point.clone())
        return torch.cat([density[..., None], score], -1).detach().clone()
