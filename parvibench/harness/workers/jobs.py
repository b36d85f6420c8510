"""The jobs of a run: a chunk of a cell, in one part or, with the code of a plug-in, in two."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from parvibench.harness.run.chunks import ChunkResult, pack
from parvibench.harness.run.judging import judged
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.suite.cells import Cell

from .executors import Job, Notify, Outcome, Run
from .processes import PRELOAD

Ended = Outcome[ChunkResult]


@dataclass(frozen=True)
class ChunkJob(Job[ChunkResult]):
    """A chunk of a cell, and where its state is saved while it runs."""

    cell: Cell
    chunk: int
    snapshot: SnapshotFile | None = None

    @property
    def replicates(self) -> tuple[int, ...]:
        """Ids of the replicates."""
        return self.cell.chunks[self.chunk]

    @property
    def preload(self) -> tuple[str, ...]:  # type: ignore[override]
        """With what recording a step imports, in some two seconds."""
        return (*PRELOAD, "torch._inductor", "torch._meta_registrations") if self.cell.spec.compiled else ()

    def run(self, notify: Notify) -> ChunkResult:
        """Samples and metrics."""
        return run_chunk(self.cell, self.replicates, notify, self.snapshot)

    def split(self) -> tuple[Run[bytes], Callable[[bytes], Run[ChunkResult]]] | None:
        """Samples and metrics apart where the samples are a plug-in's, whose code the second part never runs."""
        return (self._sampled, lambda content: partial(self._judged, content)) if self.cell.is_plugin else None

    def _sampled(self, notify: Notify) -> bytes:
        """The result without metrics, as bytes that are read without running any code."""
        return pack(run_chunk(self.cell, self.replicates, notify, self.snapshot, deferred=True).plain())

    def _judged(self, content: bytes, notify: Notify) -> ChunkResult:
        return judged(self.cell, self.replicates, content)
