"""A GPU's chunks run in a child process, one after the other; what goes wrong in one ends that one."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from parvibench.core.result import Status
from parvibench.harness.execution import Execution
from parvibench.harness.session import make_executor
from parvibench.harness.workers.executors import InProcess, Job, Notify, Outcome
from parvibench.harness.workers.processes import Workers


@dataclass(frozen=True)
class Chunk(Job[int]):
    """A chunk on a card that goes wrong in some way, or gives the process that ran it."""

    way: str
    folder: Path

    def run(self, notify: Notify) -> int:
        """Fail in the given way."""
        if self.way == "assert":
            raise RuntimeError("CUDA error: device-side assert triggered")
        if self.way == "memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if self.way == "real assert":
            torch.zeros(3, device="cuda")[torch.tensor([7], device="cuda")].cpu()
        if self.way == "real memory":
            torch.empty(2**40, device="cuda")
        if self.way == "real hang":
            while True:
                torch.cuda._sleep(10**9)  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
        if self.way == "hang":
            time.sleep(60)
        if self.way == "lost once":
            first = self.folder / "first"
            if not first.exists():
                first.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "greedy":
            _ = bytearray(os.urandom(1) * 600 * 2**20)
            time.sleep(60)
        running = self.folder / f"running-{os.getpid()}"
        running.touch()
        others = [p for p in self.folder.glob("running-*") if p != running]
        time.sleep(0.1)
        running.unlink()
        assert not others, "two chunks at once on a card"
        return os.getpid()


def run(ways: list[str], folder: Path, **options: float) -> list[Outcome[int]]:
    executor = make_executor(Execution(**options), "cuda")
    assert isinstance(executor, Workers)
    found: dict[int, Outcome[int]] = {}
    for number, outcome in executor.run([Chunk(way, folder) for way in ways], lambda number, news: None):  # type: ignore[arg-type, list-item]
        found[number] = outcome  # type: ignore[assignment]
    return [found[i] for i in range(len(ways))]


def test_one_chunk_at_a_time_each_in_a_process_of_its_own(tmp_path: Path) -> None:
    pids = [outcome.result for outcome in run(["fine"] * 3, tmp_path, workers=3)]
    assert len({*pids, os.getpid()}) == 4


def test_an_assert_or_a_lack_of_memory_on_the_card_ends_one_chunk(tmp_path: Path) -> None:
    failed, short, fine = run(["assert", "memory", "fine"], tmp_path)
    assert (failed.status, failed.reason) == (Status.CRASHED, "RuntimeError: CUDA error: device-side assert triggered")
    assert short.status is Status.OUT_OF_MEMORY
    assert fine.status is Status.OK


@pytest.mark.ci
def test_a_hang_ends_at_the_time_limit_and_memory_of_the_host_at_its_own(tmp_path: Path) -> None:
    hung, fine = run(["hang", "fine"], tmp_path, timeout=3.0)
    assert (hung.status, fine.status) == (Status.TIMEOUT, Status.OK)
    greedy, fine = run(["greedy", "fine"], tmp_path, memory=500.0)
    assert (greedy.status, fine.status) == (Status.OUT_OF_MEMORY, Status.OK)


def test_a_worker_that_is_killed_from_outside_starts_again(tmp_path: Path) -> None:
    assert run(["lost once"], tmp_path)[0].status is Status.OK


def test_without_workers_a_card_is_used_from_this_process() -> None:
    assert isinstance(make_executor(Execution(workers=0), "cuda"), InProcess)


#: Importing what the fork server imports, with a CUDA that must not be touched: a process forked afterwards could not use it.
PRELOAD = """
import torch

def touched(*args, **kwargs):
    raise SystemExit("CUDA was touched")

for name in ("is_available", "device_count", "init", "_lazy_init", "current_device", "get_device_name"):
    setattr(torch.cuda, name, touched)
from parvibench.harness.workers.processes import PRELOAD
for module in PRELOAD:
    __import__(module)
"""


@pytest.mark.ci
def test_the_fork_server_never_touches_the_card() -> None:
    done = subprocess.run([sys.executable, "-c", PRELOAD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_real_trouble_on_the_card_ends_one_chunk(tmp_path: Path) -> None:
    ways = ["real assert", "fine", "real memory", "real hang", "fine"]
    failed, _, short, hung, fine = found = run(ways, tmp_path, timeout=20.0)
    assert [outcome.status for outcome in found] == [
        Status.CRASHED, Status.OK, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.OK,
    ]  # fmt: skip
    assert "device-side assert" in failed.reason
    assert "out of memory" in short.reason
    assert "no result within 20 s" in hung.reason
    assert fine.result not in (os.getpid(), hung.result)
