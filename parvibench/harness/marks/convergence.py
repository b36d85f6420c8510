"""How far a cell has come, in one word."""

from __future__ import annotations

from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun

from .improving import still_improving
from .transient import transient

#: Words for a cell that is not finished: no cell of these is the best of a task.
UNFINISHED = ("transient", "still improving")


def convergence(results: StoredRun, cell: CellRecord, metric: str) -> str:
    """``transient``, ``still improving``, ``converged`` (chains), ``flat`` (particles and generators) or ``unknown``.

    Empty for anchors and for cells without a result; ``metric`` ranks the task. Chains that are not transient must be
    flat as well.
    """
    if cell.status is not Status.OK or cell.kind == "anchor":
        return ""
    on_the_way = transient(cell) if cell.kind == "chains" or "rhat" in cell.values else False
    if on_the_way:
        return "transient"
    improving = still_improving(results.curve(cell), metric)
    if improving:
        return "still improving"
    if improving is None or on_the_way is None:
        return "unknown"
    return finished(cell)


def finished(cell: CellRecord) -> str:
    """The word for a cell that more budget would not help."""
    return "converged" if cell.kind == "chains" else "flat"
