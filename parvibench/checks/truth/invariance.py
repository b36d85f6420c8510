"""Kernels that leave their target exactly invariant: chains that start at exact draws end at exact draws.

This holds after any number of steps; without the Metropolis ratio, with its inverse or without the proposal's part it
does not. Since these kernels are reversible, the rank of an exact draw among the points of the chain run from it
forwards and backwards is uniform (Gandy & Scott 2020, arXiv:2001.06465).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.checks.questions import Expected, Values
from parvibench.core.registry import load_algorithm, load_task
from parvibench.core.target import Target

from .steps import (
    SETS,
    Settings,
    TruthQuestion,
    as_values,
    exact_draws,
    generator_of,
    laws,
    problem_at,
    run,
    settings_of,
    summaries,
)


@dataclass(frozen=True)
class _OfKernel(TruthQuestion):
    """A question about a reversible kernel on a task with exact draws."""

    task: str  #: its exact draws and density
    algorithm: str  #: a registered kernel
    settings: Settings  #: of the kernel; steps so long that about a third of the proposals are rejected

    def _start(self, chains: int, replicates: range, *address: object) -> tuple[Target, Tensor]:
        """The density of the replicates, and exact draws from it, (R, chains, D)."""
        task = load_task(self.task)
        draws = [task.exact(chains, generator_of(self.task, *address, r)) for r in replicates]
        return task.target(tuple(replicates), "cpu", torch.float64), torch.stack(draws)


@dataclass(frozen=True)
class Invariance(_OfKernel):
    """Whether chains that start at exact draws end at exact draws."""

    steps: int = 12  #: taken
    chains: int = 400  #: in a replicate

    def measure(self, replicates: range, seed: int) -> Values:
        """Summaries of the last positions."""
        target, start = self._start(self.chains, replicates, "start", seed)
        algorithm = load_algorithm(self.algorithm)
        settings, problem = (algorithm.make_settings(dict(self.settings)), problem_at(target, start, replicates, seed))
        x = run(algorithm, settings, problem, self.steps).path[-1]
        return summaries(x, target.log_density(x), "kept.")

    def expected(self) -> Mapping[str, Expected]:
        """The same of fresh exact draws."""
        return _exact_summaries(self.task, self.chains)


@cache
def _exact_summaries(task_name: str, chains: int) -> Mapping[str, Expected]:
    task = load_task(task_name)
    x = exact_draws(task, SETS, chains, generator_of(task_name, "law"))
    return laws(summaries(x, task.target([0], "cpu", torch.float64).log_density(x), "kept."))


@dataclass(frozen=True)
class Ranks(_OfKernel):
    """Whether an exact draw is distinguishable from the chain that runs through it."""

    length: int = 9  #: of the chain, without the exact draw
    chains: int = 300  #: in a replicate

    def measure(self, replicates: range, seed: int) -> Values:
        """Mean rank, and mean distance of ranks from their mean, for each function of the points."""
        target, start = self._start(self.chains, replicates, "ranks", seed)
        ranks = ranks_along(target, start, replicates, seed, self.algorithm, self.settings, self.length)
        return rank_statistics(ranks, self.length)

    def expected(self) -> Mapping[str, Expected]:
        """Uniform ranks."""
        functions = len(rank_functions(torch.zeros(1, 1, load_task(self.task).dim), torch.zeros(1, 1)))
        return uniform_ranks(self.length, self.chains, functions)


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


def ranks_of(target: Target, start: Tensor, paths: Sequence[Tensor], generator: Generator) -> Tensor:
    """Ranks in 0 to L, (F, R, N), of exact draws (R, N, D) in the chains through them, ties broken at random.

    One for each of the functions of ``rank_functions``. The two paths of L steps, (L, R, N, D), both begin at the draws;
    a random part of them, L steps together, is the chain's future and past.
    """
    length = len(paths[0])
    place = torch.randint(0, length + 1, start.shape[:2], generator=generator)
    step = torch.arange(length)[:, None, None]
    used = torch.cat([step < place, step < length - place])  # (2L, R, N)
    own = rank_functions(start, target.log_density(start))[:, None]
    found = torch.stack([rank_functions(x, target.log_density(x)) for x in torch.cat(list(paths))], 1)
    below = ((found < own) & used).sum(1)
    ties = ((found == own) & used).sum(1)
    broken = torch.rand(ties.shape, generator=generator, dtype=torch.float64) * (ties + 1)
    return below + broken.long()


def rank_functions(x: Tensor, log_density: Tensor) -> Tensor:
    """The log density, every coordinate, and the product of the first two: (R, N, D) -> (F, R, N)."""
    return torch.stack([log_density, *x.unbind(-1), x[..., 0] * x[..., 1]])


def rank_statistics(ranks: Tensor, length: int) -> Values:
    """Mean and spread of ranks (F, R, N), as shares of L."""
    shares = ranks.double() / length - 0.5
    found = {f"rank[{i}]": as_values(share.mean(1)) for i, share in enumerate(shares)}
    return found | {f"rank_spread[{i}]": as_values(share.abs().mean(1)) for i, share in enumerate(shares)}


@cache
def uniform_ranks(length: int, chains: int, functions: int) -> Mapping[str, Expected]:
    """What ``rank_statistics`` gives for uniform ranks."""
    drawn = np.random.default_rng(length).integers(0, length + 1, (SETS, chains))
    one = rank_statistics(torch.from_numpy(drawn)[None], length)
    return laws({f"{name[:-3]}[{i}]": values for name, values in one.items() for i in range(functions)})


def kernel_questions() -> list[TruthQuestion]:
    """All questions about invariance."""
    kernels = [
        ("linear-regression", "mala", settings_of(step_size=0.003)),
        ("banana", "mala", settings_of(step_size=0.05)),
        ("linear-regression", "hmc", settings_of(step_size=0.003, leapfrog_steps=4, jitter=0.3)),
        ("banana", "hmc", settings_of(step_size=0.04, leapfrog_steps=4, jitter=0.3)),
        ("correlated-2d", "hmc", settings_of(step_size=0.06, leapfrog_steps=4)),
    ]
    reversible: list[TruthQuestion] = [question(*kernel) for kernel in kernels for question in (Invariance, Ranks)]
    # Several integrator steps to a trajectory, which is not seen backwards between its ends.
    fixed = [("linear-regression", 0.1), ("banana", 0.4)]
    trees = [
        Invariance("banana", "nuts", settings_of(warmup_steps=0, max_tree_depth=3, leapfrogs=7)),  # a fifth diverge
        Invariance("diffusion-50", "nuts", settings_of(mass="dense", warmup_steps=48), steps=96, chains=24),
    ]
    return (
        reversible
        + trees
        + [
            Invariance(task, "adjusted-mclmc", settings_of(warmup_steps=0, first_length=length), steps=40)
            for task, length in fixed
        ]
    )
