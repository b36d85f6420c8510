"""The options of a run besides what is run: the same for the Python API and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parvibench.core.errors import InputError, validation_text
from parvibench.core.result import StartKind

DEFAULT_STORE = Path("parvibench-runs")
DEFAULT_TIMEOUT_S = 1800.0


class Execution(BaseModel):
    """How a run is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: independent repetitions per cell; instead of the suite's, as all options down to ``match``
    replicates: int | None = None
    seed: int | None = None  #: root seed
    budget: dict[str, float] | None = None  #: limits per replicate, e.g. ``{"score_evaluations": 200_000}``.
    particles: int | None = None  #: N; before a preset's, as ``budget`` and ``samples`` are
    samples: int | None = None  #: n judged
    start: StartKind | None = None  #: where the initial points are from; None: as the suite says
    profile: str | None = None  #: of the suite
    rows: tuple[str, ...] = ()  #: of a suite of rows only those that fit one of these patterns
    #: ``effective-step`` scales step sizes so that a task's methods move alike, see the README
    match: Literal["effective-step"] | None = None
    #: (I, K) runs every K-th cell from the I-th on; ``parvibench.harness.store.merging.merge`` puts the parts together
    part: tuple[int, int] | None = None
    #: processes; 0 runs in this process; default one per CPU, on a GPU one in all. Objects that cannot be imported run in this one, too.
    workers: int | None = Field(None, ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    timeout: float = Field(DEFAULT_TIMEOUT_S, gt=0)  #: wall-clock limit of one chunk of replicates, s
    #: limit of one worker with all it starts, MiB; default: all of them together 80% of the machine's
    memory: float | None = Field(None, gt=0)
    ray: str | None = None  #: run on a Ray cluster: ``local``, or its address
    gpus: float = Field(1.0, ge=0, le=8)  #: share of a GPU that a chunk on the cluster takes, with ``device="cuda"``
    compiled: bool = False  #: steps recorded and replayed: worth its time in long runs, see the README
    out: Path = DEFAULT_STORE  #: the store
    fresh: bool = False  #: run again what the store holds
    retry_failed: bool = False  #: run again what failed
    allow_plugins: bool = False  #: load the files next to the suite that it names as ``file.py:OBJECT``
    edition: str | None = None  #: refuse what differs from this edition of the board, such as ``2026.12``
    tune: bool = False  #: tune a suite with a grid first, where it holds no tuned values

    @property
    def changed(self) -> list[str]:
        """What the options change of a suite's protocol."""
        return [k for k in ("replicates", "budget", "particles", "samples", "start") if getattr(self, k) is not None]

    @classmethod
    def of(cls, **options: Any) -> Execution:
        """Validated options; ``InputError`` for an unknown one or a value of the wrong type."""
        try:
            return cls(**options)
        except ValidationError as error:
            raise InputError(validation_text(error, model=cls, unknown="no such option")) from None
