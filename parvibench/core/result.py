"""Status and stored record of a cell."""

from __future__ import annotations

import math
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from .cell import CellSpec, Specified

#: Raised on any change of the stored files that old readers would misread.
STORE_FORMAT = 2


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
    """``cell.json``: everything about a cell but its curve and samples.

    Attributes:
        spec: what was run.
        label: name in tables.
        kind: of the algorithm.
        tuned: whether the step size was chosen by tuning.
        values: metric -> value per replicate at the last checkpoint, ``None`` where it is not finite.
        absent: metric -> why it does not apply.
        diverged: replicate id -> iteration at which it stopped being finite.
        seconds: steady compute time of all replicates together, s.
        score_evaluations: per replicate, as charged (the largest).
        overheads: seconds spent apart from steady compute: ``warmup``, ``metrics``, ``compile``.
        flags: what a reader of the numbers should know: a clock in doubt, a budget ignored.
        drift: largest relative change of a reference kernel's time over a chunk.
        process: threads and allocator of the processes that ran it.
        files: name -> SHA-256 of the other files in the cell's folder.
        sha256: of ``cell.json`` itself with this field left empty.
    """

    model_config = ConfigDict(extra="forbid")

    format: int = STORE_FORMAT
    spec: CellSpec
    label: str
    kind: str
    tuned: bool = False
    effective_step: float | None = None
    status: Status
    reason: str = ""
    traceback: str = ""
    n_diverged: int = 0
    diverged: dict[int, int] = Field(default_factory=dict)
    iterations: int = 0
    score_evaluations: float = 0.0
    seconds: float = 0.0
    overheads: dict[str, float] = Field(default_factory=dict)
    values: dict[str, list[float | None]] = Field(default_factory=dict)
    absent: dict[str, str] = Field(default_factory=dict)
    flags: list[str] = Field(default_factory=list)
    drift: float = 0.0
    process: dict[str, str] = Field(default_factory=dict)
    metrics_key: str = ""
    hardware: str = ""
    created: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    sha256: str = ""


def to_json_number(value: float) -> float | None:
    """JSON has no infinity and no NaN: both become null."""
    return float(value) if math.isfinite(value) else None
