"""Worker processes and whatever they start: bounded, watched, and ended together.

Three nets, because a process may break out of one: a worker leads a process group of its own, which is killed
as a whole; on Linux its forked children die with their parent; and whoever still holds the worker's log open
is found by it. When the driver dies, so do its workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing as mp
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1


def settle(log: Path) -> None:
    """Called first in a worker: leads its group, dies with the driver, writes to the log.

    Args:
        log: takes standard output and error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)  # appending: the driver may cut it
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    if sys.platform == "win32":
        return
    import resource

    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        _die_with_the_parent()
        os.register_at_fork(after_in_child=_die_with_the_parent)
        with contextlib.suppress(OSError):  # if the system runs out of memory, this goes first
            Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with_the_driver() -> None:
    driver = mp.parent_process()
    if driver is not None:
        driver.join()
        _kill_group(os.getpid())
        os._exit(1)


def _die_with_the_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_group(leader: int) -> None:
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def end(worker: int, log: Path) -> None:
    """Kill a worker's group and everyone who holds its log."""
    _kill_group(worker)
    for pid in _holders(log):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _holders(log: Path) -> Iterator[int]:
    """Other processes whose standard output or error is the log (told by Linux only)."""
    if sys.platform != "linux":
        return
    name = str(log.resolve())
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if name in (str((process / "fd" / n).readlink()) for n in "12"):
                    yield int(process.name)


def resident_mib(worker: int) -> float:
    """Memory of a worker with all processes it has started, MiB."""
    if sys.platform == "linux":
        page = os.sysconf("SC_PAGE_SIZE") / 2**20
        return sum(_resident_pages(pid) for pid in _family(worker)) * page
    used = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(worker)
        for member in (process, *process.children(recursive=True)):
            used += member.memory_info().rss / 2**20
    return used


def _resident_pages(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return 0


def _family(pid: int) -> Iterator[int]:
    """The process and its descendants; psutil would look at every process of the machine for them."""
    yield pid
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in (thread / "children").read_text().split():
                    yield from _family(int(child))


def machine_memory_mib() -> float:
    """Memory that this process may use, MiB: the machine's, or its control group's if that is less."""
    limits = [psutil.virtual_memory().total]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path(path).read_text()))
    return min(limits) / 2**20
