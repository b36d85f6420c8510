"""The runs of a store: which cells each requested and where its results come from; one writer at a time."""

import contextlib
import datetime as dt
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import filelock
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from parvibench.core.errors import DamagedError, StoreError
from parvibench.core.result import STORE_FORMAT, CellSpec, Specified

from .files import checked_json, inside, output_place, read_text

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


def _with_facts(suite: dict[str, Any]) -> dict[str, Any]:
    _SuiteFacts.model_validate(suite)
    return suite


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
    suite: Annotated[dict[str, Any], AfterValidator(_with_facts)]  #: as it was run; ``name`` at least
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


class RunFolder:
    """The runs of a folder of results, and its lock; methods raise as those of ``Store``."""

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
