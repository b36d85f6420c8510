"""The MLflow mirror as an observer of runs, and the catching up of runs that were not mirrored."""

from __future__ import annotations

from pathlib import Path

from parvibench.core.result import CellRecord
from parvibench.tracking import Mirror

from .cells import Cell
from .executors import Progress
from .results import Results
from .store import RunRecord, Store


class MirrorObserver:
    """Hands every cell to the mirror as it ends.

    Args:
        root: the store's folder.
    """

    def __init__(self, root: Path) -> None:
        self._mirror = Mirror(root)
        self._run_id = ""

    def started(self, run: RunRecord, total: int, cached: int) -> None:
        """Mirror the suite run."""
        self._run_id = run.id
        self._mirror.start_run(run.model_dump(mode="json"))

    def progress(self, progress: Progress) -> None:
        """Checkpoints of running jobs are mirrored with their cell."""

    def finished(self, cell: Cell, record: CellRecord, folder: Path, cached: bool) -> None:
        """Mirror a cell (a cell found in the store is linked, not doubled)."""
        self._mirror.cell(self._run_id, record.model_copy(update={"label": cell.label}), folder)

    def ended(self, run: RunRecord) -> None:
        """Nothing: the queue is drained by ``close``."""

    def close(self, timeout: float = 60.0) -> str:
        """Wait for the mirror; a warning when something was not delivered."""
        return self._mirror.close(timeout)


def sync(store: Store, timeout: float = 600.0) -> str:
    """Mirror all runs of a store that MLflow does not hold yet.

    Returns:
        A warning when something was not delivered, or an empty string.
    """
    mirror = Mirror(store.root)
    for run_id in store.runs():
        results = Results.load(store, run_id)
        mirror.start_run(results.run.model_dump(mode="json"))
        for record in results.cells:
            mirror.cell(run_id, record, store.folder(record.key))
    return mirror.close(timeout)
