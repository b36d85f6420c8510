"""What a step of a BlackJAX kernel costs in the harness beside the same kernel alone: ``python tests/studies/jax_kernel_overhead.py``.

Processor time of a step of NUTS on N(0, I / 4) in three dimensions and on Neal's funnel, both in double precision and in blocks of 100:
through ``pb.jax_sampler`` and the harness's loop over steps, and in a scan written by hand. Interleaved rounds, one thread.
"""

import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import torch

import parvibench as pb
from parvibench.core.algorithm import take_steps
from parvibench.jax_programs.loading import double_jax

STEPS, ROUNDS, SEED = 100, 41, 1


def timed(once: Iterator[Any]) -> Iterator[float]:
    next(once)
    while True:
        start = time.process_time()
        next(once)
        yield (time.process_time() - start) / STEPS


def harness(task: Any, make: Any, n: int) -> Iterator[Any]:
    kernel, problem = pb.jax_sampler(make, name="nuts-jax", block=STEPS), task.problem(1, SEED, particles=n)
    settings = kernel.make_settings({})
    state = kernel.init(problem, settings, problem.streams, 1)
    taken = take_steps(kernel.step, problem, settings, state)
    while True:
        yield [next(taken)[0].x for _ in range(STEPS)]


def alone(task: Any, make: Any, n: int) -> Iterator[Any]:
    jax = double_jax()
    formula, data = task.target([0], "cpu", torch.float64).in_jax()
    kernel = make(lambda x: formula(data, x), task.dim)
    x = task.problem(1, SEED, particles=n, dtype=torch.float64).init()[0].numpy()
    states = jax.jit(jax.vmap(kernel.init))(x)

    @jax.jit
    def run(seed: Any, states: Any) -> Any:
        def one(states: Any, key: Any) -> Any:
            states, _ = jax.vmap(kernel.step)(jax.random.split(key, n), states)
            return states, states.position

        return jax.lax.scan(one, states, jax.random.split(jax.random.key(seed), STEPS))

    for seed in itertools.count():
        states, path = jax.block_until_ready(run(seed, states))
        yield path


def main() -> None:
    jax, torch_threads = double_jax(), torch.set_num_threads(1)
    del torch_threads
    import blackjax

    make = lambda f, dim: blackjax.nuts(f, 0.2, jax.numpy.ones(dim))  # noqa: E731
    gaussian = pb.from_jax(lambda x: -2 * (x @ x), dim=3, name="gaussian")
    print("| target | chains | alone, us a step | in the harness, us | ratio of minima | median ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    for task, n in itertools.product((gaussian, pb.load_task("funnel-10d")), map(int, sys.argv[1:] or (1, 100))):
        ways = timed(alone(task, make, n)), timed(harness(task, make, n))
        rounds = [[next(way) for way in ways] for _ in range(ROUNDS)]
        least = [1e6 * min(row[i] for row in rounds) for i in range(2)]
        middle = statistics.median(row[1] / row[0] for row in rounds)
        print(
            f"| {task.name} | {n} | {least[0]:.1f} | {least[1]:.1f} | {least[1] / least[0]:.2f} | {middle:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
