"""The specification of a cell: everything that may change its samples, and the key made of it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, computed_field, model_validator

from .budget import Budget


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
