"""BlackJAX on the same jobs: its own samplers, compiled, many steps in one ``lax.scan``; float32, one thread."""

from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from pairing import Run
from stepping import Stepper

from parvibench.data.loaders import load
from parvibench.data.splits import regression_split

#: One particle (D,) -> its log density; a row index array for mini-batches.
LogDensity = Callable[..., Any]


def mixture(task: Any) -> LogDensity:
    """Isotropic Gaussians of equal weight."""
    modes = task.facts.modes
    means, sds = (jnp.asarray(np.asarray(a, np.float32)) for a in (modes.means, modes.sds))

    def log_density(x: Any) -> Any:
        z = (x - means) / sds[:, None]
        return jax.nn.logsumexp(-0.5 * (z**2).sum(1) - means.shape[1] * jnp.log(sds))

    return log_density


def logistic(task: Any) -> LogDensity:
    """Logistic regression with a Gaussian prior."""
    table = load(task.table)
    X = jnp.asarray(np.column_stack([np.ones(len(table.y)), table.X]).astype(np.float32))
    signed = jnp.asarray((2 * table.y - 1).astype(np.float32))[:, None] * X

    def log_density(b: Any) -> Any:
        return jax.nn.log_sigmoid(signed @ b).sum() - 0.5 * task.prior_precision * (b**2).sum()

    return log_density


def funnel(task: Any) -> LogDensity:
    """Neal's funnel: v ~ N(0, 9), the other coordinates N(0, e^v)."""
    rest = task.dim - 1

    def log_density(x: Any) -> Any:
        return -(x[0] ** 2) / 18 - 0.5 * (x[1:] ** 2).sum() * jnp.exp(-x[0]) - 0.5 * rest * x[0]

    return log_density


def network_regression(task: Any, hidden: int = 50) -> LogDensity:
    """A ReLU network of one hidden layer on a mini-batch of rows."""
    split = regression_split(load(task.table), 0)
    X, y = jnp.asarray(split.X_train, jnp.float32), jnp.asarray(split.y_train, jnp.float32)
    n, p = X.shape
    ends = np.cumsum([p * hidden, hidden, hidden, 1])

    def log_density(x: Any, rows: Any) -> Any:
        W1, b1, W2, b2, rest = jnp.split(x, ends)
        f = jax.nn.relu(X[rows] @ W1.reshape(p, hidden) + b1) @ W2 + b2
        gamma, lam = jnp.exp(rest)
        squares = ((y[rows] - f) ** 2).mean() * n
        weights = x[:-2]
        fit = 0.5 * n * rest[0] - 0.5 * gamma * squares
        prior = 0.5 * len(weights) * rest[1] - 0.5 * lam * (weights**2).sum()
        return fit + prior + rest[0] - 0.1 * gamma + rest[1] - 0.1 * lam

    return log_density


def scanned(step: Callable[[Any, Any], Any], state: Any, work: Callable[[Any], float] | None = None) -> Run:
    """A program of many steps, compiled once per number of them; ``work`` of the extras, where no step is the unit."""

    def steps_of(key: Any, first: Any, count: int) -> Any:
        return jax.lax.scan(lambda s, k: step(k, s), first, jax.random.split(key, count))

    program = jax.jit(steps_of, static_argnums=2)
    held = {"key": jax.random.key(0), "state": state}

    def run(count: int) -> float:
        held["key"], key = jax.random.split(held["key"])
        held["state"], extras = jax.block_until_ready(program(key, held["state"], count))
        return count if work is None else work(extras)

    return run


def svgd(stepper: Stepper) -> Run:
    """BlackJAX's SVGD with its median heuristic, updated at every step, plain steps."""
    task, x = stepper.task, jnp.asarray(stepper.state.x[0].cpu().numpy())
    if "network" in task.tags:
        log_density, rows = network_regression(task), task.rows
        batch = lambda key: {"rows": jax.random.choice(key, rows, (task.batch_size,), replace=False)}  # noqa: E731
    else:
        log_density, batch = mixture(task), lambda key: {}
    sampler = blackjax.svgd(jax.grad(log_density), optax.sgd(stepper.settings.step_size))
    return scanned(lambda key, state: (sampler.step(state, **batch(key)), None), sampler.init(x))


def chains(sampler: Any, stepper: Stepper, work: Callable[[Any], Any] | None = None) -> Run:
    """Independent chains by ``vmap``."""
    x = jnp.asarray(stepper.state.x[0].cpu().numpy())

    def step(key: Any, states: Any) -> Any:
        states, info = jax.vmap(sampler.step)(jax.random.split(key, len(x)), states)
        return states, None if work is None else work(info)

    total = None if work is None else lambda extras: float(extras.sum())
    return scanned(step, jax.vmap(sampler.init)(x), total)


def mala(stepper: Stepper) -> Run:
    """BlackJAX's MALA: its step size is our eta."""
    return chains(blackjax.mala(logistic(stepper.task), stepper.settings.step_size), stepper)


def hmc(stepper: Stepper) -> Run:
    """BlackJAX's HMC with the identity as mass: leapfrog length sqrt(2 eta)."""
    s = stepper.settings
    length, masses = float(np.sqrt(2 * s.step_size)), jnp.ones(stepper.problem.dim)
    return chains(blackjax.hmc(logistic(stepper.task), length, masses, s.leapfrog_steps), stepper)


def nuts(stepper: Stepper) -> Run:
    """BlackJAX's NUTS at the step length and masses of our warm-up; work is the leapfrog steps that its chains needed."""
    warmup, task = stepper.state.warmup, stepper.task
    density = funnel(task) if task.name.startswith("funnel") else logistic(task)
    sampler = blackjax.nuts(density, float(warmup.step[0]), jnp.asarray(warmup.scale[0].square().cpu().numpy()))
    return chains(sampler, stepper, lambda info: info.num_integration_steps)
