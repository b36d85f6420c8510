"""How long cells will take: from what they took before, or from two steps of each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from parvibench.core.errors import ParVIBenchError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell

from .run.trial import foresee


def predict(cells: Sequence[Cell], store: Store) -> list[float | None]:
    """Seconds of one process that each cell will take, on this machine; None where it cannot be predicted.

    A cell of the same task, method and shape in the store sets the pace (compute, metrics and warm-up for each
    iteration and replicate); otherwise two steps of one chunk are taken and timed, without metrics.
    """
    paces: dict[tuple[object, ...], list[float]] = {}
    for folder in sorted((store.root / "cells").glob("[!.]*")):
        record = store.usable(folder.name)
        if record is not None and record.status is Status.OK and record.iterations:
            whole = record.seconds + sum(record.overheads.values())
            paces.setdefault(_kind(record), []).append(whole / record.iterations / record.n_replicates)
    return [_seconds(cell, paces.get(_kind(cell))) for cell in cells]


def _kind(cell: Cell | CellRecord) -> tuple[object, ...]:
    spec = cell.spec
    return spec.task, spec.algorithm, spec.particles, spec.chunk, spec.device, spec.dtype


def _seconds(cell: Cell, paces: list[float] | None) -> float | None:
    try:
        iterations, seconds = foresee(cell)
    except (ParVIBenchError, RuntimeError, ValueError):
        return None
    if paces:
        return statistics.median(paces) * iterations * cell.n_replicates
    return seconds * iterations * len(cell.chunks)
