"""The result store: plain files, written aside and renamed, one writer at a time.

::

    <root>/cells/<key>/cell.json      the record, with the SHA-256 of the files next to it
                       curve.parquet  metric values at every checkpoint, long form
                       samples.npz    samples of the last checkpoint, (R, n, D) float32; trajectories, where wanted
                       traceback.txt  of a cell that failed
           unfinished/<key>/          snapshots of a cell that is not finished
           runs/<id>.json             the cells of a run, the SHA-256 of each cell.json and of itself, provenance
           mlflow.db artifacts/       the MLflow mirror
           report/                    the page
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import filelock
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from parvibench.core.errors import DamagedError, DiskError, StoreError
from parvibench.core.result import STORE_FORMAT, CellRecord, CellSpec, Specified, Status

from .cell_files import CURVE_COLUMNS, MAX_BYTES, Trajectories, contents, read_curve, read_npz
from .files import (
    SnapshotFile,
    checked_json,
    inside,
    output_place,
    parse_cell,
    plain_name,
    read_text,
    sealed,
    sha256,
    write_atomically,
)

__all__ = ["CURVE_COLUMNS", "RunCell", "RunRecord", "Store", "Trajectories", "is_final", "new_run_id"]

_PROBE_S = 0.2  #: A writer waits so long, s, for a reader that looks whether the store is locked.


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


def _distinct(cells: list[RunCell]) -> list[RunCell]:
    """The cells, if no two have the same task and label: tables identify rows by them."""
    if len({(c.task, c.label) for c in cells}) < len(cells):
        raise ValueError("two cells of one task have the same label")
    return cells


class RunRecord(BaseModel):
    """``runs/<id>.json``."""

    model_config = ConfigDict(extra="forbid")

    format: int = STORE_FORMAT
    id: str
    #: as it was run; ``name`` at least
    suite: Annotated[dict[str, Any], AfterValidator(lambda suite: _SuiteFacts.model_validate(suite) and suite)]
    profile: str | None = None
    cells: Annotated[list[RunCell], AfterValidator(_distinct)]
    provenance: dict[str, Any] = Field(default_factory=dict)
    started: str
    finished: str = ""
    system: list[dict[str, float]] = Field(default_factory=list)  #: load of the machine, in records of earlier versions
    sha256: str = ""  #: of the file with this field left empty; empty in records of earlier versions


def new_run_id(suite: str) -> str:
    """An id that sorts by time: date, time in milliseconds, name of the suite."""
    now = dt.datetime.now(dt.UTC)
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}-{suite}"


Read = TypeVar("Read", bound=Callable[..., Any])
#: Waiting times of a reader that meets a cell on its way into the store, s.
_PAUSES_S = (0.01, 0.02, 0.05, 0.1, 0.2)
_RECENT_S = 0.5


def _settled(read: Read) -> Read:
    """A read of a cell that waits while another process puts it in place: for some milliseconds its files do not fit."""

    @functools.wraps(read)
    def again(self: Store, cell: str | RunCell, *rest: Any) -> Any:
        for pause in _PAUSES_S:
            try:
                return read(self, cell, *rest)
            except DamagedError:
                if not self._moves(cell if isinstance(cell, str) else cell.key):
                    raise
                time.sleep(pause)
        return read(self, cell, *rest)

    return cast(Read, again)


class Store:
    """A folder of results, created on first write.

    Methods that read raise ``DamagedError`` where a file is missing or is not the one that was written, and ``StoreError``
    where it is of another format or unsafe to read; methods that write raise ``StoreError`` where that is impossible.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def check_writable(self) -> None:
        """Make the folder; ``InputError`` where it cannot be made or written, or where its mirror would be another file."""
        place = output_place(self.root, folder=True)
        if odd := re.search(r"\?|%[0-9A-Fa-f]{2}", str(self.root.resolve())):
            # In the address of its SQLite mirror they would name another file.
            raise StoreError(f"{self.root}: the path of a store cannot hold {odd[0]!r}; choose another folder (--out)")
        place.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the store for writing; ``StoreError`` while another run writes to it."""
        self.check_writable()
        for run_id in self.runs()[:1]:
            with contextlib.suppress(DamagedError):
                self._peek(run_id)
        try:
            held = filelock.FileLock(self.root / ".lock").acquire(timeout=_PROBE_S)
        except filelock.Timeout:
            message = f"{self.root}: another run is writing to this store; wait for it, or use --out"
            raise StoreError(message) from None
        with held:
            self._tidy()
            yield

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

    def runs(self) -> list[str]:
        """Ids of all runs, oldest first."""
        return sorted(p.stem for p in (self.root / "runs").glob("[!.]*.json"))

    def run(self, run_id: str | None = None) -> RunRecord:
        """A run by id, the latest by default; ``StoreError`` without such a run."""
        if not (ids := self.runs()):
            command = f"parvibench run --suite quick --out {self.root}"
            raise StoreError(f"{self.root}: no runs here; make one with: {command}")
        if run_id is None:
            run_id = max(ids, key=self._place)
        if run_id not in ids:
            raise StoreError(f"{self.root}: no run {run_id!r}; runs here: {', '.join(ids)}")
        try:
            return RunRecord.model_validate(self._peek(run_id))
        except ValidationError as error:
            place = f"{self.root}/runs/{run_id}.json"
            raise DamagedError(f"{place}: not a run record ({error.error_count()} problems)") from None

    def last(self, run: RunRecord) -> RunRecord:
        """A new run; where the clock was set back, with a start one second after that of the store's latest run."""
        latest = ("", "")
        for run_id in self.runs():
            with contextlib.suppress(StoreError):
                latest = max(latest, self._place(run_id))
        if (run.started, run.id) < latest:
            with contextlib.suppress(ValueError, OverflowError):
                after = dt.datetime.fromisoformat(latest[0]) + dt.timedelta(seconds=1)
                return run.model_copy(update={"started": after.isoformat(timespec="seconds")})
        return run

    def _place(self, run_id: str) -> tuple[str, str]:
        """Sorts runs by time."""
        return str(self._peek(run_id).get("started", "")), run_id

    def _peek(self, run_id: str) -> dict[str, Any]:
        path = inside(self.root / "runs" / f"{run_id}.json", self.root)
        try:
            return checked_json(path, read_text(path))
        except DamagedError as error:
            raise DamagedError(f"{error}; delete it: the cells are stored separately") from None

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
            content = read_text(path)
        except FileNotFoundError:
            if path.parent.with_name(f".old-{key}").exists() or path.exists():  # put in place meanwhile
                how = "missing: its writer was stopped; the next run mends it"
                raise DamagedError(f"{path}: damaged ({how})") from None
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
        key = cell.key
        record = self.find(key)
        if record is None:
            if cell.sha256:
                raise DamagedError(f"{self._file(key, 'cell.json')}: damaged (missing)")
            return None
        flags = record.flags
        if cell.sha256 and cell.sha256 != self.digest(key):
            flags = [*flags, "written again after this run"]
        return record.model_copy(update={"spec": cell.spec, "label": cell.label, "flags": flags})

    @_settled
    def _beside(self, key: str, name: str) -> bytes | None:
        """The bytes of a file next to a cell's record as it is now."""
        return self._content(key, name, self._record(key))

    def curve(self, key: str) -> pd.DataFrame:
        """Metric values at every checkpoint, columns ``CURVE_COLUMNS``; empty when there are none."""
        return pd.DataFrame(self.curve_columns(key))

    def curve_columns(self, key: str) -> dict[str, NDArray[Any]]:
        """``curve`` as arrays, without the time that a frame takes."""
        content = self._beside(key, "curve.parquet")
        if content is None:
            return {name: np.empty(0) for name in CURVE_COLUMNS}
        return read_curve(content, str(self._file(key, "curve.parquet")))

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

    def _arrays(self, key: str) -> dict[str, NDArray[Any]] | None:
        content = self._beside(key, "samples.npz")
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
        """Put a cell in place as a whole: written aside, flushed, renamed; after a ``DiskError`` the old one remains."""
        final = self.folder(record.key)
        with self._writing():
            final.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".new-", dir=final.parent))
            try:
                files = dict(contents(record, curve, samples, trajectories))
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
        """Write the list of a run's cells, with the SHA-256 of every ``cell.json``; ``DiskError`` where that fails."""
        cells = [c.model_copy(update={"sha256": self.digest(c.key)}) for c in run.cells]
        content = sealed(run.model_copy(update={"cells": cells}))
        with self._writing():
            folder = self.root / "runs"
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / f"{plain_name(run.id, 'run id')}.json", content)

    def digest(self, key: str) -> str:
        """SHA-256 of a cell's record, ``cell.json``; empty where there is none."""
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


def is_final(record: CellRecord | None, retry_failed: bool = False) -> bool:
    """Whether a stored cell answers a request, or must be run (again)."""
    if record is None or record.status in (Status.SKIPPED, Status.INTERRUPTED, Status.UNSUPPORTED):
        return False
    return not (retry_failed and record.status.failed)
