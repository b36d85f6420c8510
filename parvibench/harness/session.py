"""A run: expand the suite, skip what the store holds, run the rest, write every cell as it ends."""

import os
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psutil
import torch

from parvibench.core.errors import DataMissingError, InputError, ParVIBenchError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.execution import Execution
from parvibench.harness.run.chunks import metrics_key, pack_result, unpack_result
from parvibench.harness.run.judging import remeasure
from parvibench.harness.store.environment import provenance
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import RunCell, RunRecord, Store, is_final, new_run_id
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import InProcess, News, OnProgress, Outcome, Progress
from parvibench.harness.workers.interrupts import Interrupts
from parvibench.harness.workers.jobs import ChunkJob, Ended
from parvibench.harness.workers.processes import Workers

from .records import Finished, finished, now

#: Seconds between two looks at the machine at first, and most looks that are stored.
_EVERY_S, _MAX_ROWS = 5.0, 500


class Observer(Protocol):
    """Receives the events of a run; the terminal display and the MLflow mirror are observers."""

    def started(self, run: RunRecord, total: int, cached: int) -> None:
        """The run begins: ``total`` cells, ``cached`` of them already in the store."""

    def progress(self, progress: Progress) -> None:
        """A checkpoint of a running job."""

    def finished(self, cell: Cell, record: CellRecord, folder: Path, cached: bool) -> None:
        """A cell is in the store."""

    def ended(self, run: RunRecord) -> None:
        """The run is over (also after an interruption)."""


class Executor(Protocol):
    """Runs chunks; outcomes come in any order, one for every job, with its number."""

    def run(self, jobs: Sequence[ChunkJob], on_progress: OnProgress) -> Iterator[tuple[int, Ended]]:
        """Outcomes as they come."""
        ...


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    executor: Executor,
    *,
    suite: dict[str, Any],
    profile: str | None = None,
    command: str = "",
    changed: Sequence[str] = (),
    observers: Sequence[Observer] = (),
    fresh: bool = False,
    retry_failed: bool = False,
) -> StoredRun:
    """Run cells into a store; what it already holds is not run again.

    After Ctrl-C the finished cells are in the store, the others are reported as interrupted, and the same call
    resumes. The cells are in the order of the report, the store is locked for the length of the run; ``suite``
    (resolved), ``profile``, ``command`` and what options ``changed`` of the profile are provenance. ``fresh`` runs all cells again, ``retry_failed`` those that
    failed.

    Raises:
        StoreError: another run holds the store.
    """
    with store.locked(), Interrupts() as interrupts, _watched_machine() as system:
        run = store.last(_start_run(cells, suite, profile, command, changed))
        held = {} if fresh else _held(cells, store, retry_failed)
        twins: dict[str, list[Cell]] = defaultdict(list)  # labels may share a cell, as two that were tuned alike do
        for cell in cells:
            twins[cell.key].append(cell)
        todo = [same[0] for key, same in twins.items() if key not in held]
        store.write_run(run)
        for observer in observers:
            observer.started(run, len(cells), sum(c.key in held for c in cells))
        try:
            for cell in cells:
                if cell.key in held:
                    _tell(observers, cell, held[cell.key], store, cached=True)
            for cell in todo if fresh else ():
                store.forget(cell.key)
            with interrupts.suppressed():
                for done in _run(todo, executor, store, observers):
                    with interrupts.held_back():
                        store.write_cell(*done)
                        if done.record.status is not Status.TIMEOUT:  # which may go on with more time
                            store.forget(done.record.key)
                        for twin in twins[done.record.key]:
                            _tell(observers, twin, done.record, store, cached=False)
        finally:
            run.finished, run.system = now(), system
            store.write_run(run)
            for observer in observers:
                observer.ended(run)
    return StoredRun.load(store, run.id)


def _held(cells: Sequence[Cell], store: Store, retry_failed: bool) -> dict[str, CellRecord]:
    """Stored cells that answer the request, measured again where their metrics are out of date."""
    held: dict[str, CellRecord] = {}
    for cell in cells:
        record = store.usable(cell.key)
        if record is None or cell.key in held or not is_final(record, retry_failed):
            continue
        if record.status is Status.OK and record.metrics_key != metrics_key(cell):
            samples = store.samples(cell.key)
            # An anchor's samples may be rows of the reference, so it is drawn again.
            if samples is None or not record.values or record.kind == "anchor":
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
    """Cells as they end. Pairs that cannot run, or lack data, never reach the executor."""
    jobs: list[ChunkJob] = []
    ended: dict[str, dict[int, Ended]] = {}  #: outcomes by cell and chunk
    for cell in cells:
        refusal = why_not_run(cell)
        outcomes = _saved(cell, store) if refusal is None else {0: Outcome(None, *refusal)}
        missing = [] if refusal is not None else [i for i in range(len(cell.chunks)) if i not in outcomes]
        if not missing:
            yield _whole(cell, outcomes)
            continue
        ended[cell.key] = outcomes
        jobs += [ChunkJob(cell, i, None if any(cell.objects) else store.snapshot(cell.key, i)) for i in missing]

    def on_progress(number: int, news: News) -> None:
        for observer in observers:
            observer.progress(Progress(jobs[number], news))

    for number, outcome in executor.run(jobs, on_progress):
        job = jobs[number]
        outcomes = ended[job.cell.key]
        outcomes[job.chunk] = outcome
        if len(outcomes) == len(job.cell.chunks):
            yield _whole(job.cell, ended.pop(job.cell.key))
        elif outcome.result is not None and job.snapshot is not None:
            content = pack_result(job.cell, job.replicates, outcome.result)
            store.finished_chunk(job.cell.key, job.chunk).save(content)
            job.snapshot.path.unlink(missing_ok=True)


def _saved(cell: Cell, store: Store) -> dict[int, Ended]:
    """The chunks that an interrupted run has finished."""
    saved = {i: store.finished_chunk(cell.key, i).load() for i in range(len(cell.chunks))}
    found = {i: unpack_result(cell, cell.chunks[i], content) for i, content in saved.items() if content}
    return {i: Outcome(result) for i, result in found.items() if result is not None}


def _whole(cell: Cell, outcomes: dict[int, Ended]) -> Finished:
    return finished(cell, [outcomes[i] for i in sorted(outcomes)])


def why_not_run(cell: Cell) -> tuple[Status, str] | None:
    """Status and reason of a cell that cannot run here, before any compute; else None."""
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


def _start_run(
    cells: Sequence[Cell], suite: dict[str, Any], profile: str | None, command: str, changed: Sequence[str]
) -> RunRecord:
    device = cells[0].spec.device if cells else "cpu"
    return RunRecord(
        id=new_run_id(suite["name"]),
        suite=suite,
        profile=profile,
        cells=[RunCell(spec=c.spec, label=c.label) for c in cells],
        provenance=provenance(command, device, [c.task for c in cells])
        | ({"changed": list(changed)} if changed else {}),
        started=now(),
    )


def make_executor(execution: Execution, device: str) -> Executor:
    """Worker processes; in this process for 0 workers; on a Ray cluster where one is named.

    A GPU has one worker at a time, so that a device assert, a hang or a lack of memory ends its chunk alone. On a cluster ``workers`` is the most jobs at a time, 0 for as many as it takes.

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
    return Workers(1 if device == "cuda" else processes, timeout, memory) if processes else InProcess()


def resolve_device(name: str) -> str:
    """``cpu`` or ``cuda``; ``InputError`` where ``cuda`` is requested and not available."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device is auto, cpu or cuda, got {name!r}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise InputError("--device cuda: no CUDA device is available here; use --device cpu or auto")
    return "cuda" if available and name != "cpu" else "cpu"


@contextmanager
def _watched_machine() -> Iterator[list[dict[str, float]]]:
    """Load and memory of the machine, row by row from a thread of its own; thinned on long runs.

    A row has ``seconds`` since the start, ``cpu_percent``, ``memory_mib`` in use, ``disk_write_mib`` since the start.
    """
    rows: list[dict[str, float]] = []
    ended = threading.Event()

    def watch() -> None:
        start, every = time.monotonic(), _EVERY_S
        psutil.cpu_percent()
        written = _written_mib()
        while not ended.wait(every):
            rows.append(
                {
                    "seconds": round(time.monotonic() - start, 1),
                    "cpu_percent": psutil.cpu_percent(),
                    "memory_mib": round(psutil.virtual_memory().used / 2**20),
                    "disk_write_mib": round(_written_mib() - written, 1),
                }
            )
            if len(rows) >= _MAX_ROWS:
                del rows[::2]
                every *= 2

    threading.Thread(target=watch, name="parvibench-system", daemon=True).start()
    try:
        yield rows
    finally:
        ended.set()


def _written_mib() -> float:
    counters = psutil.disk_io_counters()
    return counters.write_bytes / 2**20 if counters else 0.0
