"""The MLflow mirror: every run and cell of a store, as an observer of runs or later, to browse and compare in MLflow.

The store is the truth; the mirror is a copy that may lag behind, be away, or be made later::

    experiment parvibench/<suite>
      run <suite> <profile>, <start>   one per suite run, provenance as params; its note: the leaderboard
        suite.yaml run.json cells.json report/   cells.json: every requested cell -> its MLflow run
        metrics  solved, and over the tasks solved/<label>, floor_ratio/<label>, average_rank/<label>
        run <task> / <label>           one per cell, what it was run with as params; its note: one sentence
          metrics    <metric>          median over replicates, step = iteration (0: measured at the end alone)
                     floor, floor_ratio, step_size, system/<metric>   the last: seconds and other costs
          artifacts  cell.json curve.parquet samples.npz traceback.txt

MLflow draws a chart for each metric: a cell has at most twelve besides its costs. Values that are not finite are left out
(MLflow would store infinity as 1.8e308). A point lies as many seconds after the start as its checkpoint had cost.

A cell belongs to the run that first mirrored it. Later runs that reuse it link to it in their ``cells.json``; only another
outcome (a retried failure, recomputed metrics) takes its place.
"""

import contextlib
import importlib
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import filelock

from parvibench.core.errors import DamagedError
from parvibench.core.result import CellRecord
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.secrets import of_address, shown_address
from parvibench.harness.store.store import RunRecord, Store
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import News
from parvibench.harness.workers.jobs import ChunkJob

from . import database
from .content import Ranking as Ranking
from .writer import BATCH, Writer

_GIVE_UP_AFTER = 2
_WAITS = 10  #: times the timeout that is waited while records are delivered

_Job = Callable[[Writer], None]


class MirrorObserver:
    """Copies runs and cells to MLflow as they end, from a thread of its own; never raises, never delays a cell.

    ``uri`` is by default ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the store's folder ``root``.
    """

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.root = root.resolve()
        self.uri = uri or database.default_uri(self.root)
        file = database.file_of(self.uri)
        self._own = file is not None and file.resolve() == self.root / "mlflow.db"
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._total = self._done = 0
        self._error = ""
        self._hurry = threading.Event()
        # Of two mirrors of a store at a time each would write the cells that it does not find.
        read_only = self.root.exists() and not os.access(self.root, os.W_OK)
        self._alone = contextlib.nullcontext() if read_only else filelock.FileLock(self.root / ".mirror.lock")
        for package in ("pandas", "requests"):  # which this thread needs as well: not while the other imports MLflow
            importlib.import_module(package)
        self._thread = threading.Thread(target=self._work, name="parvibench-mlflow", daemon=True)
        self._thread.start()

    def started(self, run: RunRecord, total: int = 0, cached: int = 0) -> None:
        """Mirror a suite run as the parent of its cells."""
        self._run_id, document = run.id, run.model_dump(mode="json")
        self._put(lambda writer: writer.start_run(document))

    def progress(self, job: ChunkJob, news: News) -> None:
        """Checkpoints of running jobs are mirrored with their cell."""

    def finished(self, cell: Cell | None, record: CellRecord, folder: Path, cached: bool) -> None:
        """Mirror a cell of the run that was started last, with its files in ``folder``; one of the store is linked, not doubled."""
        run_id = self._run_id
        self._put(lambda writer: writer.cell(run_id, record, folder))

    def ended(self, run: RunRecord) -> None:
        """Add the end of a run; the queue is drained by ``close``."""
        document = run.model_dump(mode="json")
        self._put(lambda writer: writer.end_run(document))

    def report(self, run_id: str, folder: Path) -> None:
        """Add the files of a run's report."""
        self._put(lambda writer: writer.report(run_id, folder))

    def rank(self, run_id: str, ranking: Ranking) -> None:
        """Set the leaderboard that MLflow shows above a run, and its numbers of the run's cells."""
        self._put(lambda writer: writer.note(run_id, ranking))
        names = list(ranking.cells)
        for i in range(0, len(names), BATCH["tags"]):
            part = {name: ranking.cells[name] for name in names[i : i + BATCH["tags"]]}
            self._put(lambda writer, part=part: writer.rank(run_id, part))  # type: ignore[misc]

    def close(self, timeout: float = 60.0) -> str:
        """Deliver what is queued, within ``timeout`` s each and ten times that in all; a warning of what was lost, or nothing."""
        self._queue.put(None)
        now = last = time.monotonic()
        end, done = now + _WAITS * timeout, self._done
        while self._thread.is_alive() and now < min(end, last + timeout):
            self._thread.join(0.1)
            now = time.monotonic()
            if self._done > done:  # thousands of cells take their time
                last, done = now, self._done
        if self._thread.is_alive():
            self._hurry.set()
            self._error = self._error or f"no answer within {timeout:g} s"
        lost = self._total - self._done
        if not lost and not self._error:
            return ""
        hint = "\nIf mlflow.db is damaged, delete it: sync then makes a new one" * self._own
        return (
            f"{lost} of {self._total} records did not reach MLflow at {shown_address(self.uri)}: {self._error}\n"
            f"The results are safe in the store; mirror them later with: parvibench sync{hint}"
        )

    def _put(self, job: _Job) -> None:
        self._total += 1
        self._queue.put(job)

    def _work(self) -> None:
        """The thread: connect, then one job after the other; after repeated failures only drain."""
        writer: Writer | None = None
        failures = 0
        try:
            with self._alone:
                writer = self._connected()
        except Exception as error:  # anything a server, a driver or a full disk can raise
            self._note(error)
        while (job := self._queue.get()) is not None:
            if writer is None or failures >= _GIVE_UP_AFTER or self._hurry.is_set():
                continue
            try:
                with self._alone:
                    job(writer)
            except Exception as error:
                failures += 1
                self._note(error)
            else:
                failures = 0
                self._done += 1
        if writer is not None and failures < _GIVE_UP_AFTER and not self._hurry.is_set():
            try:
                with self._alone:
                    writer.finish()
            except Exception as error:
                self._note(error)

    def _connected(self) -> Writer:
        # Artifacts go next to the store for a database, and where a server chooses.
        is_database = urlsplit(self.uri).scheme.split("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")
        client = database.connect(self.uri)
        if self._own:
            database.check_place(client, self.root)
        return Writer(client, (self.root / "artifacts").as_uri() if is_database else None)

    def _note(self, error: Exception) -> None:
        """Keep the first error, on one line and without credentials."""
        text = of_address(" ".join(str(error).partition("[SQL: ")[0].split()), self.uri)
        self._error = self._error or f"{type(error).__name__}: {text:.300}"


def sync(store: Store, timeout: float = 600.0, rank: Callable[[StoredRun], Ranking] | None = None) -> str:
    """Mirror all runs of a store but damaged ones, oldest first; the warning of ``close``. ``rank`` gives a leaderboard."""
    mirror = MirrorObserver(store.root)
    for run_id in store.runs():
        try:
            results = StoredRun.load(store, run_id)
        except DamagedError:
            continue
        mirror.started(results.run)
        for record in results.cells:
            mirror.finished(None, record, store.folder(record.key), cached=True)
        mirror.ended(results.run)
        if rank is not None:
            mirror.rank(run_id, rank(results))
    return mirror.close(timeout)
