"""The first two parts of a run: what the store has already; the other cells are run, and written as they end."""

import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import torch

from parvibench.core.errors import DataMissingError, ParVIBenchError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.chunks import metrics_key, pack_result, unpack_result
from parvibench.harness.run.judging import remeasure
from parvibench.harness.store.store import Store, is_final
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import News, OnProgress, Outcome, Progress
from parvibench.harness.workers.interrupts import Interrupts
from parvibench.harness.workers.jobs import ChunkJob, Ended

from .observers import Observers
from .records import finished


class Executor(Protocol):
    """Runs chunks; outcomes come in any order, one for every job, with its number."""

    def run(self, jobs: Sequence[ChunkJob], on_progress: OnProgress) -> Iterator[tuple[int, Ended]]:
        """Outcomes as they come."""
        ...


def stored_cells(cells: Iterable[Cell], store: Store, retry_failed: bool) -> dict[str, CellRecord]:
    """Stored cells that answer the request, by key, measured again where their metrics are out of date."""
    found: dict[str, CellRecord] = {}
    for cell in cells:
        record = store.usable(cell.key)
        if record is None or not is_final(record, retry_failed):
            continue
        if record.status is Status.OK and record.metrics_key != metrics_key(cell):
            samples = store.samples(cell.key)
            # An anchor's samples may be rows of the reference, so it is drawn again.
            if samples is None or not record.values or record.kind == "anchor":
                continue
            record, curve = remeasure(cell, record, store.curve(cell.key), samples)
            store.write_cell(record, curve, samples, store.trajectories(cell.key))
        found[cell.key] = record
    return found


def stored_chunks(cell: Cell, store: Store) -> dict[int, Ended]:
    """The chunks of a cell that an interrupted run has finished, by number."""
    saved = {i: store.finished_chunk(cell.key, i).load() for i in range(len(cell.chunks))}
    found = {i: unpack_result(cell, cell.chunks[i], content) for i, content in saved.items() if content}
    return {i: Outcome(result) for i, result in found.items() if result is not None}


def run_each(
    cells: Sequence[Cell], executor: Executor, store: Store, observers: Observers, interrupts: Interrupts
) -> None:
    """Run cells and write each as it ends. Pairs that cannot run, or lack data, never reach the executor."""

    def write(cell: Cell, outcomes: dict[int, Ended]) -> None:
        record, *files = finished(cell, [outcomes[i] for i in sorted(outcomes)])
        with interrupts.held_back():
            store.write_cell(record, *files)
            if record.status is not Status.TIMEOUT:  # which may go on with more time
                store.forget(cell.key)
            observers.finished(record, cached=False)

    jobs: list[ChunkJob] = []
    ended: dict[str, dict[int, Ended]] = {}  #: outcomes by cell and chunk
    for cell in cells:
        refusal = why_not_run(cell)
        outcomes = stored_chunks(cell, store) if refusal is None else {0: Outcome(None, *refusal)}
        missing = [] if refusal is not None else [i for i in range(len(cell.chunks)) if i not in outcomes]
        if missing:
            ended[cell.key] = outcomes
            jobs += [ChunkJob(cell, i, None if any(cell.objects) else store.snapshot(cell.key, i)) for i in missing]
        else:
            write(cell, outcomes)

    def on_progress(number: int, news: News) -> None:
        for observer in observers.observers:
            observer.progress(Progress(jobs[number], news))

    for number, outcome in executor.run(jobs, on_progress):
        job = jobs[number]
        outcomes = ended[job.cell.key]
        outcomes[job.chunk] = outcome
        if len(outcomes) == len(job.cell.chunks):
            write(job.cell, ended.pop(job.cell.key))
        elif outcome.result is not None and job.snapshot is not None:
            content = pack_result(job.cell, job.replicates, outcome.result)
            store.finished_chunk(job.cell.key, job.chunk).save(content)
            job.snapshot.path.unlink(missing_ok=True)


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
