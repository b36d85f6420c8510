"""Kernels of BlackJAX and NumPyro with fixed step lengths, as a user of JAX would have them checked."""

from collections import namedtuple
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from numpyro.infer import NUTS

import parvibench as pb

State = namedtuple("State", ["position", "inner"])
Info = namedtuple("Info", ["acceptance_rate"])


@pb.jax_sampler(name="blackjax-kernel-hmc", exact=True)
def Hmc(log_density: Any, dim: int, step_size: float = 0.2, steps: int = 5) -> Any:
    """Hamiltonian Monte Carlo of BlackJAX."""
    return blackjax.hmc(log_density, step_size, jnp.ones(dim), steps)


@pb.jax_sampler(name="blackjax-kernel-nuts", exact="invariant")
def Nuts(log_density: Any, dim: int, step_size: float = 0.3) -> Any:
    """The No-U-Turn sampler of BlackJAX."""
    return blackjax.nuts(log_density, step_size, jnp.ones(dim))


@pb.jax_sampler(name="numpyro-kernel-nuts", exact="invariant")
def NumpyroNuts(log_density: Any, dim: int, step_size: float = 0.3) -> Any:
    """The No-U-Turn sampler of NumPyro, without adaptation."""
    kernel = NUTS(
        potential_fn=lambda x: -log_density(x), step_size=step_size, adapt_step_size=False, adapt_mass_matrix=False
    )

    def init(position: Any, rng_key: Any) -> State:
        return State(position, kernel.init(rng_key, 0, position, (), {}))

    init(jnp.zeros(dim), jax.random.PRNGKey(0))  # a kernel that has seen no start refuses to step

    def step(rng_key: Any, state: State) -> tuple[State, Info]:
        inner = kernel.sample(state.inner._replace(rng_key=rng_key), (), {})
        return State(inner.z, inner), Info(inner.accept_prob)

    return init, step
