"""What it costs that JAX samplers get their scores by a callback: ``python tests/studies/callback_overhead.py``.

Seconds of one evaluation (log density and gradient) of N points within a compiled loop: of a density written in JAX, of
ours by the callback, and of ours alone in PyTorch. Medians of interleaved repetitions, one thread. The target is N(0, I),
whose mathematics costs next to nothing: what is left is the price of the way.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import torch

from parvibench.core.registry import load_task
from parvibench.jax_programs.by_callback import Density
from parvibench.jax_programs.loading import jax_library

STEPS, ROUNDS = 100, 9


def seconds(once: Callable[[], Any]) -> float:
    start = time.perf_counter()
    once()
    return (time.perf_counter() - start) / STEPS


def measure(n: int, dim: int) -> tuple[float, float, float]:
    """Native JAX, callback, PyTorch alone: seconds of one evaluation of n points."""
    jax = jax_library("jax", "blackjax")
    task = load_task("gaussian-20d") if dim == 20 else load_task("biased-start-gaussian")
    problem, density = task.problem(1, 0, particles=n), Density(task.dim, jax)
    x = problem.init()

    def loop(log_density: Any) -> Any:
        both = jax.vmap(jax.value_and_grad(log_density))

        @jax.jit
        def run(x: Any) -> Any:
            def one(x: Any, _: Any) -> Any:
                return x + 1e-3 * both(x)[1], None

            return jax.lax.scan(one, x, None, length=STEPS)[0]

        return run

    native, called, start = loop(lambda x: -0.5 * (x * x).sum()), loop(density.log_density), x[0].numpy()

    def ours() -> None:
        y = x
        for _ in range(STEPS):
            y = y + 1e-3 * problem.log_density_and_score(y)[1]

    def by_callback() -> None:
        with density.of(problem):
            called(start).block_until_ready()

    ways = (lambda: native(start).block_until_ready(), by_callback, ours)
    for way in ways:
        way()
    found = [[seconds(way) for way in ways] for _ in range(ROUNDS)]
    return tuple(statistics.median(row[i] for row in found) for i in range(3))  # type: ignore[return-value]


def main() -> None:
    torch.set_num_threads(1)
    print("| points a call | D | native JAX, us | by callback, us | PyTorch alone, us | callback, us a point |")
    print("|---:|---:|---:|---:|---:|---:|")
    for dim in (2,):
        for n in (1, 10, 100, 1000):
            native, called, ours = (1e6 * s for s in measure(n, dim))
            print(f"| {n} | {dim} | {native:.1f} | {called:.0f} | {ours:.0f} | {(called - ours) / n:.2f} |")


if __name__ == "__main__":
    main()
