"""Pathfinder, as BlackJAX implements it, on our scores.

Zhang, Carpenter, Gelman & Vehtari (2022), arXiv:2108.03782, Algorithm 3; Cabezas et al. (2024), BlackJAX, arXiv:2402.10797.
A step is one path of L-BFGS from the next of the task's initial points; the approximation with the highest ELBO of all
paths so far is the result. BlackJAX draws ``elbo_draws`` for every place on a path of full length, also for those that were not
reached, and all are charged: about (longest + 1) elbo_draws a path. How scores reach JAX: ``_jax_chains``.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import AlgorithmSettings, Example
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.jax_programs.by_callback import Density
from parvibench.jax_programs.loading import jax_library

from ._chains import seed_of
from ._jax_chains import Chains, JaxChains, Program


class Settings(AlgorithmSettings):
    """Settings of BlackJAX's Pathfinder."""

    longest: int = Field(30, ge=1, description="most L-BFGS iterations of a path; BlackJAX")
    history: int = Field(10, ge=1, description="updates that L-BFGS remembers; BlackJAX")
    elbo_draws: int = Field(20, ge=1, description="draws for each ELBO; ours (BlackJAX: 200)")


class Inner(NamedTuple):
    """Paths so far."""

    x: Any  # (N, D) initial points
    paths: Any
    best: Any  # BlackJAX's approximation, or None


class BlackJaxPathfinder(JaxChains):
    """Pathfinder of BlackJAX, the best of several paths (external)."""

    name = "blackjax-pathfinder"
    kind = "generator"
    settings_type = Settings
    library = "blackjax"
    told = ("elbo",)  # of the best approximation
    citation = "Zhang et al. (2022), arXiv:2108.03782; Cabezas et al. (2024), arXiv:2402.10797"
    example = Example(settings={}, steps=3, both_modes=False, brief_steps=2)

    def output(self, problem: Problem, settings: Any, state: Chains, n: int, streams: Streams) -> Tensor:
        """Draws of the best approximation; before the first path ends, the initial points in turn."""
        jax, best = jax_library("jax", "blackjax"), state.inner.best
        if best is None:
            x = np.array(state.inner.x)[np.arange(n) % len(state.inner.x)]
        else:
            key = jax.random.key(seed_of(streams, self.name, "output", streams.step))
            x = np.array(jax_library("blackjax.vi.pathfinder", "blackjax").sample(key, best, n)[0])
        return torch.from_numpy(x).to(problem.device, problem.dtype).unsqueeze(0)

    @staticmethod
    def _build(jax: Any, density: Density, n: int, dim: int, settings: Any) -> Program:
        pathfinder = jax_library("blackjax.vi.pathfinder", "blackjax")

        @jax.jit  # type: ignore[untyped-decorator]
        def path(key: Any, x: Any) -> Any:
            return pathfinder.approximate(
                key, density.log_density, x, settings.elbo_draws, maxiter=settings.longest, maxcor=settings.history
            )[0]

        def sample(key: Any, inner: Inner) -> Any:
            found = path(key, inner.x[inner.paths % n])
            better = inner.best is None or bool(found.elbo > inner.best.elbo)
            best = found if better else inner.best
            return Inner(inner.x, inner.paths + 1, best), jax.numpy.array([best.elbo])

        return Program(lambda key, x: Inner(jax.numpy.asarray(x), 0, None), sample, lambda inner: inner.x)
