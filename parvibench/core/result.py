"""Specification, status and stored record of a cell."""

from __future__ import annotations

import hashlib
import json
import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from .budget import Budget

#: Raised on any change of the stored files that old readers would misread.
STORE_FORMAT = 2


class CellSpec(BaseModel):
    """Everything that may change a sample, and nothing else: two cells of one specification have the same samples.

    Attributes:
        task: task name.
        algorithm: algorithm name, or ``module:Class`` of a plug-in.
        source: SHA-256 of a plug-in's source, else empty.
        settings: all of them.
        budget: resolved: no ``scores_per_particle``.
        particles: N.
        samples: n judged.
        burn_in: part of a chain's path that is dropped, a share of the run below 1, else iterations; 0 for other kinds.
        thinning: iterations between two recorded states of a chain, at least; 1 for other kinds.
        replicates: ids of the replicates.
        chunk: replicates per kernel call.
        contexts: decisions of a sequential task, else None.
        compiled: whether steps go through ``torch.compile``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    task_version: int
    algorithm: str
    algorithm_version: int
    source: str = ""
    settings: dict[str, Any]
    budget: Budget
    particles: int
    samples: int
    burn_in: float
    thinning: int
    replicates: tuple[int, ...]
    seed: int
    chunk: int
    device: str
    dtype: str
    contexts: int | None = None
    compiled: bool = False

    @model_validator(mode="before")
    @classmethod
    def _without_key(cls, values: Any) -> Any:
        """The key is written down for other readers, and always made anew here."""
        return {k: v for k, v in values.items() if k != "key"} if isinstance(values, dict) else values

    @computed_field  # type: ignore[prop-decorator]
    @property
    def key(self) -> str:
        """24 hexadecimal digits that name the results; a field at its default does not change it."""
        values = self.model_dump(mode="json", exclude_defaults=True, exclude={"key"})
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


class Specified:
    """Short names for the parts of ``spec`` that tables and messages use most."""

    if TYPE_CHECKING:

        @property
        def spec(self) -> CellSpec:
            """The specification."""

    @property
    def key(self) -> str:
        """Names the results."""
        return self.spec.key

    @property
    def task(self) -> str:
        """Task name."""
        return self.spec.task

    @property
    def algorithm(self) -> str:
        """Algorithm name."""
        return self.spec.algorithm

    @property
    def settings(self) -> dict[str, Any]:
        """The complete settings."""
        return self.spec.settings

    @property
    def particles(self) -> int:
        """N."""
        return self.spec.particles

    @property
    def samples(self) -> int:
        """Number of samples judged, n."""
        return self.spec.samples

    @property
    def n_replicates(self) -> int:
        """R."""
        return len(self.spec.replicates)


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
        judged: the same of evenly thinned samples of the next smaller size with floors, where n has none.
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
    judged: dict[str, list[float | None]] = Field(default_factory=dict)
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
