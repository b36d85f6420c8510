"""How often `verify` rejects an honest cell that was made elsewhere, and how often it finds a falsified one.

    python tests/studies/forgeries.py [--trials 100] [--replicates 3] [--methods ula svgd]

No run is used twice: a trial runs a method under seeds of its own, takes the first run as the record, falsified or not, and
tests it against the others, as `verify` does on another machine. The level is that of a store in which one cell is tested (4%).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
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
#: All that are cheap.
METRICS = (
    "sliced_w2", "mmd2", "ksd", "kl_knn", "mean_error", "sd_error", "correlation_error", "ks_marginal", "tail_error", "ess_bulk",
    "rhat",
)  # fmt: skip
KINDS = (
    "all metrics times 0.5", "all metrics times 0.7", "one metric halved, curve too", "exact draws, metrics to match",
    "half exact draws, metrics to match", "all metrics of one replicate times 0.5",
)  # fmt: skip


def runs(label: str, seeds: range, replicates: int, folder: Path) -> list[tuple]:
    """Record, curve and samples of a cell under these seeds."""
    task, entry = CELLS[label]
    size = Execution(replicates=replicates, particles=20, budget={"iterations": 50})
    suite = plan.select(None, [task], [entry], size).model_copy(update={"metrics": METRICS})
    (cell,) = expand(suite)
    cells = [cell.varied(seed=seed) for seed in seeds]
    store = Store(folder)
    results = run_cells(cells, store, make_executor(Execution(workers=0), "cpu"), suite={"name": "forgeries"})
    return [(c, store.curve(c.key), store.samples(c.key)) for c in results.cells]


def rejected(label: str, trials: int, replicates: int, rng: np.random.Generator) -> Counter[str]:
    """Kind of record -> trials in which it is rejected; the empty kind is honest."""
    count = 1 + fresh_runs(replicates)
    found: Counter[str] = Counter()
    for trial in range(trials):
        with tempfile.TemporaryDirectory() as folder:
            record, *others = runs(label, range(trial * count, (trial + 1) * count), replicates, Path(folder))
        fresh = [observed(*run[:2]) for run in others]
        for kind in ("", *KINDS):
            cell, curve, _ = FORGERIES[kind](*record, record[0]) if kind else record
            found[kind] += law_p_value(observed(cell, curve), fresh, rng)[0] <= ALPHA
    return found


def main() -> None:
    """Print a column a method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--methods", nargs="*", default=list(CELLS))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    agreement._RELABELLINGS = 2_000  # the level does not depend on their number
    print(f"{chosen.replicates} replicates, {fresh_runs(chosen.replicates)} fresh runs each, {chosen.trials} trials")
    for label in chosen.methods:
        found = rejected(label, chosen.trials, chosen.replicates, np.random.default_rng(1))
        print(label, *(f"{found[kind]:3} {kind or 'honest'}" for kind in ("", *KINDS)), sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
