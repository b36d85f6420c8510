"""Initial points: what a user gives as such, and draws of a fit of each replicate's own, paid for by the run that starts there."""

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import BudgetExhausted, InputError, UnsupportedError
from parvibench.core.streams import derive_seed
from parvibench.core.task import Problem, Task

#: Methods that find initial points, and their settings where they differ from the defaults.
FITS: dict[str, dict[str, str]] = {"pathfinder": {"resampling": "distinct"}, "laplace": {}}
_LONGEST = 20_000  # steps of a fit
_CHAINS_A_FIT = 20  # fits that end at different modes show in R-hat


def initial_points(name: str, initial: Any, dim: int) -> dict[str, Any]:
    """Fields of a task's start: a function, a mean (D,) or a fit's name; ``InputError`` for anything else."""
    if callable(initial):
        return {"start": initial}
    if isinstance(initial, str):
        if initial not in FITS:
            raise InputError(f"{name}: initial={initial!r} is none of {', '.join(FITS)}")
        return {"start": Around((0.0,) * dim), "begins": initial}
    try:
        centre = torch.as_tensor([0.0] * dim if initial is None else initial).to(torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        one_of = f"a function (n, generator) -> (n, D), {dim} numbers, or {' or '.join(FITS)}"
        raise InputError(f"{name}: initial is {one_of}: {error}") from None
    if centre.shape != (dim,):
        raise InputError(f"{name}: initial has shape {tuple(centre.shape)}; it is {dim} numbers, or a function")
    return {"start": Around(tuple(centre.tolist()))}


@dataclass(frozen=True)
class Around:
    """Draws of a unit Gaussian around a centre (D,)."""

    centre: tuple[float, ...]

    def __call__(self, n: int, generator: Generator) -> Tensor:
        """Draws, (n, D) float64."""
        noise = torch.randn(n, len(self.centre), generator=generator, dtype=torch.float64)
        return torch.tensor(self.centre, dtype=torch.float64) + noise


def begin_at_fits(task: Task, problem: Problem, kind: str) -> None:
    """Let a problem's initial points be draws of a fit, ``kind``, that begins at those of its task.

    What the costliest replicate has evaluated is charged as score evaluations. A fit ends with the budget.
    ``UnsupportedError`` where the task has no scores on all data.
    """
    if "full-batch" not in task.provides:
        raise UnsupportedError(f"{task.name} gives no scores on all data, which start: {kind} needs; start: task")

    def found(_: object, n: int, __: object) -> Tensor:
        meter, streams = problem.meter, problem.streams
        left, seed = None if meter.limit is None else meter.limit - meter.charged, derive_seed(streams.seed, "start")
        options: dict[str, Any] = {"limit": left, "full_batch": True}
        fits = [task.problem((r,), seed, streams.device, streams.dtype, **options) for r in streams.replicates]
        points = torch.cat([_draws(fit, kind, n) for fit in fits])
        cost = max(fit.meter.charged for fit in fits)
        meter.charge(scores=cost, log_densities=cost)
        meter.score_calls += max(fit.meter.sequential_steps for fit in fits) - 1
        problem.start_cost += cost
        return points

    problem._start = found


def fitted_points(task: Task, kind: str, n: int, seed: int) -> Tensor:
    """Starts of n chains outside a budget, (n, D) float64: draws of fits from different points, twenty of each."""
    fits = task.problem(-(-n // _CHAINS_A_FIT), seed, dtype=torch.float64, particles=_CHAINS_A_FIT, full_batch=True)
    begin_at_fits(task, fits, kind)
    return fits.init().flatten(0, 1)[:n]


def _draws(problem: Problem, kind: str, n: int) -> Tensor:
    """Points of a fit on a problem of one replicate, (1, n, D)."""
    method: Any = registry.load_algorithm(kind)
    settings = method.make_settings(FITS[kind])
    with torch.no_grad():
        state = method.init(problem, settings, problem.streams, _LONGEST)
        taken = take_steps(method.step, problem, settings, state)
        with suppress(BudgetExhausted):
            for state, _ in islice(taken, _LONGEST):
                if method.ended(problem, settings, state):
                    break
        return method.output(problem, settings, state, n, problem.streams)[:, :n]
