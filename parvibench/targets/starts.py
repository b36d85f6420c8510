"""Initial points that a method finds: draws of a fit of each replicate's own, paid for by the run that starts there."""

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from parvibench.core import registry
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import BudgetExhausted, UnsupportedError
from parvibench.core.streams import derive_seed
from parvibench.core.task import Problem, Task

#: Methods that find initial points, and their settings where they differ from the defaults.
FITS: dict[str, dict[str, str]] = {"pathfinder": {"resampling": "distinct"}, "laplace": {}}
_LONGEST = 20_000  # steps of a fit
_CHAINS_A_FIT = 20  # fits that end at different modes show in R-hat


def begin_at_fits(task: Task, problem: Problem, kind: str) -> None:
    """Let a problem's initial points be draws of a fit, ``kind``, that begins at those of its task.

    What the costliest replicate has evaluated is charged as score evaluations. A fit ends with the budget.

    Raises:
        UnsupportedError: the task has no scores on all data.
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
        try:
            for stepped, _ in islice(take_steps(method.step, problem, settings, state), _LONGEST):
                state = stepped
                if method.ended(problem, settings, state):
                    break
        except BudgetExhausted:
            pass
        return method.output(problem, settings, state, n, problem.streams)[:, :n]
