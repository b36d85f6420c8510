"""Traces of tasks at fixed points, those with data on generated tables."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import astuple, replace
from typing import Any

import torch
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.budget import Budget
from parvibench.core.sequential import GrowingProblem, GrowingTarget, SequentialTask
from parvibench.core.task import TUNING_REPLICATES, Task

from .noise import normal_numbers
from .trace import Trace, Values, plain, weighted

#: Second replicates have data of their own.
_REPLICATES = (0, 1)
_POINTS = 3


def numbers(key: int, *shape: int) -> Tensor:
    """Standard normal numbers, float64."""
    return torch.from_numpy(normal_numbers(key, *shape))


def task_traces(name: str) -> Iterator[Trace]:
    """The traces of a task."""
    task = copy.copy(registry.load_task(name))
    vars(task).pop("centres", None)  # drawn once, perhaps outside of ``Noise``
    yield Trace(f"{name} protocol", lambda: _protocol(task))
    yield Trace(f"{name} density", lambda: _sequential(task) if isinstance(task, SequentialTask) else _density(task))
    if "predictive" in task.provides and not isinstance(task, SequentialTask):  # tuning has rows of its own
        yield Trace(f"{name} tuning", lambda: _density(task, (TUNING_REPLICATES,)))
    yield Trace(f"{name} start", lambda: _start(task))


def _protocol(task: Task) -> Values:
    return {
        "sizes": [float(v or 0) for v in (task.dim, task.particles, task.batch_size, task.rows)],
        "metrics": [task.primary, " ".join(task.metrics)],
        "provides": [" ".join(sorted(task.provides))],
        "facts": plain(task.facts),
        "shares": [task.batch_share(), task.batch_share(full_batch=True)],
        "budget": plain(astuple_of(Budget(scores_per_particle=7).resolve(task.particles, task.batch_share()))),
    }


def astuple_of(budget: Budget) -> tuple[Any, ...]:
    """The limits of a budget."""
    return budget.iterations, budget.score_evaluations, budget.seconds


def _density(task: Task, replicates: tuple[int, ...] = _REPLICATES) -> Values:
    """Log density, score, its product with a vector, and the same of a mini-batch; canonical points; predictions."""
    target = task.target(replicates, "cpu", torch.float64)
    x = _points(task, len(replicates))
    both = target.log_density_and_score(x)
    found: Values = {
        "log density": target.log_density(x).flatten().tolist(),
        "score": _rows(target.score(x)),
        "both": [weighted(both[0]), weighted(both[1])],
        "canonical": _rows(task.canonical(x)),
        "rows": [float(target.rows or 0), float(target.development_rows), target.prior_precision or 0.0],
    }
    if "hvp" in task.provides:
        leaf = x.clone().requires_grad_()
        products = torch.autograd.grad(target.score(leaf), leaf, grad_outputs=numbers(3, *x.shape))[0]
        found["products"] = _rows(products)
    if target.rows:
        batch = torch.arange(7).mul(11).remainder(target.rows).expand(len(x), -1)
        found["mini-batch"] = [*_rows(target.score(x, batch)), weighted(target.log_density(x, batch))]
        fits = [(batch, False), (None, False), *([(None, True)] if target.development_rows else [])]
        if "regression" in task.tags:
            found["fit"] = [weighted(target.fit_gradient(x, rows, held)) for rows, held in fits]
    data = task.predictive(replicates, "cpu", torch.float64)
    if data is not None:
        means, sds = data.predict(x)
        found["predictions"] = [*_rows(means), *_rows(sds.expand(means.shape[:2])[..., None])]
        found["held out"] = _rows(data.y[:, None])
    return found


def _points(task: Task, count: int) -> Tensor:
    """Points of the size of the standard normal's, (R, n, D), those of a path a hundredth apart."""
    x = numbers(1, count, _POINTS, task.dim)
    return 0.3 * x if "network" in task.tags else x


def _rows(x: Tensor) -> list[Any]:
    """One number per replicate."""
    return [weighted(part) for part in x]


def _start(task: Task) -> Values:
    """Initial points and exact draws."""
    problem = task.problem(_REPLICATES, 3, "cpu", torch.float64, particles=4)
    found: Values = {"start": _rows(problem.init(4))}
    if "exact" in task.provides:
        draws = task.exact(6, Generator().manual_seed(4))
        found["exact"] = [weighted(draws), weighted(draws.square())]
    if problem.share < 1:
        scores = []
        for problem.streams.step in (0, 1, 40):
            if isinstance(task, SequentialTask):
                continue
            scores.append(weighted(problem.score(problem.init(2))))
        found["batches"] = [*scores, problem.meter.charged]
    return found


def _sequential(task: SequentialTask) -> Values:
    """The posterior before and after some decisions, and what they earn."""
    task = task.with_contexts(task.period + 20)
    target = task.target((0, 1), "cpu", torch.float64)
    assert isinstance(target, GrowingTarget)
    x = 0.1 * numbers(1, 2, 2, task.dim)
    found: Values = {"prior": _both(target, x, None), "trainings": plain(task.trainings())}
    for round_ in range(2):
        actions = (torch.arange(2 * 9).view(2, 9) * (2 + round_)) % target.n_actions
        target.observe(actions)
        found[f"round {round_}"] = [*_both(target, x, None), *_both(target, x, torch.arange(5).expand(2, -1))]
        found[f"values {round_}"] = _rows(target.values(x, 6))
    found["decisions"] = [weighted(part) for part in astuple(target.decisions())]
    return found | {"batches": _growing_batches(task)}


def _growing_batches(task: SequentialTask) -> list[Any]:
    """Scores on mini-batches of what was seen, at a few steps, and their price."""
    problem = replace(task, batch_size=9).problem((0, 1), 3, "cpu", torch.float64, particles=2)
    assert isinstance(problem, GrowingProblem)
    problem.posterior.observe(torch.arange(2 * 30).view(2, 30) % problem.posterior.n_actions)
    x, found = 0.1 * numbers(1, 2, 2, task.dim), []
    for problem.streams.step in (0, 1, 40):
        found.append(weighted(problem.score(x)))
    return [*found, problem.meter.charged]


def _both(target: GrowingTarget, x: Tensor, batch: Tensor | None) -> list[Any]:
    return [weighted(target.log_density(x, batch)), weighted(target.score(x, batch))]
