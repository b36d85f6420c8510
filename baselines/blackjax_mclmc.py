"""Microcanonical Langevin Monte Carlo, as BlackJAX implements it, on our scores.

Robnik, De Luca, Silverstein & Seljak (2023), arXiv:2212.08549; Cabezas et al. (2024), BlackJAX, arXiv:2402.10797. N
chains, vectorised; each tunes its step size, decoherence length and diagonal mass matrix by BlackJAX's
``mclmc_find_L_and_step_size`` in the first step, which is charged (three tenths of ``tuning``, two scores each). No
Metropolis step: the bias is that of the energy error that the tuning aims at. How scores reach JAX, what is charged and
what a block is: ``_jax_chains``.
"""

from typing import Any, NamedTuple

from pydantic import Field

from parvibench.core.algorithm import Example, Problem, Streams
from parvibench.core.errors import UnsupportedError
from parvibench.jax_programs.by_callback import Density
from parvibench.jax_programs.loading import jax_library

from ._jax_chains import Chains, ChainSettings, JaxChains, Program


class Settings(ChainSettings):
    """Settings of BlackJAX's MCLMC."""

    block: int = Field(20, ge=1, description="transitions of a chain in one step; ours")
    warmup_blocks: int = Field(1, ge=0, le=1, description="1: tune; 0: step size and length of untuned chains; ours")
    tuning: int = Field(300, ge=10, description="transitions that BlackJAX tunes for, three tenths of them taken; ours")
    energy_variance: float = Field(5e-4, gt=0, description="of the error a dimension and step; BlackJAX")


class Inner(NamedTuple):
    """Chains and what they have learnt."""

    chains: Any
    tuned: Any


class BlackJaxMCLMC(JaxChains):
    """Microcanonical Langevin Monte Carlo of BlackJAX, vectorised chains (external)."""

    name = "blackjax-mclmc"
    settings_type = Settings
    library = "blackjax"
    told = ("energy_variance",)
    citation = "Robnik et al. (2023), arXiv:2212.08549; Cabezas et al. (2024), arXiv:2402.10797"
    example = Example(settings={}, steps=20, both_modes=False, brief_steps=3)

    def init(self, problem: Problem, settings: Any, streams: Streams, horizon: int) -> Chains:
        """Chains at the initial points; ``UnsupportedError`` in one dimension, where the method has no direction to turn to."""
        if problem.dim < 2:
            raise UnsupportedError("blackjax-mclmc needs two dimensions or more")
        return super().init(problem, settings, streams, horizon)

    @staticmethod
    def _build(jax: Any, density: Density, n: int, dim: int, settings: Any) -> Program:
        blackjax, numpy = jax_library("blackjax", "blackjax"), jax.numpy
        state_of = jax_library("blackjax.adaptation.mclmc_adaptation", "blackjax").MCLMCAdaptationState
        kernel = blackjax.mcmc.mclmc.build_kernel(desired_energy_var=settings.energy_variance)

        def start(key: Any, x: Any) -> Inner:
            keys = jax.random.split(key, n)
            chains = jax.vmap(lambda k, p: blackjax.mcmc.mclmc.init(p, density.log_density, k))(keys, x)
            untuned = state_of(numpy.full(n, dim**0.5), numpy.full(n, 0.25 * dim**0.5), numpy.ones((n, dim)))
            return Inner(chains, untuned)

        def tune(key: Any, inner: Inner) -> Any:
            def one(key: Any, chain: Any) -> Any:
                return blackjax.mclmc_find_L_and_step_size(
                    mclmc_kernel=kernel, num_steps=settings.tuning, state=chain, rng_key=key,
                    logdensity_fn=density.log_density, desired_energy_var=settings.energy_variance,
                )[:2]  # fmt: skip

            chains, tuned = jax.vmap(one)(jax.random.split(key, n), inner.chains)
            return Inner(chains, tuned), numpy.full(1, numpy.nan)

        def sample(key: Any, inner: Inner) -> Any:
            def move(key: Any, chain: Any, tuned: Any) -> Any:
                return kernel(key, chain, density.log_density, tuned.inverse_mass_matrix, tuned.L, tuned.step_size)

            def one(chains: Any, key: Any) -> Any:
                chains, info = jax.vmap(move)(jax.random.split(key, n), chains, inner.tuned)
                return chains, numpy.mean(info.energy_change**2) / dim

            chains, found = jax.lax.scan(one, inner.chains, jax.random.split(key, settings.block))
            return inner._replace(chains=chains), found.mean()[None]

        start, tune, sample = map(jax.jit, (start, tune, sample))
        warm = lambda key, inner, number: tune(key, inner)  # noqa: E731
        return Program(start, sample, lambda inner: inner.chains.position, warm)
