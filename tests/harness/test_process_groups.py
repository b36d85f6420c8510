"""What workers hold and leave behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parvibench.harness.workers import process_groups

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

#: A worker with three children that share 64 MiB with it, touched by all.
SHARES = """
import mmap, os, signal, sys, time
os.setpgid(0, 0)
shared = mmap.mmap(-1, 64 * 2**20)
shared.write(bytes(64 * 2**20))
for _ in range(3):
    if os.fork() == 0:
        sum(shared[::4096])
        print("touched", flush=True)
        time.sleep(100)
print("touched", flush=True)
time.sleep(100)
"""


def test_shared_pages_count_once() -> None:
    with subprocess.Popen([sys.executable, "-c", SHARES], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        for _ in range(4):
            worker.stdout.readline()
        plain = process_groups.resident_mib([worker.pid])[worker.pid]
        once = process_groups.resident_mib([worker.pid], shared_once=True)[worker.pid]
        os.killpg(worker.pid, signal.SIGKILL)
    assert plain > 4 * 64
    assert 64 < once < 2 * 64


#: Two workers that run for ever.
DRIVER = """
import sys, time
from dataclasses import dataclass
from parvibench.harness.workers.executors import Job
from parvibench.harness.workers.processes import Workers

@dataclass
class Sleeps(Job[None]):
    def run(self, notify):
        notify({"iteration": 0, "share": 0.0})
        time.sleep(100)

if __name__ == "__main__":
    for _ in Workers(2, 60).run([Sleeps(), Sleeps()], lambda job, news: print("runs", flush=True)):
        pass
"""


@pytest.mark.ci
def test_no_files_are_left(tmp_path: Path) -> None:
    program, scratch = tmp_path / "driver.py", tmp_path / "t"
    program.write_text(DRIVER)
    scratch.mkdir()
    own = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, env=own) as driver:
        assert driver.stdout is not None
        for _ in range(2):
            assert driver.stdout.readline() == b"runs\n"
        assert [p.name[:7] for p in scratch.rglob("*.log")] == ["worker-", "worker-"]
        driver.kill()
    deadline = time.monotonic() + 20
    while list(scratch.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(scratch.rglob("*")) == []
