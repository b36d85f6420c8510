"""The interface of executors and their jobs, and the plainest executor: one job after another, here.

An executor takes jobs and yields their outcomes as they come, each with the number of its job; it knows nothing of results.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import torch

from parvibench.core.errors import BudgetExhausted, DataMissingError, InputError, UnsupportedError, printable
from parvibench.core.result import Status
from parvibench.harness.run.clock import one_thread

#: A job whose process is killed from outside is started this often before it counts as crashed.
MAX_ATTEMPTS = 3
_MAX_REASON, _MAX_TRACEBACK = 500, 20_000

T = TypeVar("T")
#: News of a running job: iteration, share of the budget; at checkpoints a metric and its value.
News = dict[str, Any]
Notify = Callable[[News], None]
OnProgress = Callable[[int, News], None]  #: Called with the number of a job and its news.
Run = Callable[[Notify], T]  #: What a process does for a job.


class Job(ABC, Generic[T]):
    """What an executor can run; picklable where the executor has other processes."""

    #: Modules that a fork server imports once, for all of its workers; by default those of a run.
    preload: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def run(self, notify: Notify) -> T:
        """Run it here."""

    def split(self) -> tuple[Run[bytes], Callable[[bytes], Run[T]]] | None:
        """``run`` in two parts for a process each, where nothing but bytes may pass from the first to the second; else None."""
        return None


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How a job ended: a result, or a status with its reason."""

    result: T | None
    status: Status = Status.OK
    reason: str = ""
    traceback: str = ""


def attempt(run: Run[T], notify: Notify) -> Outcome[T]:
    """Run a job, or a part of it, here and turn every error but Ctrl-C into an outcome."""
    try:
        return Outcome(run(notify))
    except KeyboardInterrupt:
        raise
    except (DataMissingError, UnsupportedError) as error:
        status = Status.SKIPPED if isinstance(error, DataMissingError) else Status.UNSUPPORTED
        return Outcome(None, status, printable(str(error)))
    except BudgetExhausted as error:  # in the start: steps end with the budget
        reason = f"the budget ends before the first step ({error}): give more, or another start"
        return Outcome(None, Status.UNSUPPORTED, printable(reason))
    except InputError as error:
        return Outcome(None, Status.CRASHED, printable(str(error)), _trace())
    except BaseException as error:  # whatever a plug-in may raise, SystemExit included
        text = _describe(error)
        memory = isinstance(error, MemoryError) or "out of memory" in text.lower()
        status = Status.OUT_OF_MEMORY if memory else Status.CRASHED
        return Outcome(None, status, text.split("\n")[0][:_MAX_REASON], _trace())


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

    def run(self, jobs: Sequence[Job[T]], on_progress: OnProgress) -> Iterator[tuple[int, Outcome[T]]]:
        """Outcomes in the order of the jobs."""
        for number, job in enumerate(jobs):
            with _own_torch_settings():
                outcome = attempt(job.run, partial(on_progress, number))
            yield number, outcome


@contextmanager
def _own_torch_settings() -> Iterator[None]:
    """One thread, products in full precision; what a job changes of PyTorch's global settings is put back."""
    dtype, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # no TF32 on a GPU
    try:
        with one_thread(), torch.random.fork_rng(devices=()), torch.set_grad_enabled(torch.is_grad_enabled()):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # setting it imports the compiler
            torch.use_deterministic_algorithms(deterministic)
