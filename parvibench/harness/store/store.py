"""The result store: plain files, written aside and renamed, one writer at a time.

::

    <root>/cells/<key>/cell.json      the record, with the SHA-256 of the files beside it
                       curve.parquet  metric values at every checkpoint, long form
                       samples.npz    samples of the last checkpoint, (R, n, D) float32; trajectories, where asked for
                       traceback.txt  of a cell that failed
           unfinished/<key>/          snapshots of a cell that is not finished
           runs/<id>.json             which cells a run asked for, the SHA-256 of each cell.json and of itself, provenance
           mlflow.db artifacts/       the MLflow mirror
           report/                    the page
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import io
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import filelock
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from parvibench.core.errors import DamagedError, DiskError, StoreError
from parvibench.core.result import STORE_FORMAT, CellRecord, CellSpec, Specified, Status

from .files import SnapshotFile, write_atomically
from .reading import MAX_BYTES, inside, plain_name, read_npz, read_table, read_text
from .sealing import checked_json, parse_cell, sealed, sha256


class Trajectories(NamedTuple):
    """Where some particles of a replicate went."""

    iterations: NDArray[np.integer]  #: (C,), of the start and of every checkpoint
    positions: NDArray[np.float32]  #: (C, k, D)


CURVE_COLUMNS = ("replicate", "checkpoint", "iteration", "score_evaluations", "seconds", "metric", "value")


class RunCell(BaseModel, Specified):
    """A cell of a run: the label is the run's, the results are stored under the key of the specification."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: CellSpec
    label: str  #: name in tables
    sha256: str = ""  #: of ``cell.json`` when the run ended, or empty


class _Named(BaseModel):
    name: str


class _SuiteFacts(_Named):
    """The parts of a suite that readers of a run use."""

    tasks: list[_Named] = Field(default_factory=list)
    algorithms: list[_Named] = Field(default_factory=list)


def _with_facts(suite: dict[str, Any]) -> dict[str, Any]:
    _SuiteFacts.model_validate(suite)
    return suite


class RunRecord(BaseModel):
    """``runs/<id>.json``."""

    model_config = ConfigDict(extra="forbid")

    format: int = STORE_FORMAT
    id: str
    suite: Annotated[dict[str, Any], AfterValidator(_with_facts)]  #: as it was run; ``name`` at least
    profile: str | None = None
    cells: list[RunCell]
    provenance: dict[str, Any] = Field(default_factory=dict)
    started: str
    finished: str = ""
    system: list[dict[str, float]] = Field(default_factory=list)
    sha256: str = ""  #: of the file with this field left empty; empty in records of earlier versions


A = TypeVar("A", str, RunCell)
V = TypeVar("V")
#: Waiting times of a reader that meets a cell on its way into the store, s.
_PAUSES_S = (0.01, 0.02, 0.05, 0.1, 0.2)
_RECENT_S = 0.5
#: A missing record is looked for so many times more, a millisecond apart.
_LOOKS = 3
#: A writer waits so long, s, for a reader that looks whether the store is locked.
_PROBE_S = 0.2


def _settled(read: Callable[[Store, A], V]) -> Callable[[Store, A], V]:
    """A read of a cell that waits while another process puts it in place: for some milliseconds its files do not fit."""

    @functools.wraps(read)
    def again(self: Store, cell: A) -> V:
        for pause in _PAUSES_S:
            try:
                return read(self, cell)
            except DamagedError:
                if not self._moves(cell if isinstance(cell, str) else cell.key):
                    raise
                time.sleep(pause)
        return read(self, cell)

    return again


def new_run_id(suite: str) -> str:
    """An id that sorts by time: date, time in milliseconds, name of the suite."""
    now = dt.datetime.now(dt.UTC)
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}-{suite}"


class Store:
    """A folder of results, created on first write.

    Methods that read raise ``DamagedError`` where a file is missing or is not the one that was written, and ``StoreError``
    where it is of another format or unsafe to read; methods that write raise ``StoreError`` where that is impossible.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def check_writable(self) -> None:
        """Make the folder.

        Raises:
            DiskError: it cannot be made or written.
            StoreError: its mirror would be another file.
        """
        if odd := re.search(r"\?|%[0-9A-Fa-f]{2}", str(self.root.resolve())):
            # In the address of its SQLite mirror they would name another file.
            raise StoreError(f"{self.root}: the path of a store cannot hold {odd[0]!r}; choose another folder (--out)")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise DiskError(f"{self.root}: cannot write here ({error.strerror or error})") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the store for writing; ``StoreError`` while another run writes to it."""
        self.check_writable()
        for run_id in self.runs()[:1]:
            with contextlib.suppress(DamagedError):
                self._peek(run_id)
        lock = filelock.FileLock(self.root / ".lock")
        try:
            lock.acquire(timeout=_PROBE_S)
        except filelock.Timeout:
            message = f"{self.root}: another run is writing to this store; wait for it, or use --out"
            raise StoreError(message) from None
        try:
            self._tidy()
            yield
        finally:
            lock.release()

    def is_being_written(self, run_id: str) -> bool:
        """Whether a run is going on: the latest of a store that is locked."""
        path = self.root / ".lock"
        if not path.is_file() or run_id != max(self.runs(), key=self._place):
            return False
        try:
            with filelock.FileLock(path).acquire(timeout=0):
                return False
        except filelock.Timeout:
            return True
        except OSError:  # a store that cannot be written
            return False

    def _tidy(self) -> None:
        """Complete or undo the unfinished writes of a killed process."""
        for aside in (self.root / "cells").glob(".old-*"):
            final = aside.with_name(aside.name.removeprefix(".old-"))
            if final.exists():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                aside.rename(final)
        for left in (*(self.root / "cells").glob(".new-*"), *(self.root / "runs").glob(".new-*")):
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def folder(self, key: str) -> Path:
        """Folder of the results of a cell; ``StoreError`` for what is no key, such as a path."""
        return self.root / "cells" / plain_name(key, "cell key")

    def snapshot(self, key: str, chunk: int) -> SnapshotFile:
        """Snapshot of a running chunk."""
        return SnapshotFile(self._unfinished(key) / f"{chunk}.pt")

    def finished_chunk(self, key: str, chunk: int) -> SnapshotFile:
        """Result of a finished chunk of an unfinished cell."""
        return SnapshotFile(self._unfinished(key) / f"{chunk}.done.pt")

    def forget(self, key: str) -> None:
        """Remove the snapshots of a cell."""
        shutil.rmtree(self._unfinished(key), ignore_errors=True)

    def _unfinished(self, key: str) -> Path:
        return self.root / "unfinished" / plain_name(key, "cell key")

    @_settled
    def find(self, key: str) -> CellRecord | None:
        """The record of a cell, its files checked; None where there is none."""
        record = self._record(key)
        for name in () if record is None else record.files:
            self._content(key, name, record)
        return record

    def _read(self, path: Path) -> bytes:
        """A file that another process may be renaming out of its place and into it at this moment."""
        for _ in range(_LOOKS):
            with contextlib.suppress(FileNotFoundError):
                return read_text(path)
            time.sleep(0.001)
        return read_text(path)

    def _moves(self, key: str) -> bool:
        """Whether a cell is being put in place, or was a moment ago."""
        folder = self.folder(key)
        try:
            return folder.with_name(f".old-{key}").exists() or time.time() - folder.stat().st_ctime < _RECENT_S
        except FileNotFoundError:
            return folder.parent.is_dir() and time.time() - folder.parent.stat().st_ctime < _RECENT_S

    def _record(self, key: str) -> CellRecord | None:
        path = self._file(key, "cell.json")
        try:
            content = self._read(path)
        except FileNotFoundError:
            if path.parent.with_name(f".old-{key}").exists():
                raise DamagedError(
                    f"{path}: damaged (missing: its writer was stopped; the next run mends it)"
                ) from None
            return None
        record = parse_cell(path, content)
        if record.key != key:
            raise DamagedError(f"{path}: damaged (its specification is that of another cell)")
        return record

    def _content(self, key: str, name: str, record: CellRecord | None) -> bytes | None:
        """The bytes of a file that the record lists, None where it lists none of that name."""
        if record is None or name not in record.files:
            return None
        path = self._file(key, plain_name(name, "file of a cell"))
        content = None
        with contextlib.suppress(FileNotFoundError):
            content = read_text(path, MAX_BYTES) if path.is_file() else None
        if content is None or sha256(content) != record.files[name]:
            how = "missing" if content is None else "not the file that was written"
            raise DamagedError(f"{path}: damaged ({how})")
        return content

    def usable(self, key: str) -> CellRecord | None:
        """The record of a cell, or None when there is none or its files are damaged."""
        try:
            return self.find(key)
        except DamagedError:
            return None

    @_settled
    def find_for(self, cell: RunCell) -> CellRecord | None:
        """The record of a cell of a run, under the run's label; or None."""
        record = self.find(cell.key)
        if record is None:
            if cell.sha256:
                raise DamagedError(f"{self._file(cell.key, 'cell.json')}: damaged (missing)")
            return None
        flags = record.flags
        if cell.sha256 and cell.sha256 != self._digest(cell.key):
            flags = [*flags, "written again after this run"]
        return record.model_copy(update={"label": cell.label, "flags": flags})

    @_settled
    def curve(self, key: str) -> pd.DataFrame:
        """Metric values at every checkpoint, columns ``CURVE_COLUMNS``; empty when there are none."""
        content = self._content(key, "curve.parquet", self._record(key))
        if content is None:
            return pd.DataFrame(columns=list(CURVE_COLUMNS))
        return read_table(content, str(self._file(key, "curve.parquet")), CURVE_COLUMNS, text=("metric",))

    def samples(self, key: str) -> NDArray[np.float32] | None:
        """Samples of the last checkpoint, (R, n, D), or None."""
        arrays = self._arrays(key)
        if arrays is None:
            return None
        if "samples" not in arrays or arrays["samples"].ndim != 3:
            raise StoreError(f"{self._file(key, 'samples.npz')}: holds no samples (R, n, D)")
        return arrays["samples"].copy()  # bytes that were read cannot be written to

    def trajectories(self, key: str) -> Trajectories | None:
        """Trajectories of some particles of the first replicate, or None where none were recorded."""
        arrays = self._arrays(key) or {}
        if "trajectories" not in arrays:
            return None
        found = Trajectories(arrays.get("iterations", np.empty(0)), arrays["trajectories"])
        if found.positions.ndim != 3 or found.iterations.shape != found.positions.shape[:1]:
            raise StoreError(f"{self._file(key, 'samples.npz')}: holds no trajectories (C, k, D) at C iterations")
        return found

    @_settled
    def _arrays(self, key: str) -> dict[str, NDArray[Any]] | None:
        content = self._content(key, "samples.npz", self._record(key))
        return None if content is None else read_npz(content, str(self._file(key, "samples.npz")))

    def _file(self, key: str, name: str) -> Path:
        return inside(self.folder(key) / name, self.root)

    def write_cell(
        self,
        record: CellRecord,
        curve: pd.DataFrame | None = None,
        samples: NDArray[np.floating] | None = None,
        trajectories: Trajectories | None = None,
    ) -> None:
        """Put a cell in place as a whole: written aside, flushed, renamed.

        Raises:
            DiskError: the disk is full or cannot be written; what was there stands.
        """
        final = self.folder(record.key)
        with self._writing():
            final.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".new-", dir=final.parent))
            try:
                files = dict(_contents(record, curve, samples, trajectories))
                digests = {name: sha256(content) for name, content in files.items()}
                for name, content in {**files, "cell.json": sealed(record, files=digests)}.items():
                    write_atomically(aside / name, content)
                aside.chmod(0o755)
                old = final.with_name(f".old-{final.name}")
                if final.exists():
                    final.rename(old)
                aside.rename(final)
                shutil.rmtree(old, ignore_errors=True)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise

    def write_run(self, run: RunRecord) -> None:
        """Write the list of a run's cells, with the SHA-256 of every ``cell.json`` that stands.

        Raises:
            DiskError: the disk is full or cannot be written.
        """
        cells = [c.model_copy(update={"sha256": self._digest(c.key)}) for c in run.cells]
        content = sealed(run.model_copy(update={"cells": cells}))
        with self._writing():
            folder = self.root / "runs"
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / f"{plain_name(run.id, 'run id')}.json", content)

    def _digest(self, key: str) -> str:
        path = self._file(key, "cell.json")
        with contextlib.suppress(FileNotFoundError):
            return sha256(read_text(path))
        return ""

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"{self.root}: cannot write ({reason}); finished cells are safe; the same command resumes"
            raise DiskError(message) from None

    def runs(self) -> list[str]:
        """Ids of all runs, oldest first."""
        return sorted(p.stem for p in (self.root / "runs").glob("[!.]*.json"))

    def run(self, run_id: str | None = None) -> RunRecord:
        """A run by id, the latest by default; ``StoreError`` without such a run."""
        ids = self.runs()
        if not ids:
            raise StoreError(
                f"{self.root}: no runs here; make one with: parvibench run --suite quick --out {self.root}"
            )
        if run_id is None:
            run_id = max(ids, key=self._place)
        if run_id not in ids:
            raise StoreError(f"{self.root}: no run {run_id!r}; runs here: {', '.join(ids)}")
        try:
            return RunRecord.model_validate(self._peek(run_id))
        except ValidationError as error:
            raise DamagedError(
                f"{self.root}/runs/{run_id}.json: not a run record ({error.error_count()} problems)"
            ) from None

    def _place(self, run_id: str) -> tuple[str, str]:
        """Sorts runs by time."""
        return str(self._peek(run_id).get("started", "")), run_id

    def _peek(self, run_id: str) -> dict[str, Any]:
        path = self.root / "runs" / f"{run_id}.json"
        content = read_text(inside(path, self.root))
        try:
            found = checked_json(path, content)
        except DamagedError as error:
            raise DamagedError(f"{error}; delete it: the cells are stored separately") from None
        return found


def _contents(
    record: CellRecord,
    curve: pd.DataFrame | None,
    samples: NDArray[np.floating] | None,
    trajectories: Trajectories | None,
) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files beside ``cell.json``."""
    if record.traceback:
        yield "traceback.txt", record.traceback.encode()
    if curve is not None:
        buffer = io.BytesIO()
        curve.to_parquet(buffer, index=False)
        yield "curve.parquet", buffer.getvalue()
    if samples is not None:
        buffer = io.BytesIO()
        arrays: dict[str, NDArray[Any]] = {"samples": samples.astype(np.float32)}
        if trajectories is not None:
            arrays |= {"iterations": trajectories.iterations, "trajectories": trajectories.positions}
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        yield "samples.npz", buffer.getvalue()


def is_final(record: CellRecord | None, retry_failed: bool = False) -> bool:
    """Whether a stored cell answers a request, or must be run (again)."""
    if record is None or record.status in (Status.SKIPPED, Status.INTERRUPTED, Status.UNSUPPORTED):
        return False
    return not (retry_failed and record.status.failed)
