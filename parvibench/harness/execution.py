"""The options of a run besides what is run: the same for the Python API and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from parvibench.core.errors import InputError, validation_text

DEFAULT_STORE = Path("parvibench-runs")
DEFAULT_TIMEOUT_S = 1800.0


class Execution(BaseModel):
    """How a run is made.

    Attributes:
        replicates: independent repetitions per cell; instead of the suite's, as all options down to ``match``.
        seed: root seed.
        budget: limits per replicate, e.g. ``{"score_evaluations": 200_000}``.
        particles: N; before a preset's, as ``budget`` and ``samples`` are.
        samples: n judged.
        profile: of the suite.
        match: ``effective-step`` scales step sizes so that a task's methods move alike, see the README.
        part: (I, K) runs every K-th cell from the I-th on; ``parvibench.harness.store.merging.merge`` puts the
            parts together.
        workers: processes; 0 runs in this process; default one per CPU. Objects always run in this process.
        device: ``auto``, ``cpu`` or ``cuda``.
        timeout: wall-clock limit of one chunk of replicates, s.
        memory: limit of one worker with all it starts, MiB; default: all of them together 80% of the machine's.
        ray: run on a Ray cluster: ``local``, or its address.
        gpus: share of a GPU that a chunk on the cluster takes, with ``device="cuda"``.
        compiled: steps through ``torch.compile``: worth its time in long runs, see the README.
        out: the store.
        fresh: run again what the store holds.
        retry_failed: run again what failed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicates: int | None = None
    seed: int | None = None
    budget: dict[str, float] | None = None
    particles: int | None = None
    samples: int | None = None
    profile: str | None = None
    match: Literal["effective-step"] | None = None
    part: tuple[int, int] | None = None
    workers: int | None = None
    device: str = "auto"
    timeout: float = DEFAULT_TIMEOUT_S
    memory: float | None = None
    ray: str | None = None
    gpus: float = 1.0
    compiled: bool = False
    out: Path = DEFAULT_STORE
    fresh: bool = False
    retry_failed: bool = False

    @classmethod
    def of(cls, **options: Any) -> Execution:
        """Validated options.

        Raises:
            InputError: an unknown option, or a value of the wrong type.
        """
        try:
            return cls(**options)
        except ValidationError as error:
            raise InputError(validation_text(error)) from None
