"""What tests of laws share: short runs of a registered method, from given points."""

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from parvibench.checks.summaries import Settings, as_values, generator_of, ranks_of
from parvibench.core.algorithm import Algorithm, take_steps
from parvibench.core.registry import load_algorithm
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem, Task


class Run(NamedTuple):
    """State and path of an algorithm."""

    state: Any  #: after the last step
    path: list[Tensor]  #: positions after every step, (R, N, D) each; empty where a state has none


class Normal(Target):
    """Independent normal coordinates of means and log variances (D,)."""

    def __init__(self, mean: Tensor, log_var: Tensor) -> None:
        self._mean, self._variance = mean, log_var.exp()
        self.dim = len(mean)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        return -0.5 * ((x - self._mean).square() / self._variance).sum(-1)


def run(algorithm: Algorithm, settings: Any, problem: Problem, steps: int) -> Run:
    """Take steps as the harness does; the problem's streams advance."""
    streams, path = problem.streams, []
    streams.step = 0
    with nullcontext() if algorithm.differentiates else torch.inference_mode():
        state = start = algorithm.init(problem, settings, streams, steps)
        for state, _ in islice(take_steps(algorithm.step, problem, settings, start), steps):
            if hasattr(state, "x"):
                path.append(state.x.detach().clone())
    return Run(state, path)


def problem_at(target: Target, start: Tensor, ids: Sequence[int], seed: int, batch: int | None = None) -> Problem:
    """The problem of a density whose chains start at given points, (R, N, D) float64."""
    streams = Streams(seed, ids, "cpu", torch.float64)
    n = start.shape[1]
    return Problem(target, streams, start=lambda _, k, __: start[:, :k], particles=n, batch_size=batch)


def exact_draws(task: Task, sets: int, points: int, generator: Generator) -> Tensor:
    """Independent exact draws of a task, (sets, points, D) float64."""
    return task.exact(sets * points, generator).view(sets, points, task.dim)


def ranks_along(
    target: Target, start: Tensor, replicates: range, seed: int, algorithm_name: str, settings: Settings, length: int
) -> Tensor:
    """Ranks of exact draws in the chains of a registered kernel; ``target`` is bound to the rows of ``start``."""
    algorithm = load_algorithm(algorithm_name)
    made = algorithm.make_settings(dict(settings))
    # For a reversible kernel, backwards is forwards with other noise.
    paths = [
        torch.stack(run(algorithm, made, problem_at(target, start, replicates, way), length).path)
        for way in (2 * seed, 2 * seed + 1)
    ]
    return ranks_of(target, start, paths, generator_of("place", seed))


def summaries(x: Tensor, log_density: Tensor | None = None, prefix: str = "") -> dict[str, list[float]]:
    """Means, log sds and correlations of neighbouring coordinates of points (R, N, D), one value per replicate.

    ``log_density`` (R, N) at the points, where given, has the mean ``energy``; ``prefix`` precedes every name.
    """
    # Accumulated in double: a replicate that overflowed is +inf below.
    x = x.double()
    mean, centred = x.mean(1), x - x.mean(1, keepdim=True)
    sd = centred.square().mean(1).sqrt()
    found = {f"mean[{d}]": mean[:, d] for d in range(x.shape[2])}
    found |= {f"log_sd[{d}]": sd[:, d].log() for d in range(x.shape[2])}
    for d in range(x.shape[2] - 1):
        found[f"corr[{d}]"] = (centred[..., d] * centred[..., d + 1]).mean(1) / (sd[:, d] * sd[:, d + 1])
    if log_density is not None:
        found["energy"] = log_density.mean(1)
    return {prefix + name: as_values(value) for name, value in found.items()}
