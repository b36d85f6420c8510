"""Where chunks run: in this process, or in worker processes of one thread each.

An executor takes jobs and yields outcomes as they come; it decides nothing about results. A worker serves
one job and ends, so that nothing a sampler does to its process outlives the job.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from parvibench.core.errors import DataMissingError, InputError, UnsupportedError
from parvibench.core.result import Status

from .cells import Cell
from .runner import ChunkResult, run_chunk

#: Large temporaries are kept instead of being given back to the system; read by the C library at start.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
_PRELOAD = ["parvibench.harness.executors", "parvibench.harness.preload"]


@dataclass(frozen=True)
class Job:
    """A chunk of a cell."""

    cell: Cell
    chunk: int

    @property
    def replicates(self) -> tuple[int, ...]:
        """Ids of the replicates."""
        return self.cell.chunks[self.chunk]


@dataclass(frozen=True)
class Outcome:
    """How a job ended: a result, or a status with its reason."""

    job: Job
    result: ChunkResult | None = None
    status: Status = Status.OK
    reason: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Progress:
    """A checkpoint of a running job: iteration, share of the budget, metric and value."""

    job: Job
    news: dict[str, Any] = field(default_factory=dict)


Event = Outcome | Progress
OnProgress = Callable[[Progress], None]


class Executor(Protocol):
    """Runs jobs; outcomes come in any order, one for every job."""

    def run(self, jobs: Iterable[Job], on_progress: OnProgress) -> Iterator[Outcome]:
        """Outcomes as they come."""
        ...


def attempt(job: Job, notify: Callable[[dict[str, Any]], None]) -> Outcome:
    """Run a job here and turn whatever happens into an outcome."""
    try:
        return Outcome(job, run_chunk(job.cell, job.replicates, notify))
    except DataMissingError as error:
        return Outcome(job, None, Status.SKIPPED, str(error))
    except UnsupportedError as error:
        return Outcome(job, None, Status.UNSUPPORTED, str(error))
    except MemoryError as error:
        return Outcome(job, None, Status.OUT_OF_MEMORY, str(error) or "out of memory", traceback.format_exc())
    except InputError as error:
        return Outcome(job, None, Status.CRASHED, str(error))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        kind = Status.OUT_OF_MEMORY if "out of memory" in text.lower() else Status.CRASHED
        return Outcome(job, None, kind, text.split("\n")[0][:500], traceback.format_exc())


class InProcess:
    """One job after another on one thread of this process."""

    def run(self, jobs: Iterable[Job], on_progress: OnProgress) -> Iterator[Outcome]:
        """Outcomes in the order of the jobs."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for job in jobs:
                yield attempt(job, lambda news, job=job: on_progress(Progress(job, news)))  # type: ignore[misc]
        finally:
            torch.set_num_threads(threads)


class Workers:
    """Up to ``count`` processes at a time, a fresh one for every job.

    Args:
        count: processes.
        timeout: wall-clock limit of a job, s.
    """

    def __init__(self, count: int, timeout: float) -> None:
        self._count, self._timeout = count, timeout

    def run(self, jobs: Iterable[Job], on_progress: OnProgress) -> Iterator[Outcome]:
        """Outcomes as jobs end; on leaving early all workers are killed."""
        context = _start_method()
        running: dict[Any, _Worker] = {}
        waiting = iter(jobs)
        try:
            while True:
                while len(running) < self._count and (job := next(waiting, None)) is not None:
                    worker = _Worker(context, job, self._timeout)
                    running[worker.pipe] = worker
                if not running:
                    return
                ready = wait([w.pipe for w in running.values()], timeout=0.5)
                for worker in list(running.values()):
                    outcome = worker.poll(worker.pipe in ready, on_progress)
                    if outcome is not None:
                        del running[worker.pipe]
                        yield outcome
        finally:
            for worker in running.values():
                worker.kill()


def _start_method() -> Any:
    """Fork server with the heavy imports done where that is safe (Linux), else spawn."""
    if sys.platform != "linux":
        return mp.get_context("spawn")
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    os.environ.update({k: os.environ.get(k, v) for k, v in {**ALLOCATOR, **_THREADS}.items()})
    return context


_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class _Worker:
    """One process serving one job."""

    def __init__(self, context: Any, job: Job, timeout: float) -> None:
        self.job = job
        self._timeout = timeout
        handle, log = tempfile.mkstemp(prefix="parvibench-worker-", suffix=".log")
        os.close(handle)
        self._log = Path(log)
        self.pipe: Connection
        self.pipe, child = context.Pipe(duplex=False)
        self._process: BaseProcess = context.Process(target=_serve, args=(job, child, log), daemon=True)
        self._started = time.monotonic()
        self._process.start()
        child.close()

    def poll(self, readable: bool, on_progress: OnProgress) -> Outcome | None:
        """The outcome if the job has ended."""
        if readable:
            try:
                message = self.pipe.recv()
            except (EOFError, OSError):
                return self._end(self._death())
            if isinstance(message, Outcome):
                return self._end(message)
            on_progress(Progress(self.job, message))
            return None
        if time.monotonic() - self._started > self._timeout:
            reason = f"no result within {self._timeout:g} s of wall-clock time (raise it with --timeout)"
            return self._end(Outcome(self.job, None, Status.TIMEOUT, reason))
        return None

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join(5)
        self.pipe.close()
        self._log.unlink(missing_ok=True)

    def _death(self) -> Outcome:
        """The process ended without a word."""
        self._process.join(5)
        code = self._process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {signal.Signals(-code).name}"
        with contextlib.suppress(OSError):
            tail = self._log.read_bytes()[-4000:].decode(errors="replace")
        return Outcome(self.job, None, Status.CRASHED, f"the worker process died: {how}", tail)

    def _end(self, outcome: Outcome) -> Outcome:
        self.kill()
        return outcome


def _serve(job: Job, pipe: Connection, log: str) -> None:
    """Body of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    handle = os.open(log, os.O_WRONLY | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(BrokenPipeError):
        pipe.send(attempt(job, pipe.send))
    pipe.close()
