"""The interface of executors, the job they run, and the plainest of them: one job after another, here.

An executor takes jobs and yields outcomes as they come; it decides nothing about results.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import torch

from parvibench.core.errors import DataMissingError, InputError, UnsupportedError, printable
from parvibench.core.result import Status
from parvibench.harness.run.chunks import ChunkResult
from parvibench.harness.run.judging import judged, sealed
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.suite.cells import Cell

#: A job whose process is killed from outside is begun this often before its cell counts as crashed.
MAX_ATTEMPTS = 3
_MAX_REASON, _MAX_TRACEBACK = 500, 20_000


class Work(Protocol):
    """What an executor can run, in a process of its own."""

    def run(self, notify: Callable[[dict[str, Any]], None]) -> ChunkResult:
        """Run it here."""
        ...


W = TypeVar("W", bound=Work)


@dataclass(frozen=True)
class Job:
    """A chunk of a cell, and where its state is saved while it runs.

    Attributes:
        apart: the metrics are computed in another process than the samples (``Judging``).
    """

    cell: Cell
    chunk: int
    snapshot: SnapshotFile | None = None
    apart: bool = False

    @property
    def replicates(self) -> tuple[int, ...]:
        """Ids of the replicates."""
        return self.cell.chunks[self.chunk]

    def run(self, notify: Callable[[dict[str, Any]], None]) -> ChunkResult:
        """Run it here."""
        result = run_chunk(self.cell, self.replicates, notify, self.snapshot, deferred=self.apart)
        return sealed(result) if self.apart else result


@dataclass(frozen=True)
class Judging:
    """The second half of a plug-in's job: metrics, in a process that never runs the plug-in's code."""

    job: Job
    content: bytes

    def run(self, notify: Callable[[dict[str, Any]], None]) -> ChunkResult:
        """Run it here."""
        return judged(self.job.cell, self.job.replicates, self.content)


@dataclass(frozen=True)
class Outcome(Generic[W]):
    """How a job ended: a result, or a status with its reason."""

    job: W
    result: ChunkResult | None = None
    status: Status = Status.OK
    reason: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Progress:
    """News of a running job: iteration, share of the budget; at checkpoints a metric and its value."""

    job: Any
    news: dict[str, Any] = field(default_factory=dict)


OnProgress = Callable[[Progress], None]


class Executor(Protocol):
    """Runs jobs; outcomes come in any order, one for every job."""

    def run(self, jobs: Iterable[Job], on_progress: OnProgress) -> Iterator[Outcome[Job]]:
        """Outcomes as they come."""
        ...


def attempt(job: W, notify: Callable[[dict[str, Any]], None]) -> Outcome[W]:
    """Run a job here and turn whatever happens but Ctrl-C into an outcome."""
    try:
        return Outcome(job, job.run(notify))
    except KeyboardInterrupt:
        raise
    except DataMissingError as error:
        return Outcome(job, None, Status.SKIPPED, printable(str(error)))
    except UnsupportedError as error:
        return Outcome(job, None, Status.UNSUPPORTED, printable(str(error)))
    except InputError as error:
        return Outcome(job, None, Status.CRASHED, printable(str(error)), _trace())
    except BaseException as error:  # whatever a plug-in may raise, SystemExit included
        text = _describe(error)
        memory = isinstance(error, MemoryError) or "out of memory" in text.lower()
        status = Status.OUT_OF_MEMORY if memory else Status.CRASHED
        return Outcome(job, None, status, text.split("\n")[0][:_MAX_REASON], _trace())


def first_half(job: Any) -> Any:
    """The job; a plug-in's is to leave its metrics to ``second_half``."""
    return replace(job, apart=True) if isinstance(job, Job) and job.cell.is_plugin else job


def second_half(outcome: Outcome[Any]) -> Judging | None:
    """What is still to be done after a job, in another process; or None."""
    if isinstance(outcome.job, Job) and outcome.job.apart and outcome.result is not None:
        return Judging(outcome.job, outcome.result.sealed)
    return None


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as worse:
        text = f"(its text raised {type(worse).__name__})"
    return printable(f"{type(error).__name__}: {text}")


def _trace() -> str:
    try:
        return printable(traceback.format_exc())[-_MAX_TRACEBACK:]
    except Exception as error:  # a plug-in's __repr__ or source can fail again
        return f"(no traceback: {type(error).__name__})"


class InProcess:
    """One job after another on one thread of this process."""

    def run(self, jobs: Iterable[W], on_progress: OnProgress) -> Iterator[Outcome[W]]:
        """Outcomes in the order of the jobs."""
        for job in jobs:
            with _own_torch_settings():
                outcome = attempt(job, lambda news, job=job: on_progress(Progress(job, news)))  # type: ignore[misc]
            yield outcome


@contextmanager
def _own_torch_settings() -> Iterator[None]:
    """One thread, products in full precision; what a job changes of PyTorch's global settings is put back."""
    threads, dtype, grad = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    deterministic, state = torch.are_deterministic_algorithms_enabled(), torch.get_rng_state()
    precision = torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")  # no TF32 on a GPU
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)
        torch.set_grad_enabled(grad)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # setting it imports the compiler
            torch.use_deterministic_algorithms(deterministic)
        torch.set_rng_state(state)
