"""Alarms and power of ``calibrate`` on real models: ``python tests/studies/calibrated_models.py right|wrong [SEEDS]``. Needs NumPyro.

``right`` runs NUTS and a slowly mixing MALA on models whose posteriors are right, ten seeds each; ``wrong`` runs pairs of which one side is
wrong: data from one model, the posterior of another, or a sampler that is biased. Each prints one line per run. The pairs were written
before they were run, and no rule of the calibration was set with them.
"""

import sys
import time
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import parvibench as pb
from parvibench.checks.questions.simulated_data import Plan, calibrate
from parvibench.core.registry import load_algorithm
from parvibench.nn.masks import where
from parvibench.targets.generative import Drawn, FromNumpyro, JaxPosteriors

T, S = np.linspace(-1, 1, 8), np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
GROUPS, DESIGN = np.repeat(np.arange(5), 4), np.random.default_rng(4).normal(size=(20, 3))
sample, plate = numpyro.sample, numpyro.plate


def schools(y: Any, tau_law: Any = None, squared: bool = False) -> None:
    """Hierarchical, non-centred."""
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", tau_law or dist.HalfNormal(5))
    with plate("school", 8):
        z = sample("z", dist.Normal(0, 1))
        sample("y", dist.Normal(mu + (tau**2 if squared else tau) * z, S), obs=y)


def counts(y: Any, offset: float = 0.0) -> None:
    """Hierarchical, discrete data: Poisson counts of five groups."""
    mu, tau = sample("mu", dist.Normal(1, 0.7)), sample("tau", dist.HalfNormal(0.5))
    with plate("group", 5):
        z = sample("z", dist.Normal(0, 1))
    with plate("row", 20):
        sample("y", dist.Poisson(jnp.exp(mu + tau * z[GROUPS]) + offset), obs=y)


def logistic(y: Any, sd: float = 1.0, trials: int = 4) -> None:
    """Discrete data: binomial regression."""
    w = sample("w", dist.Normal(0, sd).expand([3]).to_event(1))
    with plate("row", 20):
        sample("y", dist.Binomial(trials, logits=DESIGN @ w), obs=y)


def simplex(y: Any, alpha: float = 1.0) -> None:
    """A simplex: shares of four kinds, with two surveys of 12."""
    p = sample("p", dist.Dirichlet(alpha * jnp.ones(4)))
    sample("y", dist.Multinomial(12, p).expand([2]).to_event(1), obs=y)


def line(y: Any, slope_sd: float = 1.0, jacobian: bool = True, heavy: bool = False) -> None:
    """A line with unknown noise."""
    a, b, s = sample("a", dist.Normal(0, 1)), sample("b", dist.Normal(0, slope_sd)), sample("s", dist.HalfNormal(1))
    if not jacobian:
        numpyro.factor("lost", -jnp.log(s))
    with plate("row", 8):
        sample("y", dist.StudentT(2, a + b * T, s) if heavy else dist.Normal(a + b * T, s), obs=y)


def series(y: Any, lag: int = 1) -> None:
    """Autoregression of 20 values, given the data in a row: only the first parameters are latent."""
    r, m = sample("r", dist.Uniform(-0.9, 0.9)), sample("m", dist.Normal(0, 1))
    cov = r ** jnp.abs(jnp.arange(20)[:, None] - jnp.arange(20)[None] * 1.0)
    sample("y", dist.MultivariateNormal(m * jnp.ones(20), cov if lag == 1 else jnp.abs(cov) ** lag), obs=y)


#: Data of any values: those of the runs are drawn.
SIZES = {schools: 8, counts: 20, logistic: 20, simplex: (2, 4), line: 8, series: 20}
ZERO = {model: np.full(size, 3.0) for model, size in SIZES.items()}


class Pair(FromNumpyro):
    """Data of one model, the posterior of another."""

    own_simulator = True

    def __init__(self, model: Any, **wrong: Any) -> None:
        self.__dict__.update(
            right=FromNumpyro(pb.from_numpyro(model, ZERO[model])), task=pb.from_numpyro(model, ZERO[model], **wrong)
        )

    def draw(self, seed: int, ids: Any) -> Drawn:
        drawn = self.right.draw(seed, ids)
        return Drawn(drawn.truth, JaxPosteriors(self, drawn.target._data), self.task.initial, drawn.coordinates)


class WrongMala(type(load_algorithm("mala"))):
    """The ratio of the proposals' densities forgotten."""

    name = "mala-without-proposals"
    exact = False

    def step(self, problem: Any, settings: Any, state: Any, streams: Any) -> Any:
        eta = settings.step_size
        x = state.x + eta * state.score + (2 * eta) ** 0.5 * streams.normal("noise", state.x.shape[1:])
        there = type(state).at(x, problem)
        accept = streams.uniform("algorithm", state.x.shape[1:2]).log() < there.log_density - state.log_density
        return where(accept, there, state)


#: Model, algorithm, settings, plan, and the parameter that has to be named.
RIGHT: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any]]] = {
    **{f.__name__: (f, "nuts", {}, {"evaluations": 1000}) for f in ZERO},
    "logistic, slow mala": (logistic, "mala", {"step_size": 0.01}, {"evaluations": 4000}),
}
WRONG: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any], str]] = {
    "prior sd of a slope 30% too small": (Pair(line, slope_sd=0.7), "nuts", {}, {}, "b"),
    "Jacobian of a scale missing": (Pair(line, jacobian=False), "nuts", {}, {}, "s"),
    "every count one lower than the model's": (Pair(counts, offset=1.0), "nuts", {}, {}, "mu"),
    "one trial too many": (Pair(logistic, trials=5), "nuts", {}, {}, "w"),
    "prior of a simplex too peaked": (Pair(simplex, alpha=2.0), "nuts", {}, {}, "p"),
    "a variance for an sd": (Pair(schools, squared=True), "nuts", {}, {}, "tau"),
    "Student noise for normal noise": (Pair(line, heavy=True), "nuts", {}, {}, "s"),
    "lag of a series off by one": (Pair(series, lag=2), "nuts", {}, {}, "r"),
    "mean-field guide": (counts, "mean-field", {}, {"chains": 20, "evaluations": 1500}, "tau"),
    "Langevin step too long": (logistic, "ula", {"step_size": 0.08}, {}, "w"),
    "MALA without its proposals": (logistic, WrongMala(), {"step_size": 0.05}, {}, "w"),
    "a run that ends in its warm-up": (schools, "hmc", {"step_size": 1e-3, "leapfrog_steps": 5}, {"evaluations": 200}, ""),
}  # fmt: skip


def main(kind: str, seeds: int) -> None:
    """Run and print."""
    table, fewer = (RIGHT, {"sets": 100}) if kind == "right" else (WRONG, {})
    for seed, (name, (model, sampler, settings, plan, *words)) in product(range(1, seeds + 1), table.items()):
        held = FromNumpyro(pb.from_numpyro(model, ZERO[model])) if callable(model) else model
        method = load_algorithm(sampler) if isinstance(sampler, str) else sampler
        began = time.process_time()
        found = calibrate(held, method, settings, Plan(**({"evaluations": 1000, "seed": seed} | fewer | plan)))
        named = any(fault.name.startswith(words[0]) for fault in found.faults) if words else None
        spent = f"{time.process_time() - began:.0f} s of processor time"
        print(f"{name}, seed {seed}: right {found.right}, named {named}, {spent}\n  {found}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
