"""Kernels that leave their target exactly invariant: chains that start at exact draws end at exact draws.

This holds after any number of steps; without the Metropolis ratio, with its inverse or without the proposal's part it
does not. Since these kernels are reversible, the rank of an exact draw among the points of the chain run from it
forwards and backwards is uniform (Gandy & Scott 2020, arXiv:2001.06465).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from asking import assert_right
from law_tools import exact_draws, problem_at, ranks_along, run, summaries
from torch import Tensor

from parvibench.checks.question import Expected, Question, Values
from parvibench.checks.summaries import (
    SETS,
    Settings,
    generator_of,
    laws,
    rank_functions,
    rank_statistics,
    settings_of,
    uniform_ranks,
)
from parvibench.core.registry import load_algorithm, load_task
from parvibench.core.target import Target


@dataclass(frozen=True)
class _OfKernel(Question):
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


KERNELS = [
    ("linear-regression", "mala", settings_of(step_size=0.003)),
    ("banana", "mala", settings_of(step_size=0.05)),
    ("linear-regression", "hmc", settings_of(step_size=0.003, leapfrog_steps=4, jitter=0.3)),
    ("banana", "hmc", settings_of(step_size=0.04, leapfrog_steps=4, jitter=0.3)),
    ("correlated-2d", "hmc", settings_of(step_size=0.06, leapfrog_steps=4)),
]
#: Several integrator steps to a trajectory, which is not seen backwards between its ends.
_NO_WARMUP = settings_of(warmup_steps=0)
TRAJECTORIES = [
    Invariance("banana", "nuts", (*_NO_WARMUP, *settings_of(max_tree_depth=3, leapfrogs=7))),  # a fifth diverge
    Invariance("diffusion-50", "nuts", settings_of(mass="dense", warmup_steps=48), steps=96, chains=24),
    Invariance("linear-regression", "adjusted-mclmc", (*_NO_WARMUP, ("first_length", 0.1)), steps=40),
    Invariance("banana", "adjusted-mclmc", (*_NO_WARMUP, ("first_length", 0.4)), steps=40),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k[1]} on {k[0]}")
def test_invariance(kernel: tuple[str, str, Settings]) -> None:
    assert_right(Invariance(*kernel))


@pytest.mark.ci
@pytest.mark.parametrize("question", TRAJECTORIES, ids=lambda q: f"{q.algorithm} on {q.task}")
def test_invariance_of_trajectories(question: Invariance) -> None:
    assert_right(question)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k[1]} on {k[0]}")
def test_ranks(kernel: tuple[str, str, Settings]) -> None:
    assert_right(Ranks(*kernel))


def test_summaries_of_points() -> None:
    x = torch.tensor([[[0.0, 1.0], [2.0, 3.0]], [[0.0, 0.0], [torch.inf, 1.0]]])
    found = summaries(x, torch.tensor([[1.0, 3.0], [0.0, 0.0]]), "p.")
    assert found["p.mean[0]"] == [1.0, np.inf]
    assert found["p.log_sd[1]"] == pytest.approx([0.0, np.log(0.5)])
    assert found["p.corr[0]"] == [1.0, np.inf]
    assert found["p.energy"] == [2.0, 0.0]
