"""The MLflow mirror as an observer of runs; later mirroring of runs that MLflow lacks; rebuilding a store."""

import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from parvibench.core.errors import StoreError
from parvibench.core.result import CellRecord
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.secrets import shown_address
from parvibench.harness.store.store import RunRecord, Store
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import Progress

from . import CELL_FILES, Archive, Mirror
from .content import Ranking as Ranking
from .mirror import replay


class MirrorObserver(Mirror):
    """A mirror that gets a run's cells as they end; arguments as of ``Mirror``."""

    def started(self, run: RunRecord, total: int, cached: int) -> None:
        """Mirror the suite run."""
        self._run_id = run.id
        self.start_run(run.model_dump(mode="json"))

    def progress(self, progress: Progress) -> None:
        """Checkpoints of running jobs are mirrored with their cell."""

    def finished(self, cell: Cell, record: CellRecord, folder: Path, cached: bool) -> None:
        """Mirror a cell (a cell found in the store is linked, not doubled)."""
        self.cell(self._run_id, record.model_copy(update={"label": cell.label}), folder)

    def ended(self, run: RunRecord) -> None:
        """Mirror what is known at the end; the queue is drained by ``close``."""
        self.end_run(run.model_dump(mode="json"))

    def close(self, timeout: float = 60.0) -> str:
        """Wait for delivery; a warning when something was not delivered, or a broken database was set aside."""
        return "\n".join(filter(None, (super().close(timeout), self.notice)))


def sync(
    store: Store,
    timeout: float = 600.0,
    tell: Callable[[str], None] = warnings.warn,
    rank: Callable[[StoredRun], Ranking] | None = None,
) -> str:
    """Mirror all runs of a store that MLflow does not hold yet.

    Args:
        store: its damaged runs are left out.
        timeout: seconds to wait for MLflow.
        tell: told when a broken database was set aside.
        rank: the leaderboard of a run.

    Returns:
        A warning when something was not delivered, or an empty string.
    """
    mirror = Mirror(store.root)
    replay(store, mirror, rank=rank)
    warning = mirror.close(timeout)
    if mirror.notice:
        tell(mirror.notice)
    return warning


def rebuild(uri: str, into: Store, run_id: str | None = None) -> RunRecord:
    """Fetch a run and its cells from an MLflow server into a store; a cell the store holds is kept.

    Args:
        uri: of the server or database that holds a mirror.
        into: made if it is not there.
        run_id: of the run; the latest finished one by default.

    Returns:
        The run.

    Raises:
        StoreError: the server cannot be reached, or what it holds is damaged or too large.
    """
    archive = Archive(uri)
    with tempfile.TemporaryDirectory(prefix="parvibench-rebuild-") as name, into.locked():
        fetched = Store(name)
        document, where = archive.fetch_run(run_id, fetched.root)
        try:
            run = RunRecord.model_validate(document)
        except ValidationError as error:
            problems = f"no run record there ({error.error_count()} problems)"
            raise StoreError(f"{shown_address(uri)}: {problems}") from None
        for cell in run.cells:
            if into.usable(cell.key) is not None or cell.key not in where:
                continue
            folder = fetched.folder(cell.key)
            folder.mkdir(parents=True)
            archive.fetch(where[cell.key], CELL_FILES, folder)
            record = fetched.find(cell.key)
            if record is not None and record.key == cell.key:
                curve = fetched.curve(cell.key)
                into.write_cell(record, curve if len(curve) else None, fetched.samples(cell.key))
            shutil.rmtree(folder)
        into.write_run(run)
    return run
