"""Worker processes and their subprocesses: memory limits, and termination as a group.

A worker leads a process group, whose memory is counted and which is killed as a whole. A process that left the group
(``setsid``) is identified by the worker's log, which is its standard output: on Linux every process that holds the log is
killed, too. When the driver dies, its workers end themselves in the same way, those that hold the interpreter lock
some time after their time limit, and remove the folder of their logs.
"""

import contextlib
import faulthandler
import multiprocessing as mp
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

_GRACE_S = 60.0  #: A worker that its driver has not ended at the time limit ends itself so much later, s.
#: Looks at all processes for those that hold a log: what forks faster than that is beyond our means.
_MOST_LOOKS = 200


def settle(log: Path, timeout: float) -> None:
    """Called first in a worker: leads its group, dies with the driver or after its ``timeout``, s, and writes to the log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)  # appending: the driver may cut it
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    faulthandler.enable()  # a segmentation fault leaves its traceback in the log
    # Needs no interpreter lock, as the thread below does.
    faulthandler.dump_traceback_later(min(threading.TIMEOUT_MAX, timeout + _GRACE_S), exit=True)
    threading.Thread(target=_end_with_the_driver, args=(log,), daemon=True).start()
    if sys.platform == "win32":
        return
    import resource

    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # if the system runs out of memory, this goes first
            Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with_the_driver(log: Path) -> None:
    driver = mp.parent_process()
    if driver is not None:
        driver.join()
        end(os.getpid(), log, lambda: shutil.rmtree(log.parent, ignore_errors=True))
        os._exit(1)


def end(worker: int, log: Path, before: Callable[[], None] = lambda: None) -> None:
    """Kill all other processes that hold a worker's log, and, after ``before``, the worker's group.

    A process may fork between the listing of all and its own death, so that one look is not enough.
    """
    empty = 0
    for _ in range(_MOST_LOOKS):
        found = list(_holders(log))
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        empty = 0 if found else empty + 1
        if empty == 2:
            break
        if found:
            time.sleep(0.002)  # the time of a death
    before()
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)


def _holders(log: Path) -> Iterator[int]:
    """Other processes whose standard output or error is the log (on Linux; none elsewhere)."""
    if sys.platform != "linux":
        return
    name = str(log.resolve())
    names = {name, f"{name} (deleted)"}  # another worker may have removed the folder
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if not names.isdisjoint(str((process / "fd" / n).readlink()) for n in "12"):
                    yield int(process.name)


def resident_mib(workers: Iterable[int], *, shared_once: bool = False) -> dict[int, float]:
    """Memory of these process groups, MiB (Windows: processes); ``shared_once`` divides shared pages (Linux; slower)."""
    used = dict.fromkeys(workers, 0.0)
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            group = process.pid if sys.platform == "win32" else os.getpgid(process.pid)
            if group in used:
                used[group] += process.memory_info().rss / 2**20
                if shared_once and sys.platform == "linux":
                    info = process.memory_full_info()
                    used[group] += (info.pss - info.rss) / 2**20
    return used


def machine_memory_mib() -> float:
    """Memory that this process may use, MiB: the machine's, or its control group's if that is less."""
    limits = [psutil.virtual_memory().total]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path(path).read_text()))
    return min(limits) / 2**20
