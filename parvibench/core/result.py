"""What a cell leaves behind: statuses and the record that is written down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from .budget import Budget

#: Raised on any change of the stored files that old readers would misread.
STORE_FORMAT = 1


class Status(StrEnum):
    """How a requested cell ended."""

    OK = "ok"
    DIVERGED = "diverged"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"

    @property
    def failed(self) -> bool:
        """Whether a run with such a cell exits 1 (``unsupported`` is no failure)."""
        return self not in (Status.OK, Status.UNSUPPORTED)


class CellRecord(BaseModel):
    """``cell.json``: everything about a cell but its curve and samples.

    Attributes:
        values: metric -> value per replicate at the last checkpoint, ``None`` where it is not finite.
        absent: metric -> why it does not apply.
        diverged: replicate id -> iteration at which it stopped being finite.
        seconds: steady compute time of all replicates together, s.
        score_evaluations: per replicate, as charged (the largest).
        compiled: whether the steps went through ``torch.compile``.
        overheads: seconds spent apart from steady compute: ``warmup``, ``metrics``, ``compile``.
        flags: what a reader of the numbers should know: a clock in doubt, a budget ignored.
        drift: largest relative change of a reference kernel's time over a chunk.
        process: threads and allocator of the processes that ran it.
    """

    model_config = ConfigDict(extra="forbid")

    format: int = STORE_FORMAT
    key: str
    task: str
    task_version: int
    algorithm: str
    algorithm_version: int
    kind: str
    label: str
    settings: dict[str, Any]
    tuned: bool = False
    effective_step: float | None = None
    budget: Budget
    particles: int
    samples: int
    replicates: int
    seed: int
    chunk: int
    device: str
    dtype: str
    compiled: bool = False
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


def to_json_number(value: float) -> float | None:
    """JSON has no infinity and no NaN: both become null."""
    return float(value) if math.isfinite(value) else None


def from_json_numbers(values: Sequence[float | None]) -> list[float]:
    """Null reads as +inf, so that failures rank worst where lower is better."""
    return [math.inf if v is None else float(v) for v in values]
