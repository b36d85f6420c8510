"""Ctrl-C once ends a run when the write in hand is done; twice, at once; what the terminal shows meanwhile."""

import io
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from parvibench.cli import progress as shown
from parvibench.cli.progress import Display, duration
from parvibench.core.result import CellRecord, Status
from parvibench.harness.session import run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.executors import InProcess
from parvibench.harness.workers.interrupts import Interrupts, ended_in_order
from parvibench.harness.workers.jobs import ChunkJob

SUITE = Suite(
    name="t", tasks=["multimodal"], algorithms=["svgd", "sgld", "ula"], replicates=2, particles=20,
    budget={"iterations": 20}, metrics=["ksd"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """SIGHUP as a terminal gives it: under nohup the tests would find it ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_waits_for_the_end_of_a_write(number: signal.Signals) -> None:
    written = []
    before = signal.getsignal(number)
    with Interrupts() as interrupts, interrupts.suppressed():
        with interrupts.held_back():
            os.kill(os.getpid(), number)
            written.append("all of it")
        written.append("the next")
    assert written == ["all of it"]
    assert signal.getsignal(number) is before


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_removes_its_temporary_files(number: signal.Signals, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left, ended_in_order(), tempfile.TemporaryDirectory(dir=tmp_path):
        os.kill(os.getpid(), number)
    assert left.value.code == 128 + number
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) is signal.SIG_DFL


def test_the_second_signal_waits_for_nothing() -> None:
    written = []
    with Interrupts() as interrupts, interrupts.suppressed(), interrupts.held_back():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        written.append("never")
    assert written == []


def test_other_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


class SignalsWhileWriting(Store):
    """Presses Ctrl-C in the middle of the second cell's write."""

    count = 0

    def write_cell(self, record: CellRecord, *rest: object) -> None:
        self.count += 1
        if self.count == 2:
            os.kill(os.getpid(), signal.SIGINT)
        super().write_cell(record, *rest)  # type: ignore[arg-type]


def test_a_run_interrupted_while_writing_keeps_that_cell_and_resumes(tmp_path: Path) -> None:
    cells = expand(SUITE)
    first = run_cells(cells, SignalsWhileWriting(tmp_path), InProcess(), suite=SUITE.resolved())
    assert [c.status for c in first.cells] == [Status.OK, Status.OK, Status.INTERRUPTED]
    second = run_cells(cells, Store(tmp_path), InProcess(), suite=SUITE.resolved())
    assert all(c.status is Status.OK for c in second.cells)
    assert [c.created for c in second.cells[:2]] == [c.created for c in first.cells[:2]]
    assert second.run.finished


def test_plain_lines_show_rate_and_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the first of three cells after 60 s: a sixth of the work, five minutes left."""
    monkeypatch.setattr(shown, "_PLAIN_EVERY_S", 0.0)
    now = [100.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: now[0])
    text = io.StringIO()
    display = Display(Console(file=text, width=60))
    cells = expand(SUITE)
    run = run_cells(cells, Store(tmp_path), InProcess(), suite=SUITE.resolved()).run
    display.started(run, 3, 0)
    now[0] += 60
    job = ChunkJob(cells[0], 0)
    display.progress(job, {"iteration": 5, "share": 0.25, "metric": "ksd", "value": 0.125})
    display.progress(job, {"iteration": 10, "share": 0.5})
    last = text.getvalue().splitlines()[-1]
    assert last == "  0/3 cells, 0.5 a minute, about 5 min left  now: multimodal x svgd 50% ksd 0.125"
    display.progress(job, {"iteration": 20, "share": 1.0})  # its last metrics are still to come
    assert text.getvalue().splitlines()[-1].startswith("  0/3 cells, ")


def test_durations_read_well() -> None:
    assert [duration(s) for s in (0.4, 89, 300, 8000)] == ["0 s", "89 s", "5 min", "2.2 h"]
