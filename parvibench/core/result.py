"""Specification, status and stored record of a cell."""

from __future__ import annotations

import hashlib
import json
import math
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from .budget import Budget

V = TypeVar("V")

#: Where a run starts: the task's initial distribution, its prior, one draw of the target (``Task.problem``), or draws of
#: a fit that its budget pays for.
StartKind = Literal["task", "prior", "warm", "pathfinder", "laplace"]
#: Raised on any change of the stored files that old readers would misread.
STORE_FORMAT = 2


class CellSpec(BaseModel):
    """Everything that may change a sample or when it is taken: two cells of one specification have the same samples."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str  #: task name
    task_version: int
    algorithm: str  #: algorithm name, or ``module:Class`` of a plug-in
    algorithm_version: int
    source: str = ""  #: SHA-256 of a plug-in's source, else empty
    settings: dict[str, Any]  #: all of them
    budget: Budget  #: resolved: no ``scores_per_particle``
    particles: int  #: N
    samples: int  #: n judged
    #: part of a chain's path that is dropped, a share of the run below 1, else iterations; 0 for other kinds
    burn_in: float
    thinning: int  #: iterations between two recorded states of a chain, at least; 1 for other kinds
    replicates: tuple[int, ...]  #: ids of the replicates
    seed: int
    chunk: int  #: replicates per kernel call
    device: str
    dtype: str
    contexts: int | None = None  #: decisions of a sequential task, else None
    compiled: bool = False  #: whether steps are recorded, see ``--compile``
    #: iterations after which samples are judged, besides the last; empty: at shares of the budget. Of a chain that has
    #: not made ``samples`` states by then those are judged that it has.
    checkpoints: tuple[int, ...] = ()
    trajectories: int = 0  #: particles or chains of the first replicate whose place at every checkpoint is recorded
    start: StartKind = "task"  #: where the initial points are from

    @model_validator(mode="before")
    @classmethod
    def _without_key(cls, values: Any) -> Any:
        """The key is stored for other readers, and always recomputed here."""
        return {k: v for k, v in values.items() if k != "key"} if isinstance(values, dict) else values

    @computed_field  # type: ignore[prop-decorator]
    @property
    def key(self) -> str:
        """24 hexadecimal digits that name the results; a field at its default does not change it."""
        values = self.model_dump(mode="json", exclude_defaults=True, exclude={"key"})
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _part(name: str, kind: type[V]) -> V:
    """A property that reads an attribute of ``spec``, typed as its value."""
    return property(attrgetter(f"spec.{name}"))  # type: ignore[return-value]


class Specified:
    """Short names for the parts of ``spec`` that tables and messages use most."""

    if TYPE_CHECKING:

        @property
        def spec(self) -> CellSpec:
            """The specification."""

    key = _part("key", str)  #: names the results
    task = _part("task", str)
    algorithm = _part("algorithm", str)
    settings = _part("settings", dict[str, Any])  #: all of them
    particles = _part("particles", int)  #: N
    samples = _part("samples", int)  #: n judged

    @property
    def n_replicates(self) -> int:
        """R."""
        return len(self.spec.replicates)


#: States of a run that has not ended; they begin the reason of its cells without a record.
RUNNING, STOPPED = "still running", "not finished"


class Status(StrEnum):
    """How a requested cell ended."""

    OK = "ok"
    DIVERGED = "diverged"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    DAMAGED = "damaged"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"

    @property
    def failed(self) -> bool:
        """Whether a run with such a cell exits 1 (``unsupported`` is no failure)."""
        return self not in (Status.OK, Status.UNSUPPORTED)


class CellRecord(BaseModel, Specified):
    """``cell.json``: everything about a cell but its curve and samples."""

    model_config = ConfigDict(extra="forbid")

    format: int = STORE_FORMAT
    spec: CellSpec  #: what was run
    label: str  #: name in tables
    kind: str  #: of the algorithm
    tuned: bool = False  #: whether the step size was chosen by tuning
    effective_step: float | None = None
    start: str = ""  #: where it began: as in ``spec``, ``own`` initial points, or empty where not recorded
    status: Status
    reason: str = ""
    traceback: str = ""
    n_diverged: int = 0
    #: replicate id -> iteration at which it stopped being finite, or was detected to have blown up
    diverged: dict[int, int] = Field(default_factory=dict)
    iterations: int = 0
    score_evaluations: float = 0.0  #: per replicate, as charged (the largest)
    seconds: float = 0.0  #: steady compute time of all replicates together, s
    #: seconds spent apart from steady compute: ``warmup``, ``metrics``, ``compile``
    overheads: dict[str, float] = Field(default_factory=dict)
    #: metric -> value per replicate at the last checkpoint, ``None`` where it is not finite
    values: dict[str, list[float | None]] = Field(default_factory=dict)
    #: the worst finite value of the primary metric, filled when a run is read; not stored
    worst: float | None = Field(None, exclude=True)
    #: replicates that ended without finite samples, filled when a run is read; not stored
    n_lost: int = Field(0, exclude=True)
    #: the same of evenly thinned samples of the next smaller size with floors, where n has none
    judged: dict[str, list[float | None]] = Field(default_factory=dict)
    absent: dict[str, str] = Field(default_factory=dict)  #: metric -> why it does not apply
    #: what a reader of the numbers should know: a clock in doubt, a budget ignored
    flags: list[str] = Field(default_factory=list)
    drift: float = 0.0  #: largest relative change of a reference kernel's time over a chunk
    process: dict[str, str] = Field(default_factory=dict)  #: threads and allocator of the processes that ran it
    metrics_key: str = ""
    hardware: str = ""
    created: str = ""
    files: dict[str, str] = Field(default_factory=dict)  #: name -> SHA-256 of the other files in the cell's folder
    sha256: str = ""  #: of ``cell.json`` itself with this field left empty


def to_json_number(value: float) -> float | None:
    """JSON has no infinity and no NaN: both become null."""
    return float(value) if math.isfinite(value) else None
