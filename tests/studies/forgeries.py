"""How often `verify` rejects an honest store that was made elsewhere, and how often it finds a falsified cell.

    python tests/studies/forgeries.py [--trials 300] [--replicates 10]

Every method runs under many seeds; a trial takes one run as the record, falsifies it or not, and tests it against other
runs, as `verify` does on another machine. The level is that of a store in which one cell is tested (4%).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "harness"))
from forging import FORGERIES

from parvibench.api import plan
from parvibench.harness.agreement import fresh_runs, law_p_value, observed
from parvibench.harness.execution import Execution
from parvibench.harness.session import make_executor, run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.verification import ALPHA

#: Task, method and settings: a biased chain, an exact one, particles, mini-batches.
CELLS = {
    "ula": ("banana", {"name": "ula"}),
    "mala": ("banana", {"name": "mala"}),
    "svgd": ("banana", {"name": "svgd"}),
    "sgld": ("linear-regression", {"name": "sgld", "settings": {"step_size": 0.0005}}),
}
KINDS = (
    "all metrics times 0.5", "all metrics times 0.7", "one metric halved, curve too", "exact draws, metrics to match",
    "half exact draws, metrics to match", "all metrics of one replicate times 0.5",
)  # fmt: skip


def pool(label: str, seeds: int, replicates: int, folder: Path) -> list[tuple]:
    """Record, curve and samples of a cell under many seeds."""
    task, entry = CELLS[label]
    suite = plan.select(
        None, [task], [entry], Execution(replicates=replicates, particles=40, budget={"iterations": 100})
    )
    (cell,) = expand(suite)
    cells = [cell.varied(seed=seed) for seed in range(seeds)]
    store = Store(folder / label)
    results = run_cells(cells, store, make_executor(Execution(workers=0), "cpu"), suite={"name": "forgeries"})
    return [(c, store.curve(c.key), store.samples(c.key)) for c in results.cells]


def shares(runs: list[tuple], kind: str, trials: int, rng: np.random.Generator) -> float:
    """The share of trials in which the record is rejected."""
    fresh = fresh_runs(runs[0][0].n_replicates)
    rejected = 0
    for _ in range(trials):
        chosen, *others = rng.choice(len(runs), size=1 + fresh, replace=False)
        record, curve, _ = runs[chosen] if not kind else FORGERIES[kind](*runs[chosen], runs[chosen][0])
        p, _ = law_p_value(observed(record, curve), [observed(*runs[i][:2]) for i in others], rng)
        rejected += p <= ALPHA
    return rejected / trials


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=80, help="runs of every method")
    parser.add_argument("--replicates", type=int, default=10)
    chosen = parser.parse_args()
    rng = np.random.default_rng(1)
    warnings.simplefilter("ignore")
    print(f"{chosen.replicates} replicates, {fresh_runs(chosen.replicates)} fresh runs each, {chosen.trials} trials")
    print("| record | " + " | ".join(CELLS) + " |\n|---|" + "---:|" * len(CELLS))
    with tempfile.TemporaryDirectory() as folder:
        pools = {label: pool(label, chosen.seeds, chosen.replicates, Path(folder)) for label in CELLS}
        for kind in ("", *KINDS):
            found = [f"{100 * shares(runs, kind, chosen.trials, rng):.0f}%" for runs in pools.values()]
            print(f"| {kind or 'honest'} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
