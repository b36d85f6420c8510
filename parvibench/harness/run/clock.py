"""Compute time on CPU and GPU, and drift of the machine's speed."""

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MAX_EVENTS = 2000  #: Events stored before their times are added up, which waits for the device.
_REPEATS, _PRODUCTS, _SIZE = 9, 100, 64


class Clock:
    """Steady compute time, from ``seconds`` on; on a GPU by events around every piece of work: the host runs ahead."""

    def __init__(self, device: torch.device, seconds: float = 0.0) -> None:
        self._cuda = device.type == "cuda"
        self._seconds = seconds
        self._began = 0.0
        self._events: list[torch.cuda.Event] = []

    @property
    def seconds(self) -> float:
        """Time between starts and stops so far, s."""
        if self._events:
            torch.cuda.synchronize()
            pairs = zip(self._events[::2], self._events[1::2], strict=True)
            self._seconds += sum(a.elapsed_time(b) for a, b in pairs) / 1000
            self._events.clear()
        return self._seconds

    def start(self) -> None:
        """Work begins."""
        if self._cuda:
            self._mark()
        else:
            self._began = time.perf_counter()

    def stop(self, uncounted: float = 0.0) -> None:
        """Work ends, of which so many seconds do not count."""
        self._seconds -= uncounted
        if not self._cuda:
            self._seconds += time.perf_counter() - self._began
            return
        self._mark()
        if len(self._events) >= _MAX_EVENTS:
            self._seconds = self.seconds

    def _mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._events.append(event)


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread, as in a worker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def reference_seconds(device: torch.device) -> float:
    """Time of a chain of small products, called as a sampler's steps are: the median of nine, s (10 ms in all on a CPU)."""
    x = torch.full((_SIZE, _SIZE), 1 / _SIZE, device=device)
    times = []
    for _ in range(_REPEATS):
        clock = Clock(device)
        clock.start()
        y = x
        for _ in range(_PRODUCTS):
            y = y @ x
        clock.stop()
        times.append(clock.seconds)
    return statistics.median(times)


def peak_memory(device: torch.device) -> float | None:
    """Peak memory, MiB: PyTorch's on a GPU, this process's otherwise; None where the system does not report it."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
