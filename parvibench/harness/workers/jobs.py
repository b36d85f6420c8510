"""The jobs of a run: a chunk of a cell, in one part or, with the code of a plug-in, in two."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from parvibench.harness.run.chunks import ChunkResult, pack
from parvibench.harness.run.judging import judged
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.suite.cells import Cell

from .executors import Job, Notify, Outcome

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

    def run(self, notify: Notify) -> ChunkResult:
        """Samples and metrics."""
        return run_chunk(self.cell, self.replicates, notify, self.snapshot)

    def split(self) -> tuple[Job[bytes], Callable[[bytes], Job[ChunkResult]]] | None:
        """Samples and metrics apart where the samples are a plug-in's."""
        return (Sampling(self), partial(Judging, self)) if self.cell.is_plugin else None


@dataclass(frozen=True)
class Sampling(Job[bytes]):
    """The first part of a plug-in's chunk: its samples."""

    chunk: ChunkJob

    def run(self, notify: Notify) -> bytes:
        """The result without metrics, as bytes that are read without running any code."""
        chunk = self.chunk
        return pack(run_chunk(chunk.cell, chunk.replicates, notify, chunk.snapshot, deferred=True).plain())


@dataclass(frozen=True)
class Judging(Job[ChunkResult]):
    """The second part: metrics, in a process that never runs the plug-in's code."""

    chunk: ChunkJob
    content: bytes

    def run(self, notify: Notify) -> ChunkResult:
        """The result with its metrics."""
        return judged(self.chunk.cell, self.chunk.replicates, self.content)
