"""A run in three parts: results already in the store are read, the rest is computed and written, observers receive events."""

import datetime as dt
import math
import os
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch

from parvibench.core.errors import DataMissingError, InputError, ParVIBenchError
from parvibench.core.result import CellRecord, Status, to_json_number
from parvibench.harness.execution import Execution
from parvibench.harness.run.account import UNDEFINED
from parvibench.harness.run.chunks import ChunkResult, metrics_key, pack_result, unpack_result
from parvibench.harness.run.judging import remeasure
from parvibench.harness.store.environment import hardware, provenance
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import CURVE_COLUMNS, RunCell, RunRecord, Store, is_final, new_run_id
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import InProcess, News, OnProgress, Outcome
from parvibench.harness.workers.interrupts import Interrupts
from parvibench.harness.workers.jobs import ChunkJob, Ended
from parvibench.harness.workers.processes import Workers


class Executor(Protocol):
    """Runs chunks; outcomes come in any order, one for every job, with its number."""

    def run(self, jobs: Sequence[ChunkJob], on_progress: OnProgress) -> Iterator[tuple[int, Ended]]:
        """Outcomes as they come."""
        ...


class Observer(Protocol):
    """Receives the events of a run; the terminal display and the MLflow mirror are observers."""

    def started(self, run: RunRecord, total: int, cached: int) -> None:
        """The run begins: ``total`` cells, ``cached`` of them already in the store."""

    def progress(self, job: ChunkJob, news: News) -> None:
        """A checkpoint of a running job, with ``iteration``, ``share``, ``metric`` and ``value``."""

    def finished(self, cell: Cell, record: CellRecord, folder: Path, cached: bool) -> None:
        """A cell is in the store."""

    def ended(self, run: RunRecord) -> None:
        """The run is over (also after an interruption)."""


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    executor: Executor,
    *,
    suite: dict[str, Any],
    execution: Execution | None = None,
    command: str = "",
    observers: Sequence[Observer] = (),
) -> StoredRun:
    """Run cells into a store; what it already holds is not run again.

    After Ctrl-C the finished cells are in the store, the others are reported as interrupted, and the same call
    resumes. The cells are in the order of the report, the store is locked for the length of the run (``StoreError`` where
    another run holds it); ``suite`` (resolved), ``command`` and what ``execution`` changes of the profile are provenance.
    Of ``execution`` only ``profile``, ``fresh`` and ``retry_failed`` act here.
    """
    execution = execution or Execution()
    with store.locked(), Interrupts() as interrupts:
        facts = provenance(command, cells[0].spec.device if cells else "cpu", [c.task for c in cells])
        facts |= {"changed": execution.changed} if execution.changed else {}
        listed = [RunCell(spec=c.spec, label=c.label) for c in cells]
        run_id = new_run_id(suite["name"])
        new = {"id": run_id, "suite": suite, "profile": execution.profile, "cells": listed, "provenance": facts}
        run = store.last(RunRecord(**new, started=now()))
        # Cells with one key and several labels, such as two with equal tuned steps, run once and give one event each.
        by_key: dict[str, list[Cell]] = defaultdict(list)
        for cell in cells:
            by_key[cell.key].append(cell)
        first = {key: same[0] for key, same in by_key.items()}
        there = {} if execution.fresh else stored_cells(first.values(), store, execution.retry_failed)
        store.write_run(run)
        for observer in observers:
            observer.started(run, len(cells), sum(len(by_key[key]) for key in there))

        def tell(record: CellRecord, cached: bool = False) -> None:
            for cell in by_key[record.key]:
                labelled = record.model_copy(update={"label": cell.label})
                for observer in observers:
                    observer.finished(cell, labelled, store.folder(record.key), cached)

        def progress(job: ChunkJob, news: News) -> None:
            for observer in observers:
                observer.progress(job, news)

        try:
            for record in there.values():
                tell(record, cached=True)
            for key in first if execution.fresh else ():
                store.forget(key)
            with interrupts.suppressed():
                todo = [c for key, c in first.items() if key not in there]
                run_each(todo, executor, store, interrupts, tell, progress)
        finally:
            run.finished = now()
            store.write_run(run)
            for observer in observers:
                observer.ended(run)
    return StoredRun.load(store, run.id)


def make_executor(execution: Execution, device: str) -> Executor:
    """Worker processes; in this process for 0 workers; on a Ray cluster where one is named.

    A GPU has one worker at a time, so that a device assert, a hang or a lack of memory ends its chunk alone. On a cluster
    ``workers`` is the most jobs at a time, 0 for as many as it takes. ``InputError`` without Ray.
    """
    workers, timeout, memory = execution.workers, execution.timeout, execution.memory
    if execution.ray is not None:
        from parvibench.harness.workers.cluster import Cluster

        gpus = execution.gpus if device == "cuda" else 0.0
        return Cluster(execution.ray, workers or 0, timeout, memory, gpus)
    processes = (os.cpu_count() or 1) if workers is None else workers
    return Workers(1 if device == "cuda" else processes, timeout, memory) if processes else InProcess()


def resolve_device(name: str) -> str:
    """``cpu`` or ``cuda``; ``InputError`` where ``cuda`` is requested and not available."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise InputError("--device cuda: no CUDA device is available here; use --device cpu or auto")
    return "cuda" if available and name != "cpu" else "cpu"


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


def run_each(
    cells: Sequence[Cell], executor: Executor, store: Store, interrupts: Interrupts,
    tell: Callable[[CellRecord], None], progress: Callable[[ChunkJob, News], None],
) -> None:  # fmt: skip
    """Run cells, write each as it ends and ``tell`` it. Pairs that cannot run, or lack data, never reach the executor."""

    def write(cell: Cell, outcomes: dict[int, Ended]) -> None:
        record, *files = finished(cell, [outcomes[i] for i in sorted(outcomes)])
        with interrupts.held_back():
            store.write_cell(record, *files)
            if record.status is not Status.TIMEOUT:  # which may go on with more time
                store.forget(cell.key)
            tell(record)

    jobs: list[ChunkJob] = []
    ended: dict[str, dict[int, Ended]] = {}  #: outcomes by cell and chunk
    for cell in cells:
        if (refusal := why_not_run(cell)) is not None:
            write(cell, {0: Outcome(None, *refusal)})
            continue
        outcomes: dict[int, Ended] = {}
        for i, replicates in enumerate(cell.chunks):  # those that an interrupted run has finished
            content = store.finished_chunk(cell.key, i).load()
            if content and (result := unpack_result(cell, replicates, content)) is not None:
                outcomes[i] = Outcome(result)
        if missing := [i for i in range(len(cell.chunks)) if i not in outcomes]:
            ended[cell.key] = outcomes
            jobs += [ChunkJob(cell, i, None if any(cell.objects) else store.snapshot(cell.key, i)) for i in missing]
        else:
            write(cell, outcomes)

    for number, outcome in executor.run(jobs, lambda number, news: progress(jobs[number], news)):
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


def finished(cell: Cell, outcomes: Sequence[Outcome[ChunkResult]]) -> tuple[CellRecord, *tuple[Any, ...]]:
    """What ``Store.write_cell`` takes, from the outcomes of a cell's chunks in order; a record alone where one has failed."""
    results = [o.result for o in outcomes if o.result is not None]
    record = CellRecord(
        spec=cell.spec, label=cell.label, kind=cell.load()[1].kind, tuned=cell.tuned, flags=list(cell.notes),
        status=Status.OK, seconds=sum(r.seconds for r in results), hardware=hardware(cell.spec.device), created=now(),
        metrics_key=metrics_key(cell),
    )  # fmt: skip
    for failed in (o for o in outcomes if o.result is None):
        update = {key: getattr(failed, key) for key in ("status", "reason", "traceback")}
        return (record.model_copy(update=update),)
    curve = pd.DataFrame([row for r in results for row in r.curve], columns=list(CURVE_COLUMNS))
    samples = [r.samples for r in results if r.samples is not None]
    followed = next((r.trajectories for r in results if r.trajectories), None)
    whole = np.concatenate(samples) if len(samples) == len(results) else None
    return record.model_copy(update=_merged(cell, results)), curve, whole, followed


def now() -> str:
    """The time, to the second, in UTC."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _merged(cell: Cell, results: Sequence[ChunkResult]) -> dict[str, Any]:
    """Status, costs and metric values of all chunks together."""
    diverged = {k: v for r in results for k, v in r.diverged.items()}
    absent = {metric: reason for r in reversed(results) for metric, reason in r.absent.items()}
    stuck = _never_moved(results)
    flags = dict.fromkeys([*cell.notes, *(f for r in results for f in r.flags)])
    if at_rest := len(stuck - diverged.keys()):
        flags[f"{at_rest} of {cell.n_replicates} replicates never moved"] = None
    return {
        "status": Status.DIVERGED if len(diverged) == cell.n_replicates else Status.OK,
        "reason": _divergence(diverged, stuck, cell, defined=UNDEFINED not in flags),
        "n_diverged": len(diverged),
        "diverged": diverged,
        "effective_step": results[0].effective_step,
        "start": results[0].start,
        "flags": list(flags),
        "drift": max(r.drift for r in results),
        "process": results[0].process,
        "iterations": max(r.iterations for r in results),
        "score_evaluations": max(r.score_evaluations for r in results),
        "overheads": {k: sum(r.overheads.get(k, 0.0) for r in results) for r in results for k in r.overheads},
        "values": _of_metrics(cell, [r.values for r in results], absent),
        "judged": _of_metrics(cell, [r.judged for r in results], absent),
        "absent": absent,
    }


def _of_metrics(
    cell: Cell, chunks: Sequence[Mapping[str, list[float]]], absent: Collection[str]
) -> dict[str, list[float | None]]:
    """Values of every replicate by metric, null where its chunk's budget ended too early; none of a metric in ``absent``."""
    names = [m for m in dict.fromkeys(m for values in chunks for m in values) if m not in absent]
    pairs = list(zip(cell.chunks, chunks, strict=True))
    return {m: [to_json_number(v) for ids, of in pairs for v in of.get(m, [math.nan] * len(ids))] for m in names}


def _never_moved(results: Sequence[ChunkResult]) -> set[int]:
    """Ids of the replicates that accepted no step, and were at rest at the end where that is measured."""
    seen: dict[int, dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
    for replicate, *_, metric, value in (row for r in results for row in r.curve):
        seen[replicate][metric].add(value)
    return {r for r, of in seen.items() if of["acceptance"] == {0.0} and of["displacement"] <= {0.0}}


_EARLY = ": {} is too large for the scale of the target at the start (a smaller step_size, or standardised coordinates)"
_FIRST_STEPS = 64  # a state is inspected that often at least


def _divergence(diverged: dict[int, int], stuck: set[int], cell: Cell, *, defined: bool) -> str:
    """How replicates were lost; one that never moved can be as far off as others that blew up.

    A density that is not ``defined`` everywhere says nothing about the step size.
    """
    moved = {r: iteration for r, iteration in diverged.items() if r not in stuck}
    step, replicates = cell.settings.get("step_size"), cell.n_replicates
    size = f"step_size {step:g}" if isinstance(step, float) else "the step size"
    reasons = []
    if moved:
        first = min(moved.values())
        early = _EARLY.format(size) if first <= _FIRST_STEPS and defined else ""
        lost = f"{len(moved)} of {replicates} replicates stopped being finite or blew up"
        reasons.append(f"{lost}, the first by iteration {first}{early}")
    if at_rest := len(diverged) - len(moved):
        reasons.append(f"{at_rest} of {replicates} replicates never moved from a start that is far off")
    return "; ".join(reasons)
