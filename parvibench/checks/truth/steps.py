"""Steps of an algorithm outside the harness, and statistics of the points reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.checks.questions import Expected, Law, Oracle, Question
from parvibench.checks.words import circumstances
from parvibench.core.algorithm import Algorithm, take_steps
from parvibench.core.streams import Streams, derive_seed
from parvibench.core.target import Target
from parvibench.core.task import Problem, Task

#: Sets of exact draws behind the law of a statistic.
SETS = 1000
#: Settings as a tuple, so that questions can be compared and cached.
Settings = tuple[tuple[str, Any], ...]
#: Draws of one set after another: (sets, points, D).
Draw = Callable[[int, int, Generator], Tensor]


class TruthQuestion(Question):
    """A question whose answer follows from theory."""

    oracle: Oracle = "truth"

    @property
    def circumstances(self) -> str:
        """Of the question's own fields."""
        return circumstances(vars(self))


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


def settings_of(**values: Any) -> Settings:
    """Settings that a question can hold."""
    return tuple(values.items())


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


def generator_of(*parts: object) -> Generator:
    """A generator seeded by its address."""
    return Generator().manual_seed(derive_seed("truth", *parts))


def per_replicate(ids: Sequence[int], width: int | None) -> Iterator[tuple[int, ...]]:
    """The replicates in chunks of at most ``width``."""
    step = width or len(ids)
    return (tuple(ids[first : first + step]) for first in range(0, len(ids), step))


def summaries(x: Tensor, log_density: Tensor | None = None, prefix: str = "") -> dict[str, list[float]]:
    """Means, log sds and correlations of neighbouring coordinates of points (R, N, D), one value per replicate.

    ``log_density`` (R, N) at the points, where given, has the mean ``energy``; ``prefix`` stands before every name.
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


def as_values(values: Tensor) -> list[float]:
    """One number per replicate, +inf where it is not finite."""
    return torch.where(values.isfinite(), values, torch.inf).tolist()


def laws(found: Mapping[str, Sequence[float] | NDArray[np.float64]]) -> dict[str, Expected]:
    """Every statistic's draws as its law."""
    return {name: Law(np.asarray(values, dtype=np.float64)) for name, values in found.items()}
