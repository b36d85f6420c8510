"""Timing of two programs in turns: interleaved, in one process on one thread, by paired ratios.

The two sides take turns of equal length, so that whatever else the machine does meets both. Times are processor
seconds of the process, all its threads together: time in which others hold the core does not count. The ratio of
a round is taken within the round; the median over rounds and its interval from order statistics say the rest.
"""

import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from parvibench.harness.store.environment import ALLOCATOR
from parvibench.statistics import median_interval

#: Makes a number of steps; returns how much work that was, in the unit in which sides are compared.
Run = Callable[[int], float]

#: One thread for every library, the allocator of the harness's workers.
ENVIRONMENT = {
    **ALLOCATOR,
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "PYTHONPATH": str(Path(__file__).resolve().parents[1]),  # what the benchmarks share with the tests
}


def restart_in_environment() -> None:
    """Start this command again under ``ENVIRONMENT``: C libraries and JAX read their settings at start."""
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | ENVIRONMENT)


@dataclass(frozen=True)
class Ratio:
    """Other over ours: median over rounds, its 95% interval, and both sides' median processor seconds of a unit."""

    value: float
    low: float
    high: float
    ours: float
    other: float
    rounds: int


def seconds_per_unit(run: Run, steps: int) -> float:
    """Processor seconds of a unit of work."""
    start = time.process_time()
    work = run(steps)
    return (time.process_time() - start) / work


def steps_for(run: Run, seconds: float) -> int:
    """About how many steps take that long; warms the program up.

    The number is a power of two: few sizes for a compiler, and the same ones again next time.
    """
    run(1)
    steps = 1
    while True:
        start = time.process_time()
        run(steps)
        took = time.process_time() - start
        if took >= seconds / 2:
            return steps
        steps *= 2


def paired_ratio(ours: Run, other: Run, seconds: float, rounds: int) -> Ratio:
    """Turns of about ``seconds`` each; who goes first changes from round to round."""
    steps = (steps_for(ours, seconds), steps_for(other, seconds))
    sides = list(zip((ours, other), steps, strict=True))
    times: list[list[float]] = []
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            order = -1 if number % 2 else 1
            times.append([seconds_per_unit(*side) for side in sides[::order]][::order])
    finally:
        gc.enable()
    value, low, high = median_interval([b / a for a, b in times])
    medians = [median_interval(side)[0] for side in zip(*times, strict=True)]
    return Ratio(value, low, high, *medians, rounds)
