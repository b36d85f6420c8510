"""Worker processes of one thread each: a fresh one for every job, so that nothing a sampler does outlives it."""

from __future__ import annotations

import contextlib
import math
import multiprocessing as mp
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

from parvibench.core import registry
from parvibench.core.errors import printable
from parvibench.core.result import Status
from parvibench.harness.store.environment import ALLOCATOR

from . import process_groups
from .executors import MAX_ATTEMPTS, Job, News, OnProgress, Outcome, Run, T, attempt

#: Imports done once in the fork server, so that no worker pays for them.
PRELOAD = [
    "parvibench.harness.workers.processes", "parvibench.harness.workers.jobs", "arviz_stats.base", "sklearn.datasets",
    *{row.target.partition(":")[0]: None for row in registry.metrics().values() if row.built_in},
]  # fmt: skip
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_POLL_S = 0.25
_MEMORY_SHARE = 0.8  #: Share of the machine's memory that all workers together may hold.
_MAX_LOG, _TAIL = 8 * 2**20, 4000


class Workers:
    """Up to ``count`` processes at a time, a fresh one for every job, each within ``timeout`` s of wall-clock time.

    A worker that is killed from outside (by the system for lack of memory, say) is started again, twice at most.
    ``memory`` limits one worker with all it starts, MiB. When all together hold more than 80% of the machine's memory,
    the largest is ended.
    """

    def __init__(self, count: int, timeout: float, memory: float | None = None) -> None:
        self._count, self._timeout, self._memory = count, timeout, memory
        self._machine = _MEMORY_SHARE * process_groups.machine_memory_mib()
        self._checked = 0.0  #: when limits were checked

    def run(self, jobs: Sequence[Job[T]], on_progress: OnProgress) -> Iterator[tuple[int, Outcome[T]]]:
        """Outcomes as jobs end; on leaving early all workers are killed."""
        needed = dict.fromkeys(module for job in jobs for module in job.preload or PRELOAD)
        start = partial(_Worker, _start_method(needed), self._timeout)
        running: list[_Worker] = []
        waiting = enumerate(jobs)
        finished: list[tuple[int, Outcome[T]]] = []
        try:
            while True:
                while len(running) < self._count and (following := next(waiting, None)) is not None:
                    number, job = following
                    running.append(start(number, *(job.split() or (job.run, None))))
                yield from finished  # the next ones run while the caller deals with these
                finished.clear()
                if not running:
                    return
                for worker, outcome in self._ended(running, on_progress).items():
                    running.remove(worker)
                    worker.end()
                    if (again := worker.following(outcome)) is not None:
                        running.append(start(*again))
                    else:
                        finished.append((worker.number, outcome))
        finally:
            for worker in running:
                worker.end()

    def _ended(self, running: list[_Worker], on_progress: OnProgress) -> dict[_Worker, Outcome[Any]]:
        """Outcomes of the workers that end within ``_POLL_S``, or exceed a limit."""
        ready = wait([end for w in running for end in w.ends], timeout=_POLL_S)
        heard = {w: w.listen(ready, on_progress) for w in running if not w.ends.isdisjoint(ready)}
        ended = {w: outcome for w, outcome in heard.items() if outcome is not None}
        if time.monotonic() - self._checked > _POLL_S:
            self._checked = time.monotonic()
            ended |= self._over_limit([w for w in running if w not in heard])
        return ended

    def _over_limit(self, workers: list[_Worker]) -> dict[_Worker, Outcome[Any]]:
        """Outcomes of the workers that exceed a limit of time or memory."""
        resident = process_groups.resident_mib(w.pid for w in workers)
        if sum(resident.values()) > min(self._machine, self._memory or math.inf):
            resident = process_groups.resident_mib(resident, shared_once=True)
        used = {w: resident[w.pid] for w in workers}
        together = sum(used.values())
        largest = max(used, key=used.__getitem__, default=None)
        outcomes: dict[_Worker, Outcome[Any]] = {}
        for worker in workers:
            worker.cut_log()
            held, status = f"used {used[worker]:.0f} MiB of memory", Status.OUT_OF_MEMORY
            if self._memory is not None and used[worker] > self._memory:
                reason = f"{held}, more than {self._memory:g} (raise it with --memory)"
            elif together > self._machine and worker is largest:
                reason = (
                    f"{held}, the most of all workers, which together used {together:.0f}, more than 80% of the "
                    "machine's memory (try fewer --workers)"
                )
            elif time.monotonic() - worker.started > self._timeout:
                status, limit = Status.TIMEOUT, f"{self._timeout:g} s of wall-clock time"
                reason = f"no result within {limit} (raise it with --timeout); {worker.heard}"
            else:
                continue
            outcomes[worker] = Outcome(None, status, reason)
        return outcomes


def _start_method(preload: Iterable[str]) -> Any:
    """Fork server with these imports done where that is safe (Linux), else spawn; a server that runs keeps its own."""
    if sys.platform != "linux":
        return mp.get_context("spawn")
    from multiprocessing import forkserver

    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__, *preload])
    before = dict(os.environ)
    os.environ.update({**ALLOCATOR, **_THREADS, **{k: before[k] for k in ALLOCATOR if k in before}})
    try:
        forkserver.ensure_running()  # it takes its environment with it; ours stays as it was
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """Start a process that does not import the main program: a script without a guard would run once more there."""
    main = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(("__file__", "__spec__")))
    try:
        yield
    finally:
        del main["__file__"], main["__spec__"]
        main.update(before)


class _Worker:
    """One process that runs one job, or a part of it: ``then`` makes the next part of its bytes."""

    def __init__(
        self,
        context: Any,
        timeout: float,
        number: int,
        run: Run[Any],
        then: Callable[[bytes], Run[Any]] | None = None,
        attempt: int = 1,
    ) -> None:
        self.number, self.run, self.then, self.attempt = number, run, then, attempt
        self._killed = False  #: by another program: worth another try
        # In the folder that multiprocessing removes when this process ends.
        handle, log = tempfile.mkstemp(prefix="worker-", suffix=".log", dir=get_temp_dir())
        os.close(handle)
        self._log = Path(log)
        self.pipe: Connection
        self.pipe, child = context.Pipe(duplex=False)
        self._process: BaseProcess = context.Process(target=_serve, args=(run, child, self._log, timeout), daemon=True)
        self._news: News = {}
        # A job of the main program's own class needs it.
        owner = getattr(run, "__self__", None)
        with contextlib.nullcontext() if type(owner).__module__ == "__main__" else _main_hidden():
            self._process.start()
        child.close()
        self.started = self._heard_at = time.monotonic()
        self.pid = self._process.pid or 0
        #: Readable when there is news: the pipe, and the sentinel of the process. A child of the worker
        #: may hold the pipe open beyond that.
        self.ends: frozenset[Any] = frozenset((self.pipe, self._process.sentinel))

    @property
    def heard(self) -> str:
        """The worker's latest progress, for messages."""
        if not self._news:
            return "it never reported progress"
        ago = time.monotonic() - self._heard_at
        return f"last progress {ago:.0f} s earlier, at iteration {self._news['iteration']} ({100 * self._news['share']:.0f}% of its budget)"

    def listen(self, ready: Container[Any], on_progress: OnProgress) -> Outcome[Any] | None:
        """Read one message; the outcome if the job has ended."""
        if self.pipe not in ready:
            return self._death()
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            return self._death()
        except Exception as error:  # a sampler wrote into the pipe: bytes that are no message
            return Outcome(None, Status.CRASHED, f"the worker's message cannot be read: {type(error).__name__}")
        if isinstance(message, Outcome):
            return message
        self._news, self._heard_at = self._news | message, time.monotonic()
        on_progress(self.number, message)
        return None

    def following(self, outcome: Outcome[Any]) -> tuple[Any, ...] | None:
        """Arguments of the worker that goes on with the job: its second part, or another attempt; None where it has ended."""
        if self._killed and self.attempt < MAX_ATTEMPTS:
            return self.number, self.run, self.then, self.attempt + 1
        if self.then is not None and outcome.result is not None:
            return self.number, self.then(outcome.result)
        return None

    def cut_log(self) -> None:
        """Empty the log when it exceeds its limit, so that output cannot fill the disk."""
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > _MAX_LOG:
                os.truncate(self._log, 0)

    def end(self) -> None:
        """Kill the process and all that it has started."""
        process_groups.end(self.pid, self._log)
        self._process.kill()
        self._process.join(5)
        self.pipe.close()
        self._log.unlink(missing_ok=True)

    def _death(self) -> Outcome[Any]:
        """The outcome of a process that ended without sending one."""
        self._process.join(5)
        code = self._process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            self._killed = True
            how += f" in attempt {self.attempt}, perhaps by the system for lack of memory"
        tail = ""
        with contextlib.suppress(OSError):
            tail = printable(self._log.read_bytes()[-_TAIL:].decode(errors="replace"))
        return Outcome(None, Status.CRASHED, f"the worker process died: {how}", tail)


def _serve(run: Run[Any], pipe: Connection, log: Path, timeout: float) -> None:
    """Body of a worker process."""
    process_groups.settle(log, timeout)
    import torch

    torch.set_num_threads(1)
    own = os.getpid()

    def send(message: Any) -> None:
        # A sampler's fork goes on here, too: two senders at once would garble the messages.
        if os.getpid() == own:
            pipe.send(message)

    try:
        outcome = attempt(run, send)
    except KeyboardInterrupt:  # the code's own: Ctrl-C reaches the main process alone
        outcome = Outcome(None, Status.CRASHED, "KeyboardInterrupt, raised by the code of the job")
    with contextlib.suppress(BrokenPipeError):
        send(outcome)
    pipe.close()
    os._exit(0)  # without the clean-up of a plug-in
