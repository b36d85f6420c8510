"""Effective samples a second of NUTS, ours and others': ``python tests/benchmarks/effective.py``.

Writes ``reports/benchmarks/effective.md``. Ours moves all chains in a batch, NumPyro vectorised and compiled, Pyro one. Each
warms up by itself; counted are the steps after it: the smallest bulk effective size over the coordinates, by
``arviz-stats``, over processor seconds. Compiling is timed apart.
"""

import argparse
import os
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    from pairing import restart_in_environment

    restart_in_environment()

import numpy as np
import pyro.infer
import torch
from arviz_stats.base import array_stats
from jobs import absent

from parvibench.core.algorithm import take_steps
from parvibench.core.registry import load_algorithm, load_task
from parvibench.harness.run.compiling import RecordedStep
from parvibench.harness.store.environment import provenance

FILE = Path(__file__).resolve().parents[2] / "reports" / "benchmarks" / "effective.md"
COMMAND = "python tests/benchmarks/effective.py"
WARMUP = 300


class Timed(NamedTuple):
    """Draws after the warm-up, and what they took."""

    draws: np.ndarray  # (chains, draws, D)
    seconds: float
    warmup: float  # seconds of warm-up, compiling included

    @property
    def effective(self) -> float:
        """The smallest bulk effective size of a coordinate."""
        return float(min(array_stats.ess(d, method="bulk") for d in np.moveaxis(self.draws, 2, 0)))


def ours(task: Any, chains: int, draws: int, seed: int, compiled: bool = False) -> Timed:
    """A block of eight leapfrog steps of all chains is one of our steps; the warm-up takes as many of them as draws."""
    nuts, problem = load_algorithm("nuts"), task.problem(1, seed, particles=chains)
    settings = nuts.make_settings({})
    start = time.process_time()
    advance = RecordedStep(nuts.step) if compiled else nuts.step
    with torch.inference_mode():
        state = nuts.init(problem, settings, problem.streams, 4 * WARMUP)
        steps = take_steps(advance, problem, settings, state)
        for _ in islice(steps, WARMUP):
            pass
        middle = time.process_time()
        found = [state.x[0].clone() for state, _ in islice(steps, draws)]
    return Timed(torch.stack(found, 1).double().numpy(), time.process_time() - middle, middle - start)


def numpyro(task: Any, chains: int, draws: int, seed: int) -> Timed:
    """A compiled scan of transitions, called a second time: ``MCMC.run`` would compile again."""
    import jax
    from numpyro.infer import NUTS
    from peers import logistic

    density = logistic(task)
    start = jax.numpy.asarray(task.problem(1, seed, particles=chains).init()[0].numpy())
    keys = jax.random.split(jax.random.PRNGKey(seed), chains)
    one = chains == 1
    kernel = NUTS(potential_fn=lambda x: -density(x))
    began = time.process_time()
    state = kernel.init(keys[0] if one else keys, WARMUP, start[0] if one else start, (), {})

    def transition(state: Any, _: None) -> tuple[Any, Any]:
        state = kernel.sample(state, (), {})
        return state, state.z

    state = jax.block_until_ready(jax.jit(lambda s: jax.lax.scan(transition, s, None, WARMUP)[0])(state))
    sample = jax.jit(lambda s: jax.lax.scan(transition, s, None, draws))
    state, _ = jax.block_until_ready(sample(state))
    middle = time.process_time()
    _, found = jax.block_until_ready(sample(state))
    seconds = time.process_time() - middle
    drawn = np.asarray(found, float).reshape(draws, chains, task.dim)
    return Timed(np.moveaxis(drawn, 0, 1), seconds, middle - began)


def pyros(task: Any, chains: int, draws: int, seed: int) -> Timed:
    """One chain, the only number that it runs at a time."""
    assert chains == 1
    target = task.target([0], "cpu", torch.float32)
    kernel: Any = pyro.infer.NUTS(potential_fn=lambda z: -target.log_density(z["x"].view(1, 1, -1)).squeeze())
    x = task.problem(1, seed, particles=1).init()[0, 0]
    pyro.set_rng_seed(seed)
    times = []
    sampler: Any = pyro.infer.MCMC(
        kernel, draws, WARMUP, {"x": x}, disable_progbar=True,
        hook_fn=lambda _, __, stage, i: times.append(time.process_time()) if stage == "Sample" and i == 0 else None,
    )  # fmt: skip
    start = time.process_time()
    sampler.run()
    end = time.process_time()
    return Timed(sampler.get_samples()["x"].double().numpy()[None], end - times[0], times[0] - start)


SAMPLERS: dict[str, Callable[[Any, int, int, int], Timed]] = {
    "ours": ours, "ours, compiled": partial(ours, compiled=True), "Pyro": pyros, "NumPyro": numpyro,
}  # fmt: skip
#: Target, sampler, chains, steps.
JOBS = (
    ("blr-waveform", "ours", 100, 1000),
    ("blr-waveform", "ours, compiled", 100, 1000),
    ("blr-waveform", "NumPyro", 100, 100),
    ("blr-waveform", "ours", 1, 4000),
    ("blr-waveform", "ours, compiled", 1, 4000),
    ("blr-waveform", "NumPyro", 1, 1000),
    ("blr-waveform", "Pyro", 1, 500),
    ("blr-breast-cancer", "ours", 100, 2000),
    ("blr-breast-cancer", "ours, compiled", 100, 2000),
    ("blr-breast-cancer", "NumPyro", 1, 300),
    ("blr-breast-cancer", "Pyro", 1, 100),
)


def page(rows: list[str], load: float) -> str:
    """The Markdown page."""
    facts = provenance(COMMAND, "cpu")
    return f"""# Effective samples a second: NUTS

Made by `{COMMAND}` on {date.today().isoformat()}. {facts["hardware"]}, {facts["cpus"]} cores, load {load:.1f} before; one
thread, processor seconds. Each after {WARMUP} steps of its own warm-up; a step of ours is
{load_algorithm("nuts").make_settings({}).leapfrogs} leapfrog steps of every chain, one of the others a transition. Smallest bulk effective size over the coordinates.

| target | sampler | chains | steps | effective size | seconds | effective a second | warm-up and compiling, s |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Ours and Pyro's call PyTorch's operations for every score, ours compiled a recorded and fused density and a C++ program of the trees;
NumPyro has the density in JAX and compiles the whole transition.
"""


def main(file: Path, share: float) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    load, rows = os.getloadavg()[0], []
    for name, label, chains, count in JOBS:
        if label == "NumPyro" and absent("blackjax"):
            continue
        timed = SAMPLERS[label](load_task(name), chains, max(4, int(count * share)), 1)
        size = timed.effective
        rows.append(
            f"| {name} | {label} | {chains} | {timed.draws.shape[1]} | {size:,.0f} | {timed.seconds:.2f} "
            f"| {size / timed.seconds:,.0f} | {timed.warmup:.1f} |"
        )
        print(rows[-1], flush=True)
    file.write_text(page(rows, load))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the steps")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    main(given.out, given.share)
