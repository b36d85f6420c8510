"""Verification of a store that somebody else made: parts of it are run again and compared with the record.

What is run comes from this installation, by the names and versions in the store; a store brings no code. Compared are cells
made on this hardware, platform and PyTorch: randomly chosen replicates must have the same samples bit by bit and the same
metrics, cost, iterations, curve and divergence (relative 1e-6; seconds and memory excepted). Not verified are cells made
elsewhere, where rounding leads chains along other paths, plug-ins, other versions of a task or an algorithm, cells that failed
and budgets in seconds.
"""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from parvibench.core import registry
from parvibench.core.result import CellRecord, CellSpec, Status
from parvibench.harness.execution import Execution
from parvibench.harness.session import make_executor, run_cells
from parvibench.harness.store.environment import hardware, provenance
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell

#: The share of falsified replicates that ``chance_of_missing`` is stated for.
FALSIFIED = 0.05
#: Metrics of time and memory: they do not repeat, and nothing about them can be verified.
UNREPEATABLE = frozenset({"seconds", "peak_memory", "ess_per_second"})
#: Relative difference allowed to a metric that is computed again from the same numbers on the same machine.
TOLERANCE = 1e-6
_COUNTED = ("iteration", "score_evaluations")

#: Name of an observed number -> its value by replicate id; infinite where a replicate has none.
Observed = dict[str, dict[int, float]]


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
    """Run parts of a store's latest run again and compare.

    Args:
        store: of any origin; nothing in it is changed.
        replicates: to run again, about: whole chunks.
        execution: workers and limits of the reruns.
        seed: of the random choice; None draws one that cannot be predicted.

    Raises:
        StoreError: no run, or damaged files.
    """
    run, rng = store.run(), np.random.default_rng(seed)
    here = provenance("", "cpu")
    skipped: dict[str, str] = {}
    records: list[CellRecord] = []
    for cell in run.cells:
        record = store.find_for(cell)
        why = "no result" if record is None else _why_not(record)
        if not why and record is not None and not made_here(record, run.provenance, here):
            why = "made on other hardware, platform or PyTorch: run it here, and compare by `parvibench compare`"
        if why or record is None:
            skipped[f"{cell.task} / {cell.label}"] = why
        else:
            records.append(record)
    pairs = [(i, r) for i, record in enumerate(records) for r in record.spec.replicates]
    chosen: dict[int, set[int]] = {}
    for k in rng.permutation(len(pairs))[:replicates]:
        chosen.setdefault(pairs[k][0], set()).add(pairs[k][1])
    with tempfile.TemporaryDirectory() as folder:
        aside = Store(Path(folder))
        checks = [c for i, ids in chosen.items() for c in _compare(records[i], ids, store, aside, execution)]
    return Verification(run.id, tuple(checks), skipped, len(pairs))


def is_built_in(spec: CellSpec) -> bool:
    """Whether the method is part of this installation's package."""
    row = registry.algorithms().get(spec.algorithm)
    return row is not None and row.built_in and not spec.source


def _why_not(record: CellRecord) -> str:
    """Why a cell cannot be run again, or empty."""
    spec = record.spec
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
    return ""


def made_here(record: CellRecord, there: dict[str, Any], here: dict[str, Any]) -> bool:
    """Whether bits must repeat: the record was made on this hardware, platform and PyTorch, by its run's provenance."""
    packages = there.get("packages")
    version = packages.get("torch") if isinstance(packages, dict) else None
    same = (there.get("platform"), version) == (here["platform"], here["packages"]["torch"])
    device = record.spec.device
    return same and (device == "cpu" or torch.cuda.is_available()) and record.hardware == hardware(device)


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
    curve = store.curve(record.key)
    then, now = observed(record, curve), observed(again, aside.curve(again.key))
    totals = zip(_COUNTED, (record.iterations, record.score_evaluations), strict=True)
    costs = [
        f"{name} ends at {curve[name].max():g} in the curve, recorded {total:g}"
        for name, total in totals if len(curve) and not _same(float(curve[name].max()), total)
    ]  # fmt: skip
    found = []
    for at, r in enumerate(ids):
        reasons = costs + differences(then, now, r)
        place = record.spec.replicates.index(r)
        if stored is not None and (fresh is None or stored[place].tobytes() != fresh[at].tobytes()):
            reasons.append("other samples")
        verdict = "differs" if reasons else "same metrics" if stored is None else "same bits"
        found.append(Check(record.task, record.label, r, verdict, "; ".join(reasons)))
    return found


def observed(record: CellRecord, curve: pd.DataFrame) -> Observed:
    """All that is recorded of each replicate and does not depend on the clock."""
    ids = record.spec.replicates
    found: Observed = {"diverged": {r: float(r in record.diverged) for r in ids}}
    for metric, values in record.values.items():
        if metric not in UNREPEATABLE:
            found[metric] = {r: math.inf if v is None else v for r, v in zip(ids, values, strict=False)}
    rows: Any = curve.itertuples(index=False)
    for row in rows:
        if row.metric in UNREPEATABLE:
            continue
        at = f"at checkpoint {row.checkpoint}"
        found.setdefault(f"{row.metric} {at}", {})[row.replicate] = row.value
        for name in _COUNTED:
            found.setdefault(f"{name} {at}", {})[row.replicate] = float(getattr(row, name))
    return found


def differences(recorded: Observed, again: Observed, replicate: int) -> list[str]:
    """What a rerun on the same machine does not repeat of a replicate."""
    found = []
    for name in {**recorded, **again}:
        old, new = (side.get(name, {}).get(replicate) for side in (recorded, again))
        if old is None and new is None:
            continue
        if old is None or new is None:
            found.append(f"{name} is missing in the {'record' if old is None else 'rerun'}")
        elif not _same(old, new):
            found.append(f"{name} is {new:.6g} in the rerun, recorded {old:.6g}")
    return found


def _same(a: float, b: float) -> bool:
    """Whether two numbers are one up to rounding; what is not finite is one value."""
    if math.isfinite(a) and math.isfinite(b):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-12)
    return math.isfinite(a) is math.isfinite(b)
