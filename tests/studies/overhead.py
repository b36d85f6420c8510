"""Overhead of the harness: the bare loop of an algorithm and a whole run of one cell, side by side.

``python tests/studies/overhead.py`` runs each cell in turns of the bare loop and the harness and compares the least
processor time of both: other work on the machine only ever adds to it.
"""

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from small_runs import suite_of

from parvibench.core.algorithm import take_steps
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.suite.cells import Cell, expand

CASES = [("banana", "sgld"), ("multimodal", "svgd"), ("banana", "ada-sifg"), ("bnn-diabetes-sklearn", "sgld")]


def make_cell(task: str, method: str, iterations: int) -> Cell:
    """One chunk, in one process."""
    budget, metrics = {"iterations": iterations}, ["score_evaluations"]
    return expand(suite_of([task], [method], replicates=1, budget=budget, metrics=metrics))[0]


def bare(cell: Cell) -> float:
    """Processor seconds of the plain loop: init, then step after step, nothing else."""
    task, algorithm = cell.load()
    settings: Any = algorithm.make_settings(dict(cell.settings))
    problem = task.problem(
        cell.spec.replicates, cell.spec.seed, cell.spec.device, getattr(torch, cell.spec.dtype),
        particles=cell.particles, full_batch="full-batch" in algorithm.needs,
    )  # fmt: skip
    start = time.process_time()
    with torch.inference_mode(not algorithm.differentiates):
        state = algorithm.init(problem, settings, problem.streams, cell.spec.budget.iterations or 1)
        for _ in islice(take_steps(algorithm.step, problem, settings, state), cell.spec.budget.iterations or 0):
            pass
    return time.process_time() - start


def harnessed(cell: Cell, folder: Path) -> float:
    """Processor seconds of the same chunk through the harness: warm-up, recorder, checkpoints and one snapshot a minute included."""
    start = time.process_time()
    run_chunk(cell, cell.chunks[0], snapshot=SnapshotFile(folder / "s.pt"))
    return time.process_time() - start


def measure(task: str, method: str, seconds: float, rounds: int) -> tuple[float, float, int]:
    """Least bare seconds, the overhead as a share of them, iterations."""
    pilot = make_cell(task, method, 50)
    bare(pilot)
    with tempfile.TemporaryDirectory() as name:
        harnessed(pilot, Path(name))  # imports, which the fork server has done for a worker
    iterations = max(20, int(50 * seconds / bare(pilot)))
    cell = make_cell(task, method, iterations)
    plain, whole = [], []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(rounds):
            plain.append(bare(cell))
            whole.append(harnessed(cell, Path(name)))
    return min(plain), min(whole) / min(plain) - 1, iterations


def main(seconds: float, rounds: int) -> float:
    """The largest overhead."""
    torch.set_num_threads(1)
    shares = []
    for task, method in CASES:
        base, share, iterations = measure(task, method, seconds, rounds)
        shares.append(share)
        cost = f"bare {base:6.2f} s  overhead {100 * share:+.1f}%"
        print(f"{task:22} {method:9} {iterations:7} iterations  {cost}", flush=True)
    return max(shares)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="length of the bare loop")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    raise SystemExit(main(given.seconds, given.rounds) > 0.05)
