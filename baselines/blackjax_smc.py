"""Adaptive tempered sequential Monte Carlo, as BlackJAX implements it, on our scores.

Del Moral, Doucet & Jasra (2006), doi:10.1111/j.1467-9868.2006.00553.x; Cabezas et al. (2024), BlackJAX, arXiv:2402.10797.
N particles go from N(0, base_sd^2 I) to the target along the geometric path; each inverse temperature keeps ``ess`` of the
effective sample size. Then particles are resampled (systematic) and moved by HMC with the particles' variances as inverse
mass matrix. After the last temperature, steps go on resampling and moving at the target. How scores reach JAX, and what is
charged: ``_jax_chains``.
"""

import math
from typing import Any, NamedTuple

from pydantic import Field

from parvibench.core.algorithm import AlgorithmSettings, Example
from parvibench.jax_programs.by_callback import Density
from parvibench.jax_programs.loading import jax_library

from ._jax_chains import JaxChains, Program


class Settings(AlgorithmSettings):
    """Settings of tempered SMC."""

    base_sd: float = Field(5.0, gt=0, description="sd of the base measure, in units of x; ours")
    ess: float = Field(0.8, gt=0, lt=1, description="effective sample size kept by a temperature, a share of N; ours")
    moves: int = Field(2, ge=1, description="HMC transitions of a particle at each temperature; ours")
    leapfrog_steps: int = Field(5, ge=1, description="of a transition; ours")
    leapfrog_length: float = Field(0.4, gt=0, description="of a leapfrog step, in the particles' sds; ours")


class Inner(NamedTuple):
    """Particles as BlackJAX holds them, and resampled."""

    tempered: Any
    x: Any  # (N, D)
    log_z: Any


class BlackJaxSMC(JaxChains):
    """Adaptive tempered SMC of BlackJAX with HMC moves (external)."""

    name = "blackjax-smc"
    kind = "particles"
    settings_type = Settings
    library = "blackjax"
    told = ("acceptance", "log_z", "inverse_temperature")  # log_z of the path so far
    citation = "Del Moral, Doucet & Jasra (2006); Cabezas et al. (2024), arXiv:2402.10797"
    example = Example(settings={}, steps=20, both_modes=False, brief_steps=3)

    @staticmethod
    def _build(jax: Any, density: Density, n: int, dim: int, settings: Any) -> Program:
        blackjax, numpy = jax_library("blackjax", "blackjax"), jax.numpy
        smc, resampling = (jax_library(f"blackjax.smc.{m}", "blackjax") for m in ("adaptive_tempered", "resampling"))
        sd = settings.base_sd

        def base(x: Any) -> Any:
            return -0.5 * (x**2).sum() / sd**2 - dim * math.log(sd * math.sqrt(2 * math.pi))

        kernel = smc.build_kernel(
            base, lambda x: density.log_density(x) - base(x), blackjax.hmc.build_kernel(), blackjax.hmc.init,
            resampling.systematic, settings.ess,
        )  # fmt: skip

        def start(key: Any, x: Any) -> Inner:
            x = sd * jax.random.normal(key, (n, dim))
            state = blackjax.smc.tempered.init(x)._replace(tempering_param=numpy.zeros(()))
            return Inner(state, x, numpy.zeros(()))

        def sample(key: Any, inner: Inner) -> Any:
            key, at = jax.random.split(key)
            parameters = {
                "step_size": numpy.full(1, settings.leapfrog_length),
                "inverse_mass_matrix": inner.x.var(0)[None] + 1e-12,
                "num_integration_steps": numpy.full(1, settings.leapfrog_steps),
            }
            state, info = kernel(key, inner.tempered, settings.moves, parameters)
            x = state.particles[resampling.systematic(at, state.weights, n)]
            log_z = inner.log_z + info.log_likelihood_increment
            told = (info.update_info.acceptance_rate.mean(), log_z, state.tempering_param)
            return Inner(state, x, log_z), numpy.stack(told)

        return Program(jax.jit(start), jax.jit(sample), lambda inner: inner.x)
