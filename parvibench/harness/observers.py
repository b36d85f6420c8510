"""The last part of a run: observers receive an event for every cell that is in the store."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from parvibench.core.result import CellRecord
from parvibench.harness.store.store import RunRecord, Store
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import Progress


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


class Observers:
    """The observers of a run; cells with one key and several labels, such as two with equal tuned steps, give one event each."""

    def __init__(self, observers: Sequence[Observer], cells: Sequence[Cell], store: Store) -> None:
        self.observers, self._store = observers, store
        self.cells: dict[str, list[Cell]] = defaultdict(list)  #: by key
        for cell in cells:
            self.cells[cell.key].append(cell)

    def finished(self, record: CellRecord, *, cached: bool) -> None:
        """The cells of this record are in the store."""
        for cell in self.cells[record.key]:
            labelled = record.model_copy(update={"label": cell.label})
            for observer in self.observers:
                observer.finished(cell, labelled, self._store.folder(record.key), cached)
