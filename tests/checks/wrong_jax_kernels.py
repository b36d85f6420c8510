"""Kernels of BlackJAX's form with the errors of public bug reports, the mathematics written anew; RIGHT has none.

Each is made by a function of one number: 1 the error, 0 the same kernel without it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import parvibench as pb


class State(NamedTuple):
    position: Any
    log_density: Any
    score: Any
    adapting: Any = ()


def start(log_density: Any) -> Callable[[Any], State]:
    return lambda position: State(position, *jax.value_and_grad(log_density)(position))


def leapfrogs(log_density: Any, state: State, p: Any, step_size: Any, steps: Any) -> tuple[State, Any]:
    def one(_: Any, carry: tuple[State, Any]) -> tuple[State, Any]:
        state, p = carry
        p = p + 0.5 * step_size * state.score
        x = state.position + step_size * p
        state = state._replace(position=x)._replace(**_values(log_density, x))
        return state, p + 0.5 * step_size * state.score

    return jax.lax.fori_loop(0, steps, one, (state, p))


def _values(log_density: Any, x: Any) -> dict[str, Any]:
    value, score = jax.value_and_grad(log_density)(x)
    return {"log_density": value, "score": score}


def choose(key: Any, log_ratio: Any, new: State, old: State) -> State:
    accepted = jnp.log(jax.random.uniform(key)) < log_ratio
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old)


def hmc(wrong: float) -> Any:
    """blackjax #46: the kinetic energy at the start of a trajectory is that of the position."""

    def make(log_density: Any, dim: int) -> Any:
        def step(rng_key: Any, state: State) -> State:
            first, second = jax.random.split(rng_key)
            p = jax.random.normal(first, (dim,))
            new, end = leapfrogs(log_density, state, p, 0.2, 4)
            began = jnp.where(wrong, state.position, p)
            log_ratio = new.log_density - 0.5 * (end @ end) - state.log_density + 0.5 * (began @ began)
            return choose(second, log_ratio, new, state)

        return start(log_density), step

    return make


def always(wrong: float) -> Any:
    """walnuts #27: the Metropolis ratio has the new log density twice, so that every proposal is accepted."""

    def make(log_density: Any, dim: int) -> Any:
        def step(rng_key: Any, state: State) -> State:
            first, second = jax.random.split(rng_key)
            p = jax.random.normal(first, (dim,))
            new, end = leapfrogs(log_density, state, p, 0.6, 3)
            log_ratio = new.log_density - 0.5 * (end @ end) - state.log_density + 0.5 * (p @ p)
            return choose(second, jnp.where(wrong, 0.0, log_ratio), new, state)

        return start(log_density), step

    return make


def independent(wrong: float) -> Any:
    """JuliaBUGS #531: proposals from a fixed law, N(0, I), accepted without the ratio of its densities."""

    def make(log_density: Any, dim: int) -> Any:
        def step(rng_key: Any, state: State) -> State:
            first, second = jax.random.split(rng_key)
            x = jax.random.normal(first, (dim,))
            new = State(x, log_density(x), state.score)
            correction = 0.5 * (x @ x - state.position @ state.position)
            return choose(second, new.log_density - state.log_density + (1 - wrong) * correction, new, state)

        return start(log_density), step

    return make


def langevin(wrong: float) -> Any:
    """edward #722: noise whose standard deviation is the step size, not its root."""

    def make(log_density: Any, dim: int) -> Any:
        def step(rng_key: Any, x: Any) -> Any:
            spread = jnp.where(wrong, 0.02, jnp.sqrt(0.02))
            return x + 0.01 * jax.grad(log_density)(x) + spread * jax.random.normal(rng_key, (dim,))

        return lambda position: position, step

    return make


def averaging(wrong: float) -> Any:
    """walnutpie #27: the averaged step size mixes the last two iterates of dual averaging, not all; 20 adapting steps."""
    target, shrinkage, offset, power, most = 0.8, 0.05, 10.0, 0.75, 20

    def make(log_density: Any, dim: int) -> Any:
        def init(position: Any) -> State:
            return start(log_density)(position)._replace(adapting=(0.0, 0.0, jnp.log(0.3), jnp.log(0.3)))

        def step(rng_key: Any, state: State) -> State:
            first, second = jax.random.split(rng_key)
            number, error, log_step, log_mean = state.adapting
            p = jax.random.normal(first, (dim,))
            new, end = leapfrogs(log_density, state, p, jnp.exp(jnp.where(number < most, log_step, log_mean)), 3)
            log_ratio = jnp.nan_to_num(
                new.log_density - 0.5 * (end @ end) - state.log_density + 0.5 * (p @ p), nan=-jnp.inf
            )
            number = number + 1
            weight = 1 / (number + offset)
            error = (1 - weight) * error + weight * (target - jnp.minimum(1.0, jnp.exp(log_ratio)))
            fresh = jnp.log(10 * 0.3) - jnp.sqrt(number) / shrinkage * error
            share = number**-power
            mean = share * fresh + (1 - share) * jnp.where(wrong, log_step, log_mean)
            log_step, log_mean = (jnp.where(number <= most, a, b) for a, b in ((fresh, log_step), (mean, log_mean)))
            return choose(second, log_ratio, new, state)._replace(adapting=(number, error, log_step, log_mean))

        return init, step

    return make


class Tempered(NamedTuple):
    particles: Any  # (N, D)
    power: Any


def tempered(wrong: float) -> Any:
    """blackjax #914: the next temperature is where weights of the wrong sign have half of the effective sample size."""

    def make(log_density: Any, dim: int) -> Any:
        base = lambda x: -0.5 * (x @ x) / 25  # noqa: E731
        gap = lambda x: log_density(x) - base(x)  # noqa: E731

        def init(position: Any, rng_key: Any) -> Tempered:
            return Tempered(5 * jax.random.normal(rng_key, position.shape), jnp.zeros(()))

        def step(rng_key: Any, state: Tempered) -> Tempered:
            choosing, moving = jax.random.split(rng_key)
            gaps, n = jax.vmap(gap)(state.particles), len(state.particles)
            sign = 1 - 2 * wrong

            def share(delta: Any) -> Any:
                w = jax.nn.softmax(sign * delta * gaps)
                return 1 / (w @ w) / n

            def halve(_: Any, ends: Any) -> Any:
                middle = 0.5 * (ends[0] + ends[1])
                good = share(middle) > 0.5
                return jnp.where(good, middle, ends[0]), jnp.where(good, ends[1], middle)

            most = 1 - state.power
            delta = jnp.where(share(most) > 0.5, most, jax.lax.fori_loop(0, 40, halve, (0.0 * most, most))[0])
            x = state.particles[jax.random.categorical(choosing, delta * gaps, shape=(n,))]
            power = state.power + delta
            moved = lambda key, x: _walk(key, x, lambda y: base(y) + power * gap(y))  # noqa: E731
            return Tempered(jax.vmap(moved)(jax.random.split(moving, n), x), power)

        return init, step

    return make


def _walk(key: Any, x: Any, log_density: Any) -> Any:
    """Ten steps of a random walk, of lengths from 0.1 to 3."""

    def one(x: Any, at: Any) -> Any:
        first, second = jax.random.split(at[0])
        y = x + at[1] * jax.random.normal(first, x.shape)
        return jnp.where(jnp.log(jax.random.uniform(second)) < log_density(y) - log_density(x), y, x), None

    return jax.lax.scan(one, x, (jax.random.split(key, 10), jnp.tile(jnp.array([3.0, 1.0, 0.5, 0.3, 0.1]), 2)))[0]


def _sampler(make: Any, name: str, **options: Any) -> Any:
    return pb.jax_sampler(make, name=name, **options)


HMC, RIGHT_HMC = (_sampler(hmc(w), f"hmc-{w}", exact=True) for w in (1, 0))
ALWAYS, RIGHT_ALWAYS = (_sampler(always(w), f"always-{w}", exact=True) for w in (1, 0))
INDEPENDENT, RIGHT_INDEPENDENT = (_sampler(independent(w), f"independent-{w}", exact=True) for w in (1, 0))
LANGEVIN, RIGHT_LANGEVIN = (_sampler(langevin(w), f"langevin-{w}", position=lambda x: x) for w in (1, 0))
AVERAGING, RIGHT_AVERAGING = (_sampler(averaging(w), f"averaging-{w}") for w in (1, 0))
TEMPERED, RIGHT_TEMPERED = (_sampler(tempered(w), f"tempered-{w}", kind="particles", block=5) for w in (1, 0))
