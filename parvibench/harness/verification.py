"""Verifying a store that somebody else made: randomly chosen replicates are run again and compared with the record.

What is run comes from this installation, by the names and versions in the store, within the limits of every run; a store
brings no code. Not verified are plug-ins, cells of other versions of a task or an algorithm, budgets in seconds, and
seconds themselves, which nobody can vouch for but those who measured them.

A replicate agrees when

- its samples have the same bits, where hardware, PyTorch and platform are those of the record (in a store without samples:
  each metric is the same, to a relative 1e-6); elsewhere rounding grows
  into another path, and each metric must lie within ``SPREADS`` (8) spreads of the other recorded replicates of its cell, where
  a spread is the interquartile range over 1.35, or within 5% of the recorded value;
- the metrics that samples alone determine, computed again from the stored samples, are those recorded, to a relative 1e-6
  on the same hardware and 1e-3 elsewhere.

If a share f of a store's replicates were falsified, k independently chosen ones would all miss them with probability
(1 - f)^k: 4.6% for f = 5% and k = 60.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.execution import Execution
from parvibench.harness.run.measuring import context_maker
from parvibench.harness.session import make_executor, run_cells
from parvibench.harness.store.environment import hardware, provenance
from parvibench.harness.store.files import write_atomically
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import RunRecord, Store
from parvibench.harness.suite.cells import Cell
from parvibench.metrics.compute import compute_guarded

#: The share of falsified replicates that is spoken of.
FALSIFIED = 0.05
#: Spreads of a cell's replicates that a metric may differ by on another platform.
SPREADS = 8.0
_SAME, _ELSEWHERE = 1e-6, 1e-3
_FILE, _MOST_BYTES = "verification.json", 50_000_000
#: Needs of metrics that samples alone determine.
_OF_SAMPLES = ("reference", "target", "moments", "modes", "unmixing", "predictive")


@dataclass(frozen=True)
class Check:
    """One replicate that was run again."""

    task: str
    label: str
    replicate: int
    verdict: (
        str  #: ``same bits``, ``same metrics``, ``within tolerance``, ``differs`` or ``not run`` (the rerun failed)
    )
    reason: str  #: what differs, or empty


@dataclass(frozen=True)
class Verification:
    """What was found in a store."""

    run: str  #: id of the run
    checks: tuple[Check, ...]
    skipped: dict[str, str]  #: ``task / label`` -> why it cannot be verified
    replicates: int  #: of the run that can be verified

    @property
    def falsified(self) -> tuple[Check, ...]:
        """The replicates whose record is not what a rerun gives."""
        return tuple(c for c in self.checks if c.verdict == "differs")

    @property
    def chance_of_missing(self) -> float:
        """Probability that none of these replicates would be among 5% falsified ones."""
        return (1 - FALSIFIED) ** sum(c.verdict != "not run" for c in self.checks)

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
    """Run randomly chosen replicates of a store's latest run again and compare.

    Args:
        store: somebody's; nothing in it is changed.
        replicates: to choose, with whole chunks compared where one is chosen.
        execution: workers and limits of the reruns.
        seed: of the choice; None draws one, which nobody can know beforehand.

    Raises:
        StoreError: no run, or damaged files.
    """
    run = store.run()
    skipped: dict[str, str] = {}
    records: dict[str, CellRecord] = {}
    for asked in run.cells:
        record = store.find_for(asked)
        why = "no result" if record is None else _why_not(record)
        if record is None or why:
            skipped[f"{asked.task} / {asked.label}"] = why
        else:
            records[record.key] = record
    pairs = [(key, r) for key, record in records.items() for r in record.spec.replicates]
    order = np.random.default_rng(seed).permutation(len(pairs))[:replicates]
    wanted: dict[str, set[int]] = {}
    for i in order:
        wanted.setdefault(pairs[i][0], set()).add(pairs[i][1])
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as folder:
        for key, chosen in wanted.items():
            checks += _compare(records[key], chosen, store, Store(Path(folder)), run, execution)
    return Verification(run.id, tuple(checks), skipped, len(pairs))


def _why_not(record: CellRecord) -> str:
    """Why a cell cannot be verified, or empty."""
    spec = record.spec
    algorithm, task = registry.algorithms().get(spec.algorithm), registry.tasks().get(spec.task)
    if record.status is not Status.OK:
        return f"ended as {record.status}"
    if record.kind == "external":
        return "samples from outside: no method made them here"
    if spec.source or algorithm is None or not algorithm.target.startswith("parvibench."):
        return "a plug-in: its code is not part of this installation"
    if task is None or not task.target.startswith("parvibench."):
        return "a task that is not part of this installation"
    if (spec.algorithm_version, spec.task_version) != (algorithm.version, task.version):
        return "made by another version of the method or the task"
    if spec.budget.seconds is not None:
        return "a budget in seconds does not repeat"
    return ""


def _compare(
    record: CellRecord, chosen: set[int], store: Store, aside: Store, run: RunRecord, execution: Execution
) -> list[Check]:
    metrics = tuple(m for m in record.values if m in registry.metrics())
    whole = Cell(record.spec, record.label, metrics)
    ids = tuple(r for chunk in whole.chunks if chosen & set(chunk) for r in chunk)
    cell = whole.varied(replicates=ids)
    results = run_cells([cell], aside, make_executor(execution, record.spec.device), suite={"name": "verification"})
    again = aside.usable(cell.key)
    stored, fresh = store.samples(record.key), aside.samples(cell.key) if again is not None else None
    same = _same_platform(record, run, record.spec.device)
    found = []
    for r in ids:
        place = record.spec.replicates.index(r)
        if again is None or again.status not in (Status.OK, Status.DIVERGED) or fresh is None:
            reason = results.cells[0].reason or "the rerun has no samples"
            found.append(Check(record.task, record.label, r, "not run", reason))
            continue
        reasons = [] if stored is None else _metrics_of_samples(record, place, stored, same=same)
        at = ids.index(r)
        if same and stored is not None:
            if stored[place].tobytes() != fresh[at].tobytes():
                reasons.append("other samples")
            verdict = "same bits"
        elif same:
            reasons += _other_metrics(record, again, place, at)
            verdict = "same metrics"
        else:
            reasons += _beyond_spread(record, again, place, at)
            verdict = "within tolerance"
        found.append(Check(record.task, record.label, r, "differs" if reasons else verdict, "; ".join(reasons)))
    return found


def _same_platform(record: CellRecord, run: RunRecord, device: str) -> bool:
    """Whether the record was made where bits must repeat: this hardware, platform and PyTorch."""
    here, there = provenance("", device), run.provenance
    parts = ((p.get("platform"), (p.get("packages") or {}).get("torch")) for p in (here, there))
    mine, theirs = parts
    return record.hardware == hardware(device) and mine == theirs


def _metrics_of_samples(record: CellRecord, place: int, samples: Any, *, same: bool) -> list[str]:
    """Metrics of the stored samples of a replicate that are not the recorded ones."""
    names = [m for m in record.values if (row := registry.metrics().get(m)) is not None and row.need in _OF_SAMPLES]
    ids = record.spec.replicates[place : place + 1]
    task = Cell(record.spec, record.label, tuple(names)).load_task()
    given = torch.from_numpy(samples[place : place + 1].astype(np.float64))
    if record.kind == "anchor":  # its samples may be rows of the reference, judged against the others
        return []
    values, _ = compute_guarded(names, given, context_maker(task, ids, names)())
    tolerance = _SAME if same else _ELSEWHERE
    found = []
    for metric, value in values.items():
        recorded, now = record.values[metric][place], float(value)
        if recorded is None or not math.isfinite(now):
            agrees = recorded is None and not math.isfinite(now)
        else:
            # float32 samples of a float64 run: what is stored has been rounded.
            agrees = math.isclose(recorded, now, rel_tol=max(tolerance, 1e-4), abs_tol=1e-6)
        if not agrees:
            found.append(f"{metric} of the stored samples is {now:.6g}, recorded {recorded}")
    return found


def _other_metrics(record: CellRecord, again: CellRecord, place: int, at: int) -> list[str]:
    """Metrics of a rerun on the same platform that are not the recorded ones."""
    found = []
    for metric, old, new in _repeated(record, again, place, at):
        if (old is None) != (new is None) or (
            old is not None and not math.isclose(old, new, rel_tol=_SAME, abs_tol=1e-12)
        ):
            found.append(f"{metric} is {new} in the rerun, recorded {old}")
    return found


def _repeated(record: CellRecord, again: CellRecord, place: int, at: int) -> Iterator[tuple[str, Any, Any]]:
    """Name, recorded value and value of the rerun of every metric of a replicate but those of cost."""
    for metric, recorded in record.values.items():
        row = registry.metrics().get(metric)
        if row is not None and row.need != "cost" and metric in again.values:
            yield metric, recorded[place], again.values[metric][at]


def _beyond_spread(record: CellRecord, again: CellRecord, place: int, at: int) -> list[str]:
    """Metrics of a rerun elsewhere that are further from the record than its replicates are from each other."""
    found = []
    for metric, old, new in _repeated(record, again, place, at):
        others = np.array([v for i, v in enumerate(record.values[metric]) if v is not None and i != place], dtype=float)
        if old is None or new is None or len(others) < 3:
            continue
        spread = float(np.subtract(*np.percentile(others, [75, 25]))) / 1.35
        if abs(new - old) > max(SPREADS * spread, 0.05 * abs(old)):
            found.append(f"{metric} is {new:.6g} in the rerun, recorded {old:.6g}")
    return found


def marks(results: StoredRun) -> dict[tuple[str, str], str]:
    """(task, label) -> ``verified``, ``differs``, ``unverified`` or ``external``; empty where nobody verified the run.

    ``external`` are cells of a method that this installation does not know and that is no plug-in: samples from outside.
    The file says what this command found when it last ran on the store; verify again what somebody sends.
    """
    path = results.store.root / _FILE
    try:
        kept = json.loads(path.read_bytes()[:_MOST_BYTES])
        checks = [(str(c["task"]), str(c["label"]), str(c["verdict"])) for c in kept["checks"]]
        known = kept["run_id"] == results.run.id
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    found = {(c.task, c.label): _unchecked(c) for c in results.cells}
    for task, label, verdict in checks if known else ():
        if (task, label) in found and found[task, label] != "differs" and verdict != "not run":
            found[task, label] = "differs" if verdict == "differs" else "verified"
    return found if known else {}


def _unchecked(cell: CellRecord) -> str:
    outside = cell.kind == "external" or not (cell.spec.source or cell.algorithm in registry.algorithms())
    return "external" if outside else "unverified"


def keep(verification: Verification, folder: Path) -> Path:
    """Write what was found beside the runs, for the page of the store: the file."""
    path = folder / _FILE
    write_atomically(path, json.dumps(verification.document(), indent=1).encode())
    return path
