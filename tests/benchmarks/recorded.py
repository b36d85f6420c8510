"""Processor time of a step as it is and replayed from its record, side by side, of every algorithm that can be recorded.

In a process whose memory is allocated as that of the harness's workers.

Usage: python tests/benchmarks/recorded.py [TASK ...] (default: gmm5-2d; 10 replicates of 20 particles)
"""

import os
import statistics
import sys
import time

import torch
from stepping import Stepper

from parvibench.core import registry
from parvibench.harness.store.environment import ALLOCATOR

TURNS, TURN_S = 5, 0.1


def paired(task: str, name: str, replicates: int = 10, particles: int = 20) -> str:
    """A row of the table: milliseconds of both, their ratio, operations and seconds of recording, or why it is plain."""
    method = registry.load_algorithm(name)
    ids = tuple(range(min(replicates, method.max_chunk or replicates)))
    both = [Stepper(task, name, {}, particles, ids, horizon=4000, compiled=c) for c in (False, True)]
    for stepper in both:
        stepper.run(12)
    start = time.process_time()
    both[0].run(2)
    steps = max(3, int(TURN_S / max(1e-6, (time.process_time() - start) / 2)))
    times: list[list[float]] = [[], []]
    for _ in range(TURNS):
        for stepper, into in zip(both, times, strict=True):
            start = time.process_time()
            stepper.run(steps)
            into.append(1000 * (time.process_time() - start) / steps)
    plain, replayed = (statistics.median(t) for t in times)
    step = both[1].advance
    said = step.left_plain or f"{step._records[-1].operations} operations, recorded in {step.seconds:.1f} s"
    return f"| {task} | {name} | {plain:.3f} | {replayed:.3f} | {replayed / plain:.2f} | {said} |"


def main() -> None:
    """Print the table."""
    if not ALLOCATOR.keys() <= os.environ.keys():  # which is read when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {"OMP_NUM_THREADS": "1", **os.environ, **ALLOCATOR})
    torch.set_num_threads(1)
    print("| task | algorithm | plain, ms | replayed, ms | ratio | |\n|---|---|---|---|---|---|")
    for task in sys.argv[1:] or ["gmm5-2d"]:
        for name, row in registry.algorithms().items():
            method = None if row.kind == "anchor" else registry.load_algorithm(name)
            if method and not (method.library or method.host_bound or method.needs - registry.load_task(task).provides):
                print(paired(task, name), flush=True)


if __name__ == "__main__":
    main()
