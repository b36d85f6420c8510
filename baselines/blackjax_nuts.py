"""The No-U-Turn sampler, as BlackJAX implements it, on our scores.

Hoffman & Gelman (2014), arXiv:1111.4246; Cabezas et al. (2024), BlackJAX, arXiv:2402.10797. N chains, vectorised, each
with its own step length and diagonal mass matrix by Stan's windowed warm-up, made of BlackJAX's dual averaging and mass
matrix adaptation. How scores reach JAX, what is charged and what a block is: ``_jax_chains``.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from parvibench.core.algorithm import Example
from parvibench.jax_programs.by_callback import Density
from parvibench.jax_programs.loading import jax_library

from ._jax_chains import JaxChains, Program, TreeSettings


class Inner(NamedTuple):
    """Chains and what they have learnt."""

    chains: Any
    pace: Any  # dual averaging
    masses: Any
    step: Any  # (N,) step length of every chain
    scale: Any  # (N, D) inverse mass matrix


class BlackJaxNUTS(JaxChains):
    """The No-U-Turn sampler of BlackJAX, vectorised chains (external)."""

    name = "blackjax-nuts"
    settings_type = TreeSettings
    library = "blackjax"
    citation = "Hoffman & Gelman (2014), arXiv:1111.4246; Cabezas et al. (2024), arXiv:2402.10797"
    example = Example(settings={"max_tree_depth": 4}, steps=20, both_modes=False, brief_steps=3)

    @staticmethod
    def _build(jax: Any, density: Density, n: int, dim: int, settings: Any) -> Program:
        blackjax, numpy = jax_library("blackjax", "blackjax"), jax.numpy
        stages, mass_matrix, step_size = (
            jax_library(f"blackjax.adaptation.{m}", "blackjax")
            for m in ("staged_adaptation", "mass_matrix", "step_size")
        )
        warmup = settings.block * max(1, settings.warmup_blocks)
        schedule = np.array(stages.build_schedule(warmup), dtype=np.int32)
        masses = mass_matrix.mass_matrix_adaptation(True)
        paces = step_size.dual_averaging_adaptation(settings.target_acceptance)
        kernel = blackjax.nuts.build_kernel()

        def move(key: Any, chains: Any, step: Any, scale: Any) -> Any:
            return jax.vmap(
                lambda k, c, e, m: kernel(k, c, density.log_density, e, m, max_num_doublings=settings.max_tree_depth)
            )(jax.random.split(key, n), chains, step, scale)

        def learn(slow: Any, ends: Any, pace: Any, mass: Any, x: Any, acceptance: Any) -> Any:
            """Adaptation as Stan's: the step length always, variances in slow windows, both restarted at a window's end."""
            pace = paces[1](pace, acceptance)
            mass = jax.lax.cond(slow == 1, lambda: masses[1](mass, x), lambda: mass)
            return jax.lax.cond(ends == 1, lambda: (paces[0](paces[2](pace)), masses[2](mass)), lambda: (pace, mass))

        def told(info: Any) -> Any:
            found = (info.acceptance_rate, info.is_divergent, info.num_trajectory_expansions)
            return numpy.stack([numpy.mean(v.astype(numpy.float32)) for v in found])

        def start(key: Any, x: Any) -> Inner:
            chains = jax.vmap(lambda p: blackjax.nuts.init(p, density.log_density))(x)
            pace = jax.vmap(paces[0])(numpy.ones(n))
            mass = jax.vmap(lambda _: masses[0](dim))(numpy.arange(n))
            return Inner(chains, pace, mass, numpy.ones(n), numpy.ones((n, dim)))

        def transitions(key: Any, inner: Inner, part: Any) -> Any:
            """A block in warm-up or after it, by one program: compiling trajectories takes longer than most runs."""

            def one(inner: Inner, at: Any) -> Any:
                key, (learning, slow, ends) = at
                chains, info = move(key, inner.chains, inner.step, inner.scale)

                def learnt() -> Inner:
                    pace, mass = jax.vmap(partial(learn, slow, ends))(
                        inner.pace, inner.masses, chains.position, info.acceptance_rate
                    )
                    return Inner(chains, pace, mass, numpy.exp(pace.log_step_size), mass.inverse_mass_matrix)

                return jax.lax.cond(learning, learnt, lambda: inner._replace(chains=chains)), told(info)

            inner, found = jax.lax.scan(one, inner, (jax.random.split(key, settings.block), part))
            return inner, found.mean(0)

        start, transitions = jax.jit(start), jax.jit(transitions)

        def warm(key: Any, inner: Inner, number: int) -> Any:
            rows = schedule[number * settings.block : (number + 1) * settings.block]
            return transitions(key, inner, (np.full(len(rows), True), rows[:, 0], rows[:, 1]))

        def sample(key: Any, inner: Inner) -> Any:
            none = np.zeros(settings.block, np.int32)
            return transitions(key, inner, (none.astype(bool), none, none))

        def settle(inner: Inner) -> Inner:
            return inner._replace(step=jax.vmap(paces[2])(inner.pace))

        return Program(start, sample, lambda inner: inner.chains.position, warm, settle)
