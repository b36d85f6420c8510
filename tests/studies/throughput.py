"""What a second worker gives: the same cells with one worker and with two, in turns.

``python tests/studies/throughput.py`` runs cells of ten replicates of the suite ``uci`` (of the bundled regression
where no data are here) from expansion to the last file written, and compares the wall-clock times. Two free cores
are needed for a fair figure; the load of the machine is printed, too.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from parvibench.core import registry
from parvibench.core.errors import DataMissingError
from parvibench.harness.session import run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.harness.workers.processes import Workers

METHODS = ("sgld", "svgd", "sifg", "mala")


def make_cells(share: float, methods: tuple[str, ...] = METHODS) -> tuple[Suite, list[Cell]]:
    """Cells of ten replicates with the budget of ``uci`` (profile fast), or a share of it."""
    whole = load_suite("uci").with_profile("fast")
    values = whole.model_dump(exclude_none=True, exclude={"tuned", "profiles", "tune"})
    values["budget"]["scores_per_particle"] *= share
    task = "bnn-boston" if is_here("bnn-boston") else "bnn-diabetes-sklearn"
    values |= {
        "name": "throughput", "replicates": 10, "tasks": [{"name": task}],
        "algorithms": [a for a in values["algorithms"] if a["name"] in methods],
    }  # fmt: skip
    suite = Suite.model_validate(values)
    return suite, expand(suite, settings={m: {"step_size": 1e-5} for m in methods})


def is_here(task: str) -> bool:
    """Whether the data of a task are on this machine."""
    try:
        registry.load_task(task).target((0,), "cpu", torch.float32)
    except DataMissingError:
        return False
    return True


def wall(workers: int, suite: Suite, cells: list[Cell]) -> float:
    """Seconds of a whole run into an empty store."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        store, executor = Store(Path(folder)), Workers(workers, 3600.0)
        results = run_cells(cells, store, executor, suite=suite.resolved(), observers=[])
        seconds = time.perf_counter() - start
    if any(c.status.failed for c in results.cells):
        raise SystemExit("\n".join(f"{c.label}: {c.reason}" for c in results.cells))
    return seconds


def measure(share: float, rounds: int, methods: tuple[str, ...] = METHODS) -> tuple[float, float]:
    """Median wall-clock seconds with one worker and with two."""
    suite, cells = make_cells(share, methods)
    wall(2, *make_cells(0.002, methods[:1]))  # starts the fork server, reads the data
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for workers, seen in times.items():
            seen.append(wall(workers, suite, cells))
    return statistics.median(times[1]), statistics.median(times[2])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.2, help="of the suite's budget")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    one, two = measure(given.share, given.rounds)
    load = os.getloadavg()[0]
    print(f"one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} times as fast; load {load:.1f}")
