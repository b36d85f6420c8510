"""A run: expand the suite, skip what the store holds, run the rest, write every cell as it ends."""

from __future__ import annotations

import datetime as dt
import os
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch

from parvibench.core.errors import DataMissingError, InputError, ParVIBenchError
from parvibench.core.result import CellRecord, Status, to_json_number
from parvibench.harness.execution import Execution
from parvibench.harness.run.chunks import ChunkResult, pack_result, unpack_result
from parvibench.harness.run.measuring import can_remeasure, metrics_key, remeasure
from parvibench.harness.store.environment import hardware, provenance
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import CURVE_COLUMNS, RunCell, RunRecord, Store, Trajectories, is_final, new_run_id
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import Executor, InProcess, Job, Outcome, Progress
from parvibench.harness.workers.interrupts import Interrupts
from parvibench.harness.workers.processes import Workers
from parvibench.harness.workers.system import SystemMonitor


class Observer(Protocol):
    """Told what happens; the terminal display and the MLflow mirror are observers."""

    def started(self, run: RunRecord, total: int, cached: int) -> None:
        """The run begins: ``total`` cells, ``cached`` of them already in the store."""

    def progress(self, progress: Progress) -> None:
        """A checkpoint of a running job."""

    def finished(self, cell: Cell, record: CellRecord, folder: Path, cached: bool) -> None:
        """A cell stands in the store."""

    def ended(self, run: RunRecord) -> None:
        """The run is over (also after an interruption)."""


#: A cell, its record, curve, samples and trajectories.
Finished = tuple[Cell, CellRecord, pd.DataFrame | None, np.ndarray | None, Trajectories | None]


@dataclass
class _Pending:
    """A cell whose chunks are coming in."""

    cell: Cell
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.outcomes) == len(self.cell.chunks)

    def finished(self) -> Finished:
        """The cell as it goes into the store; its parts are let go."""
        outcomes = [self.outcomes[i] for i in sorted(self.outcomes)]
        self.outcomes = {}
        return self.cell, make_record(self.cell, outcomes), *_tables(outcomes)


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    executor: Executor,
    *,
    suite: dict[str, Any],
    profile: str | None = None,
    command: str = "",
    observers: Sequence[Observer] = (),
    fresh: bool = False,
    retry_failed: bool = False,
) -> StoredRun:
    """Run cells into a store; what it already holds is not run again.

    After Ctrl-C the finished cells stand in the store, the others are reported as interrupted, and the same call
    resumes. The cells are in the order of the report, the store is locked for the length of the run; ``suite``
    (resolved), ``profile`` and ``command`` are provenance. ``fresh`` runs all cells again, ``retry_failed`` those that
    failed.

    Raises:
        StoreError: another run holds the store.
    """
    with store.locked(), Interrupts() as interrupts, SystemMonitor() as monitor:
        run = _start_run(cells, suite, profile, command)
        held = {} if fresh else _held(cells, store, retry_failed)
        store.write_run(run)
        for observer in observers:
            observer.started(run, len(cells), sum(c.key in held for c in cells))
        try:
            for cell in cells:
                if cell.key in held:
                    _tell(observers, cell, held[cell.key], store, cached=True)
            twins = defaultdict(list)  # labels may share a cell, as two methods do that were tuned to the same step
            for cell in (c for c in cells if c.key not in held):
                twins[cell.key].append(cell)
            todo = [first for first, *_ in twins.values()]
            for cell in todo if fresh else ():
                store.forget(cell.key)
            with interrupts.suppressed():
                for cell, record, curve, samples, followed in _run(todo, executor, store, observers):
                    with interrupts.held_back():
                        store.write_cell(record, curve, samples, followed)
                        if record.status is not Status.TIMEOUT:  # which may go on with more time
                            store.forget(cell.key)
                        for twin in twins[cell.key]:
                            _tell(observers, twin, record, store, cached=False)
        finally:
            run.finished, run.system = _now(), monitor.rows
            store.write_run(run)
            for observer in observers:
                observer.ended(run)
    return StoredRun.load(store, run.id)


def _held(cells: Sequence[Cell], store: Store, retry_failed: bool) -> dict[str, CellRecord]:
    """Stored cells that answer the request, measured anew where their metrics are out of date."""
    held: dict[str, CellRecord] = {}
    for cell in cells:
        record = store.usable(cell.key)
        if record is None or cell.key in held or not is_final(record, retry_failed):
            continue
        if record.status is Status.OK and record.metrics_key != metrics_key(cell):
            samples = store.samples(cell.key)
            if samples is None or not can_remeasure(record):
                continue
            record, curve = remeasure(cell, record, store.curve(cell.key), samples)
            store.write_cell(record, curve, samples, store.trajectories(cell.key))
        held[cell.key] = record
    return held


def _tell(observers: Sequence[Observer], cell: Cell, record: CellRecord, store: Store, *, cached: bool) -> None:
    record = record.model_copy(update={"label": cell.label})
    for observer in observers:
        observer.finished(cell, record, store.folder(record.key), cached)


def _run(cells: Sequence[Cell], executor: Executor, store: Store, observers: Sequence[Observer]) -> Iterator[Finished]:
    """Finished cells as they come. Pairs that cannot run, or lack data, never reach the executor."""
    jobs: list[Job] = []
    pending: dict[str, _Pending] = {}
    for cell in cells:
        refusal = _refusal(cell)
        if refusal is not None:
            yield cell, make_record(cell, [Outcome(Job(cell, 0), None, *refusal)]), None, None, None
            continue
        state = pending[cell.key] = _Pending(cell)
        for i in range(len(cell.chunks)):
            job = Job(cell, i, None if any(cell.objects) else store.snapshot(cell.key, i))
            saved = store.finished_chunk(cell.key, i).load()
            result = unpack_result(cell, job.replicates, saved) if saved else None
            if result is None:
                jobs.append(job)
            else:
                state.outcomes[i] = Outcome(job, result)
        if state.complete:
            yield state.finished()

    def on_progress(progress: Progress) -> None:
        for observer in observers:
            observer.progress(progress)

    for outcome in executor.run(jobs, on_progress):
        state = pending[outcome.job.cell.key]
        state.outcomes[outcome.job.chunk] = outcome
        if state.complete:
            yield state.finished()
        elif outcome.result is not None and outcome.job.snapshot is not None:
            job, running = outcome.job, outcome.job.snapshot
            content = pack_result(job.cell, job.replicates, outcome.result)
            store.finished_chunk(job.cell.key, job.chunk).save(content)
            running.path.unlink(missing_ok=True)


def _refusal(cell: Cell) -> tuple[Status, str] | None:
    """Why a cell cannot run here, before any compute."""
    try:
        lacking = cell.missing_needs()
        if not lacking:
            cell.load()[0].target(cell.spec.replicates[:1], "cpu", torch.float32)  # data present and sound
    except DataMissingError as error:
        return Status.SKIPPED, str(error)
    except ParVIBenchError as error:
        return Status.CRASHED, str(error)
    except Exception as error:
        return Status.CRASHED, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    return (Status.UNSUPPORTED, lacking) if lacking else None


def _tables(outcomes: Sequence[Outcome]) -> tuple[pd.DataFrame | None, np.ndarray | None, Trajectories | None]:
    """Curve, samples and trajectories of all chunks together, or nothing when a chunk failed."""
    results = [o.result for o in outcomes if o.result is not None]
    if len(results) < len(outcomes):
        return None, None, None
    curve = pd.DataFrame([row for r in results for row in r.curve], columns=list(CURVE_COLUMNS))
    samples = [r.samples for r in results if r.samples is not None]
    followed = next((r.trajectories for r in results if r.trajectories), None)
    return curve, np.concatenate(samples) if len(samples) == len(results) else None, followed


def make_record(cell: Cell, outcomes: Sequence[Outcome]) -> CellRecord:
    """The record of a cell from the outcomes of its chunks, in chunk order."""
    failed = next((o for o in outcomes if o.result is None), None)
    results = [o.result for o in outcomes if o.result is not None]
    diverged = {k: v for r in results for k, v in r.diverged.items()}
    record = CellRecord(
        spec=cell.spec,
        label=cell.label,
        kind=cell.load()[1].kind,
        tuned=cell.tuned,
        flags=list(cell.notes),
        status=Status.OK,
        seconds=sum(r.seconds for r in results),
        hardware=hardware(cell.spec.device),
        created=_now(),
        metrics_key=metrics_key(cell),
    )
    if failed is not None:
        return record.model_copy(update={key: getattr(failed, key) for key in ("status", "reason", "traceback")})
    update = {
        "status": Status.DIVERGED if len(diverged) == cell.n_replicates else Status.OK,
        "reason": _divergence(diverged, cell.n_replicates),
        "n_diverged": len(diverged),
        "diverged": diverged,
        "effective_step": results[0].effective_step,
        "start": results[0].start,
        "flags": list(dict.fromkeys([*cell.notes, *(f for r in results for f in r.flags)])),
        "drift": max(r.drift for r in results),
        "process": results[0].process,
        **_merged(results),
    }
    return record.model_copy(update=update)


def _divergence(diverged: dict[int, int], replicates: int) -> str:
    if not diverged:
        return ""
    first = min(diverged.values())
    return f"{len(diverged)} of {replicates} replicates stopped being finite or blew up, the first by iteration {first}"


def _merged(results: Sequence[ChunkResult]) -> dict[str, Any]:
    """Costs and metric values over chunks."""
    overheads: dict[str, float] = defaultdict(float)
    for result in results:
        for name, seconds in result.overheads.items():
            overheads[name] += seconds
    absent = {metric: reason for r in reversed(results) for metric, reason in r.absent.items()}
    # A metric that does not apply to some replicates has no value for the cell.
    names = [m for m in dict.fromkeys(m for r in results for m in r.values) if m not in absent]
    return {
        "iterations": max(r.iterations for r in results),
        "score_evaluations": max(r.score_evaluations for r in results),
        "overheads": dict(overheads),
        "values": {m: [to_json_number(v) for r in results for v in r.values[m]] for m in names},
        "judged": {
            m: [to_json_number(v) for r in results for v in r.judged[m]] for m in names if m in results[0].judged
        },
        "absent": absent,
    }


def _start_run(cells: Sequence[Cell], suite: dict[str, Any], profile: str | None, command: str) -> RunRecord:
    device = cells[0].spec.device if cells else "cpu"
    return RunRecord(
        id=new_run_id(suite["name"]),
        suite=suite,
        profile=profile,
        cells=[RunCell(spec=c.spec, label=c.label) for c in cells],
        provenance=provenance(command, device, [c.task for c in cells]),
        started=_now(),
    )


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def make_executor(execution: Execution, device: str) -> Executor:
    """Worker processes; in this process for 0 workers or on a GPU; on a Ray cluster where one is named.

    On a cluster ``workers`` is the most jobs at a time, 0 for as many as it takes.

    Raises:
        InputError: a negative count or a limit that is not positive; Ray is not installed.
    """
    workers, timeout, memory = execution.workers, execution.timeout, execution.memory
    if workers is not None and workers < 0:
        raise InputError(f"--workers must be 0 (this process) or more, got {workers}")
    if timeout <= 0:
        raise InputError(f"--timeout must be positive, got {timeout:g} s")
    if memory is not None and memory <= 0:
        raise InputError(f"--memory must be positive, got {memory:g} MiB")
    if execution.ray is not None:
        from parvibench.harness.workers.cluster import Cluster

        gpus = execution.gpus if device == "cuda" else 0.0
        return Cluster(execution.ray, workers or 0, timeout, memory, gpus)
    processes = (os.cpu_count() or 1) if workers is None else workers
    return InProcess() if device == "cuda" or processes == 0 else Workers(processes, timeout, memory)


def resolve_device(name: str) -> str:
    """``cpu`` or ``cuda``; ``InputError`` where ``cuda`` is asked for and there is none."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device is auto, cpu or cuda, got {name!r}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise InputError("--device cuda: no CUDA device is available here; use --device cpu or auto")
    return "cuda" if available and name != "cpu" else "cpu"
