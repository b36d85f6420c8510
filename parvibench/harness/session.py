"""A run in three parts: results already in the store are read, the rest is computed and written, observers receive events."""

import os
from collections.abc import Sequence
from typing import Any

import torch

from parvibench.core.errors import InputError
from parvibench.harness.execution import Execution
from parvibench.harness.store.environment import provenance
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import RunCell, RunRecord, Store, new_run_id
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import InProcess
from parvibench.harness.workers.interrupts import Interrupts
from parvibench.harness.workers.processes import Workers

from .cell_runs import Executor as Executor
from .cell_runs import run_each, stored_cells
from .observers import Observer as Observer
from .observers import Observers
from .records import now


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
    resumes. The cells are in the order of the report, the store is locked for the length of the run (``StoreError`` where
    another run holds it); ``suite`` (resolved), ``profile``, ``command`` and what options ``changed`` of the profile are
    provenance. ``fresh`` runs all cells again, ``retry_failed`` those that failed.
    """
    with store.locked(), Interrupts() as interrupts:
        facts = provenance(command, cells[0].spec.device if cells else "cpu", [c.task for c in cells])
        facts |= {"changed": list(changed)} if changed else {}
        listed = [RunCell(spec=c.spec, label=c.label) for c in cells]
        run_id = new_run_id(suite["name"])
        run = store.last(
            RunRecord(id=run_id, suite=suite, profile=profile, cells=listed, provenance=facts, started=now())
        )
        told = Observers(observers, cells, store)
        first = {key: same[0] for key, same in told.cells.items()}
        there = {} if fresh else stored_cells(first.values(), store, retry_failed)
        store.write_run(run)
        for observer in observers:
            observer.started(run, len(cells), sum(len(told.cells[key]) for key in there))
        try:
            for record in there.values():
                told.finished(record, cached=True)
            for key in first if fresh else ():
                store.forget(key)
            with interrupts.suppressed():
                run_each([c for key, c in first.items() if key not in there], executor, store, told, interrupts)
        finally:
            run.finished = now()
            store.write_run(run)
            for observer in observers:
                observer.ended(run)
    return StoredRun.load(store, run.id)


def make_executor(execution: Execution, device: str) -> Executor:
    """Worker processes; in this process for 0 workers; on a Ray cluster where one is named.

    A GPU has one worker at a time, so that a device assert, a hang or a lack of memory ends its chunk alone. On a cluster
    ``workers`` is the most jobs at a time, 0 for as many as it takes. ``InputError`` for a limit that is none, or without Ray.
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
