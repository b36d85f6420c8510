"""Verification of a store: randomly chosen replicates are run again by this installation and compared with the record.

Compared are cells made on this hardware, platform and PyTorch: their replicates must have the same samples bit by bit and the
same metrics, cost, curve and divergence (relative 1e-6; seconds and memory excepted). Not verified are cells made elsewhere, where
rounding leads chains along other paths, plug-ins, other versions of a task or an algorithm, cells that failed and budgets in
seconds.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.execution import Execution
from parvibench.harness.session import make_executor, run_cells
from parvibench.harness.store.environment import hardware, provenance
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell

from .terms import is_built_in

FALSIFIED = 0.05  #: The share of falsified replicates that ``chance_of_missing`` is stated for.
#: Metrics of time and memory: they do not repeat, and nothing about them can be verified.
UNREPEATABLE = frozenset({"seconds", "peak_memory", "ess_per_second"})
#: Relative difference allowed to a metric that is computed again from the same numbers on the same machine.
TOLERANCE = 1e-6
_ELSEWHERE = "made on other hardware, platform or PyTorch: run it here, and compare by `parvibench compare`"


@dataclass(frozen=True)
class Check:
    """Comparison of one replicate with a rerun."""

    task: str
    label: str
    replicate: int
    verdict: str  #: ``same bits``, ``same metrics`` (the store has no samples), ``differs`` or ``not run`` (the rerun failed)
    reason: str = ""  #: what differs, or why nothing could be compared


@dataclass(frozen=True)
class Verification:
    """Outcome of verifying a store's latest run."""

    run: str  #: id of the run
    checks: tuple[Check, ...]
    skipped: dict[str, str]  #: ``task / label`` -> why it cannot be verified
    replicates: int  #: of the run that can be verified

    @property
    def falsified(self) -> tuple[Check, ...]:
        """The comparisons that failed."""
        return tuple(c for c in self.checks if c.verdict == "differs")

    @property
    def compared(self) -> int:
        """Number of replicates that were run again and compared."""
        return sum(c.verdict != "not run" for c in self.checks)

    @property
    def chance_of_missing(self) -> float:
        """Probability that no comparison would have failed if 5% of the replicates were falsified."""
        return float((1 - FALSIFIED) ** self.compared)

    def document(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "run_id": self.run,
            "verifiable_replicates": self.replicates,
            "chance_of_missing_5_percent": self.chance_of_missing,
            "checks": [vars(c) for c in self.checks],
            "skipped": self.skipped,
        }


def verify(store: Store, replicates: int, execution: Execution, seed: int | None = None) -> Verification:
    """Run about so many replicates of a store's latest run again, in whole chunks, and compare.

    The store may be of any origin: nothing in it is changed or run as code. Without a ``seed`` the random choice cannot be
    predicted. ``StoreError`` without a run, or for damaged files.
    """
    run, skipped, records = store.run(), {}, []
    for cell in run.cells:
        record = store.find_for(cell)
        if record is None or (why := _why_not(record, run.provenance)):
            skipped[f"{cell.task} / {cell.label}"] = "no result" if record is None else why
        else:
            records.append(record)
    pairs = [(i, r) for i, record in enumerate(records) for r in record.spec.replicates]
    chosen: dict[int, set[int]] = {}
    for k in np.random.default_rng(seed).permutation(len(pairs))[:replicates]:
        chosen.setdefault(pairs[k][0], set()).add(pairs[k][1])
    with tempfile.TemporaryDirectory() as folder:
        aside = Store(Path(folder))
        checks = [c for i, ids in chosen.items() for c in _compare(records[i], ids, store, aside, execution)]
    return Verification(run.id, tuple(checks), skipped, len(pairs))


def _why_not(record: CellRecord, there: dict[str, Any]) -> str:
    """Why a cell cannot be run again with the same bits, or empty; ``there``: its run's provenance."""
    spec, here = record.spec, provenance("", "cpu")
    algorithm, task = registry.algorithms().get(spec.algorithm), registry.tasks().get(spec.task)
    if record.kind == "external":
        return "samples from outside: no method made them here"
    if algorithm is None or not is_built_in(spec):
        return "a plug-in: its code is not part of this installation"
    if task is None or not task.built_in:
        return "a task that is not part of this installation"
    if record.status not in (Status.OK, Status.DIVERGED):
        return f"ended as {record.status}"
    if (spec.algorithm_version, spec.task_version) != (algorithm.version, task.version):
        return "made by another version of the method or the task"
    if spec.budget.seconds is not None:
        return "a budget in seconds does not repeat"
    packages = there.get("packages")
    version = packages.get("torch") if isinstance(packages, dict) else None
    same = (there.get("platform"), version) == (here["platform"], here["packages"]["torch"])
    same &= spec.device == "cpu" or torch.cuda.is_available()
    return "" if same and record.hardware == hardware(spec.device) else _ELSEWHERE


def _compare(record: CellRecord, chosen: set[int], store: Store, aside: Store, execution: Execution) -> list[Check]:
    """Chosen replicates of a cell, with their chunks, where every number must repeat."""
    chunks = Cell(record.spec, record.label, ()).chunks
    ids = tuple(r for chunk in chunks if chosen & set(chunk) for r in chunk)
    metrics = tuple(m for m in {**record.values, **record.absent} if m in registry.metrics())
    cell = Cell(record.spec, record.label, metrics).varied(replicates=ids)
    executor = make_executor(execution, record.spec.device)
    why = run_cells([cell], aside, executor, suite={"name": "verification"}).cells[0].reason
    again = aside.usable(cell.key)
    if again is None or again.status not in (Status.OK, Status.DIVERGED):
        return [Check(record.task, record.label, r, "not run", why or "the rerun failed") for r in ids]
    stored, fresh = store.samples(record.key), aside.samples(again.key)
    curve, repeated = store.curve(record.key), aside.curve(again.key)
    repeated = repeated[repeated["metric"].isin(curve["metric"])]  # an archive has the curves of a page alone
    then, now = _numbers(record, curve), _numbers(again, repeated)
    checks = []
    for at, r in enumerate(ids):
        old, new = then[r].align(now[r])
        wrong = old.index[~np.isclose(new, old, rtol=TOLERANCE, atol=1e-12)]
        reasons = [f"{name} is {new[name]:.6g} in the rerun, recorded {old[name]:.6g}" for name in wrong]
        place = record.spec.replicates.index(r)
        if stored is not None and (fresh is None or stored[place].tobytes() != fresh[at].tobytes()):
            reasons.append("other samples")
        verdict = "differs" if reasons else "same metrics" if stored is None else "same bits"
        checks.append(Check(record.task, record.label, r, verdict, "; ".join(reasons)))
    return checks


def _numbers(record: CellRecord, curve: pd.DataFrame) -> dict[int, "pd.Series[float]"]:
    """All that is recorded of each replicate and does not depend on the clock; infinite where a value is not finite."""
    points: Any = curve[~curve["metric"].isin(UNREPEATABLE)]
    rows = list(points.itertuples(index=False))
    columns: dict[tuple[int, str], float] = {}
    for name, total in (("iteration", record.iterations), ("score_evaluations", record.score_evaluations)):
        excess = float(points[name].max() - total) if rows else 0.0
        columns |= {(r, f"excess of {name} in the curve"): excess for r in record.spec.replicates}
        columns |= {(k.replicate, f"{name} at checkpoint {k.checkpoint}"): getattr(k, name) for k in rows}
    columns |= {(k.replicate, f"{k.metric} at checkpoint {k.checkpoint}"): k.value for k in rows}
    for metric, values in record.values.items():
        if metric not in UNREPEATABLE:
            pairs = zip(record.spec.replicates, values, strict=False)
            columns |= {(r, metric): np.inf if v is None else v for r, v in pairs}
    columns |= {(r, "diverged"): float(r in record.diverged) for r in record.spec.replicates}
    numbers = pd.Series(columns, dtype=float)
    numbers[~np.isfinite(numbers)] = np.inf
    return {r: numbers.xs(r) for r in record.spec.replicates}
