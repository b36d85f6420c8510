"""Verifying a store that somebody else made: parts of it are run again and compared with the record.

What is run comes from this installation, by the names and versions in the store, within the limits of every run; a store
brings no code. Plug-ins are run only from a folder of sources that the caller gives, in a sandbox. Not verified are cells of other versions of a task or an algorithm, cells that failed, budgets in
seconds, and seconds themselves, which nobody can vouch for but those who measured them.

Three comparisons:

- In every cell, without running anything: curve, values, cost and diverged replicates must not contradict each other
  (``agreement.contradictions``).
- On the hardware, platform and PyTorch of the record: randomly chosen replicates are run again. Samples must have the same
  bits; metrics, cost, iterations, curve and divergence must be the same (relative 1e-6); and metrics computed again from the
  stored samples must be those recorded.
- Elsewhere, where rounding leads chains along other paths: randomly chosen cells are run again several times under other
  seeds, and all replicates of a cell are tested against the reruns (``agreement.law_p_value``). All tests of a store together
  reject an honest one in at most ``ALPHA`` (4%) of verifications. A cell with too few replicates is ``not comparable``.

``Verification.chance_of_missing`` is the probability that falsifications would have escaped. On the same hardware a chosen
replicate is always seen; elsewhere a falsified cell is seen with the power that ``tests/studies/forgeries.py`` measures.
"""

import hashlib
import hmac
import json
import math
import os
import secrets
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import torch

from parvibench.core import registry
from parvibench.core.errors import DiskError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.execution import Execution
from parvibench.harness.isolation import run_isolated
from parvibench.harness.run.judging import context_maker
from parvibench.harness.session import make_executor, run_cells
from parvibench.harness.store.environment import hardware, provenance
from parvibench.harness.store.files import write_atomically
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import RunRecord, Store
from parvibench.harness.suite.cells import Cell
from parvibench.metrics.compute import compute_guarded

from .agreement import Observed, contradictions, differences, fresh_runs, law_p_value, observed

#: The share of falsified replicates, or cells, that ``chance_of_missing`` speaks of.
FALSIFIED = 0.05
#: Probability that an honest store made elsewhere is rejected, at most.
ALPHA = 0.04
#: Probability that a falsified cell is found elsewhere, rounded down: metrics times 0.7, three and ten replicates.
POWER_ELSEWHERE = 0.9
_FILE, _MOST_BYTES = "verification.json", 50_000_000
#: Needs of metrics that samples alone determine.
_OF_SAMPLES = ("reference", "target", "moments", "modes", "unmixing", "predictive")
#: Verdict of the cells that a board made itself, beside those of submissions.
OWN = "made here"
#: Verdict -> mark of a row of the page; others leave it as it is.
_MARKS = dict.fromkeys(("same bits", "same metrics", "same law"), "verified") | {"differs": "differs", OWN: ""}


@dataclass(frozen=True)
class Check:
    """One comparison: of a replicate that was run again, or of a whole cell where ``replicate`` is None."""

    task: str
    label: str
    replicate: int | None
    #: ``same bits``, ``same metrics``, ``same law``, ``differs``, ``not comparable`` or ``not run`` (the rerun failed)
    verdict: str
    reason: str = ""  #: what differs, or why nothing could be compared
    cell: str = ""  #: SHA-256 of the ``cell.json`` that was compared


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
    def chance_of_missing(self) -> float:
        """Probability that no comparison would have failed if 5% of the replicates (elsewhere: cells) were falsified."""
        here = sum(c.verdict in ("same bits", "same metrics") for c in self.checks)
        elsewhere = sum(c.verdict == "same law" for c in self.checks)
        return float((1 - FALSIFIED) ** here * (1 - FALSIFIED * POWER_ELSEWHERE) ** elsewhere)

    def document(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "run_id": self.run,
            "verifiable_replicates": self.replicates,
            "chance_of_missing_5_percent": self.chance_of_missing,
            "checks": [vars(c) for c in self.checks],
            "skipped": self.skipped,
        }


def verify(
    store: Store, replicates: int, execution: Execution, seed: int | None = None, *, plugins: Path | None = None
) -> Verification:
    """Run parts of a store's latest run again and compare.

    Args:
        store: anybody's; nothing in it is changed.
        replicates: to run again, about: whole chunks on the same hardware, whole cells elsewhere.
        execution: workers and limits of the reruns.
        seed: of the choice; None draws one, which nobody can know beforehand.
        plugins: folder of the plug-ins' sources, which are then run in a sandbox; None leaves plug-ins out.

    Raises:
        InputError: plug-ins, and no sandbox on this machine.
        StoreError: no run, or damaged files.
    """
    run, rng = store.run(), np.random.default_rng(seed)
    skipped: dict[str, str] = {}
    records: list[CellRecord] = []
    checks: list[Check] = []
    for asked in run.cells:
        record = store.find_for(asked)
        if record is not None and (wrong := contradictions(record, store.curve(record.key))):
            checks.append(_check(record, None, "differs", "; ".join(wrong), store))
        elif record is None or (why := _why_not(record, isolated=plugins is not None)):
            skipped[f"{asked.task} / {asked.label}"] = "no result" if record is None else why
        else:
            records.append(record)
    here = [r for r in records if _same_platform(r, run)]
    elsewhere = [r for r in records if r not in here]
    count = sum(r.n_replicates for r in records)
    with tempfile.TemporaryDirectory() as folder:
        rerun = _Rerun(store, Store(Path(folder)), execution, plugins)
        share = round(replicates * sum(r.n_replicates for r in here) / max(count, 1))
        for record, chosen in _chosen(here, share, rng):
            checks += _compare_bits(record, chosen, rerun)
        checks += _compare_laws(elsewhere, replicates - share, rerun, rng)
    return Verification(run.id, tuple(checks), skipped, count)


def _why_not(record: CellRecord, *, isolated: bool) -> str:
    """Why a cell cannot be run again, or empty; ``isolated`` where plug-ins can."""
    spec = record.spec
    algorithm, task = registry.algorithms().get(spec.algorithm), registry.tasks().get(spec.task)
    if record.kind == "external":
        return "samples from outside: no method made them here"
    plugin = bool(spec.source) or algorithm is None or not algorithm.built_in
    if plugin and not (isolated and registry.is_elsewhere(spec.algorithm)):
        return "a plug-in: its code is not part of this installation"
    if task is None or not task.built_in:
        return "a task that is not part of this installation"
    if record.status not in (Status.OK, Status.DIVERGED):
        return f"ended as {record.status}"
    version = spec.algorithm_version if algorithm is None else algorithm.version
    if (spec.algorithm_version, spec.task_version) != (version, task.version):
        return "made by another version of the method or the task"
    if spec.budget.seconds is not None:
        return "a budget in seconds does not repeat"
    return ""


def _same_platform(record: CellRecord, run: RunRecord) -> bool:
    """Whether the record was made where bits must repeat: this hardware, platform and PyTorch."""
    device = record.spec.device
    here, there = provenance("", device), run.provenance
    mine, theirs = ((p.get("platform"), (p.get("packages") or {}).get("torch")) for p in (here, there))
    return record.hardware == hardware(device) and mine == theirs


def _chosen(
    records: Sequence[CellRecord], replicates: int, rng: np.random.Generator
) -> list[tuple[CellRecord, set[int]]]:
    """Randomly chosen replicates, by cell."""
    pairs = [(i, r) for i, record in enumerate(records) for r in record.spec.replicates]
    chosen: dict[int, set[int]] = {}
    for k in rng.permutation(len(pairs))[:replicates]:
        chosen.setdefault(pairs[k][0], set()).add(pairs[k][1])
    return [(records[i], ids) for i, ids in chosen.items()]


@dataclass(frozen=True)
class _Rerun:
    """Runs cells again, beside the store."""

    store: Store
    aside: Store
    execution: Execution
    plugins: Path | None

    def run(self, record: CellRecord, **changes: Any) -> tuple[CellRecord | None, str]:
        """The record of a rerun with other values in its specification, or why there is none."""
        metrics = tuple(m for m in {**record.values, **record.absent} if m in registry.metrics())
        cell = Cell(record.spec, record.label, metrics).varied(**changes)
        if record.spec.source and self.plugins is not None:
            why = run_isolated(cell, self.aside, self.plugins, self.execution)
        else:
            executor = make_executor(self.execution, record.spec.device)
            why = run_cells([cell], self.aside, executor, suite={"name": "verification"}).cells[0].reason
        found = self.aside.usable(cell.key)
        if found is None or found.status not in (Status.OK, Status.DIVERGED):
            return None, why or "the rerun failed"
        return found, ""


def _check(record: CellRecord, replicate: int | None, verdict: str, reason: str, store: Store) -> Check:
    return Check(record.task, record.label, replicate, verdict, reason, store.digest(record.key))


def _compare_bits(record: CellRecord, chosen: set[int], rerun: _Rerun) -> list[Check]:
    """Chosen replicates of a cell, with their chunks, where every number must repeat."""
    store = rerun.store
    whole = Cell(record.spec, record.label, ())
    ids = tuple(r for chunk in whole.chunks if chosen & set(chunk) for r in chunk)
    again, why = rerun.run(record, replicates=ids)
    if again is None:
        return [_check(record, r, "not run", why, store) for r in ids]
    stored, fresh = store.samples(record.key), rerun.aside.samples(again.key)
    then, now = observed(record, store.curve(record.key)), observed(again, rerun.aside.curve(again.key))
    found = []
    for at, r in enumerate(ids):
        place = record.spec.replicates.index(r)
        reasons = differences(then, now, r)
        if stored is not None:
            reasons += _metrics_of_samples(record, place, stored)
            if fresh is None or stored[place].tobytes() != fresh[at].tobytes():
                reasons.append("other samples")
        verdict = "differs" if reasons else "same metrics" if stored is None else "same bits"
        found.append(_check(record, r, verdict, "; ".join(reasons), store))
    return found


def _metrics_of_samples(record: CellRecord, place: int, samples: Any) -> list[str]:
    """Metrics of the stored samples of a replicate that are not the recorded ones."""
    if record.kind == "anchor" or record.spec.replicates[place] in record.diverged:
        return []  # an anchor's samples may be rows of the reference, judged against the others
    names = [m for m in record.values if (row := registry.metrics().get(m)) is not None and row.need in _OF_SAMPLES]
    ids = record.spec.replicates[place : place + 1]
    task = Cell(record.spec, record.label, tuple(names)).load_task()
    given = torch.from_numpy(samples[place : place + 1].astype(np.float64))
    values, _ = compute_guarded(names, given, context_maker(task, ids, names)())
    found = []
    for metric, value in values.items():
        recorded, now = record.values[metric][place], float(value)
        # Stored samples are float32, also of a run in float64.
        close = recorded is not None and math.isclose(recorded, now, rel_tol=1e-4, abs_tol=1e-6)
        if not (close if math.isfinite(now) else recorded is None):
            found.append(f"{metric} of the stored samples is {now:.6g}, recorded {recorded}")
    return found


def _compare_laws(
    records: Sequence[CellRecord], replicates: int, rerun: _Rerun, rng: np.random.Generator
) -> list[Check]:
    """Randomly chosen cells against reruns under other seeds, where bits do not repeat."""
    store = rerun.store
    found = [
        _check(r, None, "not comparable", f"made elsewhere, with {r.n_replicates} replicates: too few to test", store)
        for r in records if not fresh_runs(r.n_replicates)
    ]  # fmt: skip
    open_ = [r for r in records if fresh_runs(r.n_replicates)]
    chosen: list[CellRecord] = []
    for i in rng.permutation(len(open_)):
        if replicates > 0:
            chosen.append(open_[i])
            replicates -= fresh_runs(open_[i].n_replicates) * open_[i].n_replicates
    for record in chosen:
        fresh: list[Observed] = []
        why = ""
        for seed in rng.integers(2**31, size=fresh_runs(record.n_replicates)):
            again, why = rerun.run(record, seed=int(seed))
            if again is None:
                break
            fresh.append(observed(again, rerun.aside.curve(again.key)))
        if why:
            found.append(_check(record, None, "not run", why, store))
            continue
        p, difference = law_p_value(observed(record, store.curve(record.key)), fresh, rng)
        reasons = [f"{difference} (p = {p:.2g})"] if p <= ALPHA / len(chosen) else []
        if (samples := store.samples(record.key)) is not None:
            for place in range(record.n_replicates):
                reasons += _metrics_of_samples(record, place, samples)
        found.append(_check(record, None, "differs" if reasons else "same law", "; ".join(reasons), store))
    return found


def marks(results: StoredRun) -> dict[tuple[str, str], str]:
    """(task, label) -> mark, as of ``marks_of``; empty if the run was not verified here.

    A mark counts only if this user's ``verify`` wrote it: a ``verification.json`` that came with the store is ignored.
    """
    try:
        kept = json.loads((results.store.root / _FILE).read_bytes()[:_MOST_BYTES])
        signature = kept.pop("signature")
        genuine = hmac.compare_digest(signature, _signature(kept))
        checks = [Check(**c) for c in kept["checks"]]
        known = genuine and kept["run_id"] == results.run.id
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return marks_of(results, checks) if known else {}


def marks_of(results: StoredRun, checks: Iterable[Check]) -> dict[tuple[str, str], str]:
    """(task, label) -> ``verified``, ``differs``, ``unverified``, ``external``, or empty for a board's own results.

    ``external`` are cells of a method that this installation does not know and that is no plug-in: samples from outside.
    A check counts for the very ``cell.json`` that was compared.
    """
    found: dict[tuple[str, str], str] = {}
    for cell in results.cells:
        outside = cell.kind == "external" or not (cell.spec.source or cell.algorithm in registry.algorithms())
        found[cell.task, cell.label] = "external" if outside else "unverified"
    keys = {(c.task, c.label): c.key for c in results.cells}
    for check in checks:
        place = check.task, check.label
        if place in found and found[place] != "differs" and results.store.digest(keys[place]) == check.cell:
            found[place] = _MARKS.get(check.verdict, found[place])
    return found


def keep(verification: Verification, folder: Path) -> Path:
    """Write the outcome, signed, beside the runs, for the page of the store: the file.

    Raises:
        DiskError: it cannot be written.
    """
    path, document = folder / _FILE, verification.document()
    try:
        document["signature"] = _signature(document)
        write_atomically(path, json.dumps(document, indent=1).encode())
    except OSError as error:
        raise DiskError(f"{path}: the outcome cannot be stored ({error.strerror or error})") from None
    return path


def _signature(document: dict[str, Any]) -> str:
    """HMAC-SHA256 under a key that only this user's account has; made on first use."""
    file = platformdirs.user_data_path("parvibench") / "verification.key"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as key:
            key.write(secrets.token_bytes(32))
    text = json.dumps(document, sort_keys=True).encode()
    return hmac.new(file.read_bytes(), text, hashlib.sha256).hexdigest()
