"""How long cells will take: from what they took before, or from a few steps of each and from its metrics."""

import multiprocessing as mp
import os
import random
import statistics
import time
from collections.abc import Sequence
from itertools import zip_longest

import psutil
import torch

from parvibench.core.algorithm import Algorithm
from parvibench.core.budget import MAX_CHECKPOINTS
from parvibench.core.errors import ParVIBenchError
from parvibench.core.metric import Cost
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell
from parvibench.metrics.compute import compute_guarded

from .run.chunks import Chunk
from .run.clock import one_thread
from .run.judging import context_maker
from .run.recorder import kept_states
from .run.stepping import Trial
from .workers.executors import Job, Notify
from .workers.processes import Workers

#: Settings that count steps before a method's own, which cost a fraction of these.
_BEFORE = ("pretraining", "critic_pretraining")
#: Seconds of measuring after which further cells get no forecast.
_MOST_S = 20.0


def predict(cells: Sequence[Cell], store: Store) -> list[float | None]:
    """Seconds of one process that each cell will take, on this machine; None where it cannot be predicted.

    A cell of the same task, method and shape in the store sets the pace (compute, metrics and warm-up for each
    iteration and replicate); otherwise a few steps of one chunk are taken, and one replicate's initial points are
    measured, in processor time. After ``_MOST_S`` seconds the other cells are not predicted: each
    method's first task of a random order comes before any second one.
    """
    paces: dict[tuple[object, ...], list[float]] = {}
    for folder in sorted((store.root / "cells").glob("[!.]*")):
        record = store.usable(folder.name)
        if record is not None and record.status is Status.OK and record.iterations:
            whole = record.seconds + sum(record.overheads.values())
            paces.setdefault(_kind(record), []).append(whole / record.iterations / record.n_replicates)
    measured: dict[tuple[object, ...], float] = {}
    until = time.monotonic() + _MOST_S
    found: list[float | None] = [None] * len(cells)
    by_method: dict[str, list[int]] = {}
    for i in random.Random(0).sample(range(len(cells)), len(cells)):
        by_method.setdefault(cells[i].label, []).append(i)
    for i in (i for turn in zip_longest(*by_method.values()) for i in turn if i is not None):
        if time.monotonic() < until:
            found[i] = _seconds(cells[i], paces.get(_kind(cells[i])), measured)
    return found


def starting(chunks: int, workers: int) -> float:
    """Seconds that workers need before they run so many chunks: imports of the fork server, and a process for each chunk."""
    ((_, outcome),) = Workers(1, 300.0).run([_Start()], lambda job, news: None)
    server, process = outcome.result or (0.0, 0.0)
    return server + process * chunks / workers


class _Start(Job[tuple[float, float]]):
    """Processor time, s, that the fork server has taken, and its process for this job."""

    def run(self, notify: Notify) -> tuple[float, float]:
        """Both; 0 for the server where there is none."""
        driver, server = mp.parent_process(), psutil.Process(os.getppid())
        shared = 0.0 if driver is None or driver.pid == server.pid else sum(server.cpu_times()[:2])
        return shared, time.process_time()


def _kind(cell: Cell | CellRecord) -> tuple[object, ...]:
    spec = cell.spec
    return spec.task, spec.algorithm, spec.particles, spec.chunk, spec.device, spec.dtype


def _seconds(cell: Cell, paces: list[float] | None, measured: dict[tuple[object, ...], float]) -> float | None:
    try:
        trial = foresee(cell)
        iterations = 0 if trial is None else trial.horizon
        if paces:
            return statistics.median(paces) * iterations * cell.n_replicates
        steps = 0.0 if trial is None else (trial.setup + trial.pace * iterations) * len(cell.chunks)
        path = 0
        if trial is not None and cell.load()[1].kind == "chains":  # states of each chain, to the next power of two
            path = 1 << max(2, kept_states(cell.spec, iterations, cell.load()[0].dim).bit_length())
        shape = (cell.samples, cell.particles if path else 0, path, len(cell.spec.checkpoints))
        key = (cell.task, cell.metrics, *shape)
        if key not in measured:
            measured[key] = _measuring(cell, path)
    except (ParVIBenchError, RuntimeError, ValueError):
        return None
    return steps + measured[key] * cell.n_replicates


def foresee(cell: Cell) -> Trial | None:
    """What a cell's budget allows and what it takes on one thread; None for anchors, errors as of a run."""
    chunk = Chunk.of(cell, cell.chunks[0])
    if not isinstance(chunk.method, Algorithm):
        return None
    none = {name: 0 for name in _BEFORE if name in type(chunk.settings).model_fields}
    chunk = chunk._replace(settings=chunk.settings.model_copy(update=none))
    with one_thread():
        return Trial(chunk, forecast=True)


def _measuring(cell: Cell, path: int) -> float:
    """Seconds of all checkpoints of one replicate: of initial points, and for chains of a path of noise around them."""
    ids = cell.spec.replicates[:1]
    chunk = Chunk.of(cell, ids)
    samples = chunk.problem(None).init(cell.samples).cpu().double()
    noise = samples[:, : cell.particles][:, None] + 0.1 * torch.randn(1, max(path, 1), 1, samples.shape[2])
    context = context_maker(chunk.task, ids, cell.metrics)(cost=Cost(1, 1.0, 1.0), path=noise if path else None)
    with one_thread():
        compute_guarded(cell.metrics, samples, context, "every")  # once for what is computed once
        start = time.process_time()
        compute_guarded(cell.metrics, samples, context, "every")
        middle = time.process_time()
        compute_guarded(cell.metrics, samples, context, "last")
        earlier = len(cell.spec.checkpoints) or MAX_CHECKPOINTS - 1
        return earlier * (middle - start) + time.process_time() - middle
