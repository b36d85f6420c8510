"""The No-U-Turn sampler, as NumPyro implements it, on our scores.

Hoffman & Gelman (2014), arXiv:1111.4246; Phan, Pradhan & Jankowiak (2019), arXiv:1912.11554, with its iterative tree
building. N chains, vectorised, each with its own step length and diagonal mass matrix by NumPyro's own warm-up. Where the
budget ends it early, the averaged step length so far is taken, as NumPyro does at its end. How scores reach JAX, what is
charged and what a block is: ``_jax_chains``.
"""

from typing import Any

from parvibench.core.algorithm import Example
from parvibench.jax_programs.by_callback import Density
from parvibench.jax_programs.loading import jax_library

from ._jax_chains import JaxChains, Program, TreeSettings


class NumPyroNUTS(JaxChains):
    """The No-U-Turn sampler of NumPyro, vectorised chains (external)."""

    name = "numpyro-nuts"
    settings_type = TreeSettings
    library = "numpyro"
    citation = "Hoffman & Gelman (2014), arXiv:1111.4246; Phan et al. (2019), arXiv:1912.11554"
    example = Example(settings={"max_tree_depth": 4}, steps=20, both_modes=False, brief_steps=3)

    @staticmethod
    def _build(jax: Any, density: Density, n: int, dim: int, settings: Any) -> Program:
        infer, numpy = jax_library("numpyro.infer", "numpyro"), jax.numpy
        warmup = settings.block * settings.warmup_blocks
        kernel = infer.NUTS(
            potential_fn=lambda z: -density.log_density(z), target_accept_prob=settings.target_acceptance,
            max_tree_depth=settings.max_tree_depth,
        )  # fmt: skip
        first: list[Any] = []  # NumPyro's state at the start: a kernel can be initialised once, which takes seconds
        evaluate = jax.jit(jax.vmap(jax.value_and_grad(lambda z: -density.log_density(z))))

        def start(key: Any, x: Any) -> Any:
            if not first:
                first.append(kernel.init(jax.random.split(key, n), warmup, numpy.asarray(x), (), {}))
            energy, slope = evaluate(x)
            state = first[0]._replace(z=numpy.asarray(x), potential_energy=energy, z_grad=slope)
            return state if warmup else settle(state)

        def transitions(key: Any, state: Any) -> Any:
            def one(state: Any, key: Any) -> Any:
                state = kernel.sample(state._replace(rng_key=jax.random.split(key, n)), (), {})
                depth = numpy.ceil(numpy.log2(state.num_steps + 1.0))
                found = (state.accept_prob, state.diverging, depth)
                return state, numpy.stack([numpy.mean(v.astype(numpy.float32)) for v in found])

            state, found = jax.lax.scan(one, state, jax.random.split(key, settings.block))
            return state, found.mean(0)

        def settle(state: Any) -> Any:
            """The end of warm-up: iterations beyond it, and the averaged step length."""
            averaged = numpy.exp(state.adapt_state.ss_state[1])
            learnt = state.adapt_state._replace(step_size=averaged)
            return state._replace(i=numpy.maximum(state.i, warmup), adapt_state=learnt)

        transitions = jax.jit(transitions)
        warm = lambda key, state, number: transitions(key, state)  # noqa: E731 - NumPyro knows its own iteration
        return Program(start, transitions, lambda state: state.z, warm, settle)
