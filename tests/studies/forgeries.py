"""How often `verify` rejects an honest cell that was made elsewhere, and how often it finds a falsified one.

    python tests/studies/forgeries.py [--trials 100] [--replicates 3]

No run is used twice: a trial runs a method under seeds of its own, takes the first run as the record, falsified or not, and
tests it against the others, as `verify` does on another machine. The level is that of a store in which one cell is tested (4%).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "harness"))
from forging import FORGERIES

from parvibench.api import plan
from parvibench.harness import agreement
from parvibench.harness.agreement import fresh_runs, law_p_value, observed
from parvibench.harness.execution import Execution
from parvibench.harness.records import finished
from parvibench.harness.run import loop
from parvibench.harness.suite.cells import expand
from parvibench.harness.verification import ALPHA
from parvibench.harness.workers.executors import attempt
from parvibench.harness.workers.jobs import ChunkJob

#: Task, method and settings: a biased chain, an exact one, particles, mini-batches.
CELLS = {
    "ula": ("banana", {"name": "ula"}),
    "mala": ("banana", {"name": "mala"}),
    "svgd": ("banana", {"name": "svgd"}),
    "sgld": ("linear-regression", {"name": "sgld", "settings": {"step_size": 0.0005}}),
}
#: All kinds, none of them dear.
METRICS = ("sliced_w2", "mmd2", "ksd", "mean_error", "sd_error", "ks_marginal", "ess_bulk", "rhat")
KINDS = (
    "all metrics times 0.5", "all metrics times 0.7", "one metric halved, curve too", "exact draws, metrics to match",
    "half exact draws, metrics to match", "all metrics of one replicate times 0.5",
)  # fmt: skip


def runs(label: str, seeds: range, replicates: int) -> list[tuple]:
    """Record, curve and samples of a cell under these seeds."""
    task, entry = CELLS[label]
    size = Execution(replicates=replicates, particles=20, budget={"iterations": 50})
    (cell,) = expand(plan.select(None, [task], [entry], size).model_copy(update={"metrics": METRICS}))
    found = []
    for seed in seeds:
        varied = cell.varied(seed=seed, checkpoints=(20, 50))
        done = finished(varied, [attempt(ChunkJob(varied, i), lambda news: None) for i in range(len(varied.chunks))])
        found.append((done.record, done.curve, done.samples))
    return found


def trial(number: int, label: str, replicates: int, rng: np.random.Generator) -> set[str]:
    """The kinds of records that are rejected; the empty kind is honest."""
    count = 1 + fresh_runs(replicates)
    record, *others = runs(label, range(number * count, (number + 1) * count), replicates)
    fresh = [observed(*run[:2]) for run in others]
    found = set()
    for kind in ("", *KINDS):
        cell, curve, _ = FORGERIES[kind](*record, record[0]) if kind else record
        if law_p_value(observed(cell, curve), fresh, rng)[0] <= ALPHA:
            found.add(kind)
    return found


def main() -> None:
    """Print how often each kind was rejected, a column a method, after every ten trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--replicates", type=int, default=10)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    agreement._RELABELLINGS = 2_000  # the level does not depend on their number
    loop.reference_seconds = lambda device: 1.0  # half of the time of a run so small
    print(f"{chosen.replicates} replicates, {fresh_runs(chosen.replicates)} fresh runs each: {', '.join(CELLS)}")
    rng, counts = np.random.default_rng(1), Counter[tuple[str, str]]()
    for number in range(chosen.trials):
        counts.update((kind, label) for label in CELLS for kind in trial(number, label, chosen.replicates, rng))
        if number % 10 == 9 or number + 1 == chosen.trials:
            print(f"{number + 1} trials each")
            for kind in ("", *KINDS):
                print(*(f"{counts[kind, label]:4}" for label in CELLS), f" {kind or 'honest'}", flush=True)


if __name__ == "__main__":
    main()
