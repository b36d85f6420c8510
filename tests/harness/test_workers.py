"""The same bits from this process, one worker and two; a worker reports for itself alone and imports no main program."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from toy_runs import suite

from parvibench.core.result import Status
from parvibench.harness.session import run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.workers.executors import InProcess, Job, Notify
from parvibench.harness.workers.processes import Workers


def test_one_worker_two_workers_and_this_process_give_the_same_bits(tmp_path: Path) -> None:
    cells = expand(suite())
    assert {len(c.chunks) for c in cells} == {2}
    plain = suite().resolved()
    results = [
        run_cells(cells, Store(tmp_path / str(i)), executor, suite=plain)
        for i, executor in enumerate([InProcess(), Workers(1, 120), Workers(2, 120)])
    ]
    for here, one, two in zip(*(r.cells for r in results), strict=True):
        assert here.status is Status.OK
        samples = [r.samples(c) for r, c in zip(results, (here, one, two), strict=True)]
        assert np.array_equal(samples[0], samples[1])
        assert np.array_equal(samples[1], samples[2])


@dataclass
class SaysItBegan(Job[str]):
    """A job that leaves a file."""

    file: Path

    def run(self, notify: Notify) -> str:
        self.file.touch()
        return self.file.name


def test_the_next_job_runs_while_the_caller_deals_with_an_outcome(tmp_path: Path) -> None:
    jobs = [SaysItBegan(tmp_path / str(i)) for i in range(3)]
    asked = []
    for number, outcome in Workers(1, 60).run(jobs, lambda job, news: None):
        assert outcome.result == jobs[number].file.name
        asked.append(jobs[number])
        follower = tmp_path / str(len(asked))
        give_up = time.monotonic() + 30
        while len(asked) < len(jobs) and not follower.exists():
            assert time.monotonic() < give_up, f"job {follower.name} waits for the caller"
            time.sleep(0.01)
    assert asked == jobs


@pytest.mark.ci
@pytest.mark.parametrize("given", ["file", "stdin"])
def test_a_script_without_a_guard_runs_once(tmp_path, given):
    """Workers do not import the main program: neither a file that runs on import, nor what Python reads from a pipe."""
    script = tmp_path / "script.py"
    script.write_text(
        "import parvibench as pb\nprint('once')\n"
        "print(pb.run(tasks=['banana'], algorithms=['sgld'], replicates=1, budget={'iterations': 3}, workers=1, tracking=False, out='s'))\n"
    )
    command = [sys.executable, *([str(script)] if given == "file" else ["-"])]
    ran = subprocess.run(command, input=script.read_text(), capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert (ran.returncode, ran.stdout.count("once")) == (0, 1), ran.stderr
    assert "crashed" not in ran.stdout
    assert "Traceback" not in ran.stderr


@dataclass(frozen=True)
class Sends(Job[int]):
    """A job whose forks report as well, or whose code writes into the worker's pipes."""

    garbage: bool

    def run(self, notify: Notify) -> int:
        if self.garbage:
            (pipe,) = (c.cell_contents for c in notify.__closure__ if hasattr(c.cell_contents, "fileno"))
            os.write(pipe.fileno(), b"\x00\x00\x00\x04\x00\x00\x00\x00")
            time.sleep(30)
        os.fork()
        for k in range(2000):
            notify({"iteration": k, "share": 0.5})
        return 7


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_forks_and_garbage_in_the_pipe_end_no_run() -> None:
    """Only the worker itself reports; what is no message is a crash of that cell alone."""
    outcomes = dict(Workers(1, 60).run([Sends(True), Sends(False)], lambda job, news: None))
    assert outcomes[0].status is Status.CRASHED
    assert "cannot be read" in outcomes[0].reason
    assert outcomes[1].result == 7
