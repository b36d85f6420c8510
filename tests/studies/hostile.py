"""Hostile samplers among good ones: right statuses, unchanged numbers, nothing left behind.

``python tests/studies/hostile.py`` runs all of them on two workers, with good cells in between.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import small_runs

from parvibench.core.result import Status
from parvibench.harness.store.results import StoredRun
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.processes import Workers

#: Environment variable that marks the processes of this study.
MARK = "PARVIBENCH_STUDY"
PLUGINS = Path(__file__).with_name("hostile_plugins.py")
#: Class -> status, a part of the reason or of the flags.
EXPECTED = {
    "Segfault": (Status.CRASHED, "signal SIGSEGV"),
    "Leaves": (Status.CRASHED, "exit code 0"),
    "HoldsTheGil": (Status.TIMEOUT, "wall-clock"),
    "Hoards": (Status.OUT_OF_MEMORY, "MiB"),
    "TurnsNaN": (Status.DIVERGED, "3 of 3 replicates"),
    "Raises": (Status.CRASHED, r"Unspeakable: \x1b[2J\x00\udc80<script>xxx"),
    "RaisesTwice": (Status.CRASHED, "Untellable: (its text raised RuntimeError)"),
    "Exits": (Status.CRASHED, "SystemExit: 0"),
    "Floods": (Status.OK, ""),
    "Meddles": (Status.OK, ""),
    "ForksAndStays": (Status.OK, ""),
    "ForksAndDies": (Status.CRASHED, "signal SIGKILL"),
    "Ignores": (Status.OK, "ignored its budget"),
    "Begs": (Status.OK, "ignored its budget"),
    "Tampers": (Status.CRASHED, "changed the meter"),
    "Refunds": (Status.CRASHED, "changed the meter"),
    "Replaces": (Status.CRASHED, "changed the meter"),
    "Silences": (Status.OK, ""),
    "Unhooks": (Status.CRASHED, "past the meter"),
    "ForksAndBothGoOn": (Status.OK, ""),
    "Knows": (Status.OK, ""),
}
#: These give the good one's samples: what they do concerns them only, or comes when the budget is spent.
SAME_SAMPLES = ("Floods", "Meddles", "ForksAndStays", "Ignores", "Begs", "Silences", "ForksAndBothGoOn")


def make_suite(algorithms: Sequence[object]) -> Suite:
    """The algorithms on one target."""
    values = {"replicates": 3, "particles": 50, "budget": {"score_evaluations": 2000}, "metrics": ["ksd"]}
    return small_runs.suite_of(["multimodal"], algorithms, **values)


def run(folder: Path, names: Sequence[str], timeout: float = 15.0, memory: float = 4000.0) -> StoredRun:
    """Run the named samplers in this order with a good one before, between and after."""
    good = f"{PLUGINS}:Good"
    given: list[object] = [{"name": good, "label": "good-first"}]
    given += [{"name": f"{PLUGINS}:{name}", "label": name} for name in names]
    # A setting that is not read makes a cell of its own.
    given += [{"name": good, "label": f"good-{i}", "settings": {"step_size": 0.2 + i}} for i in range(2)]
    return small_runs.run(make_suite(given), folder / "store", Workers(2, timeout, memory))


def problems(results: StoredRun, folder: Path) -> list[str]:
    """Every wrong status, changed sample and process left, a line each."""
    found = []
    good = run_alone(folder)
    for cell in results.cells:
        status, part = EXPECTED.get(cell.label, (Status.OK, ""))
        told = " ".join((cell.reason, *cell.flags))
        if cell.status is not status or part not in told:
            found.append(f"{cell.label}: {cell.status} ({told[:200]}), expected {status} ({part})")
        if cell.label.startswith("good") or cell.label in SAME_SAMPLES:
            samples = results.samples(cell)
            if samples is None or not np.array_equal(samples, good):
                found.append(f"{cell.label}: samples changed")
    return found + [f"process left: {p}" for p in left_over()]


#: Samplers that damage other cells of their store.
SPOILERS = ("Overwrites", "Truncates", "Appends", "FlipsBits", "Removes", "Exchanges")


def overwritten(folder: Path) -> list[str]:
    """Samplers damage finished cells: those are reported as damaged, and the same run makes them again."""
    good = f"{PLUGINS}:Good"
    given = [{"name": good, "label": f"good-{i}", "settings": {"step_size": 0.2 + i}} for i in range(2)]
    found, right = [], run_alone(folder)
    for name in SPOILERS:
        suite = make_suite([*given, {"name": f"{PLUGINS}:{name}", "label": name}])
        first = small_runs.run(suite, folder / "spoilt", Workers(1, 60, None))
        told = [str(c.status) for c in first.cells]
        found += [] if told == ["damaged", "damaged", "ok"] else [f"{name}: cells are {told}"]
        again = small_runs.run(make_suite(given), folder / "spoilt", Workers(1, 60, None))
        found += [f"{name}: {c.label} not mended" for c in again.cells if not np.array_equal(again.samples(c), right)]
        shutil.rmtree(folder / "spoilt")
    return found


def run_alone(folder: Path) -> np.ndarray:
    """The good sampler's numbers in this process, alone."""
    results = small_runs.run(make_suite([f"{PLUGINS}:Good"]), folder / "alone")
    return results.samples(results.cells[0])


def left_over() -> list[str]:
    """Processes of this study other than this one and the fork server's two, after a while in which they may end."""
    until = time.monotonic() + 15
    while (found := running()) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def running() -> list[str]:
    """Processes of this study other than this one and the fork server's two, now."""
    mark, here = os.environ[MARK], psutil.Process()
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get(MARK) == mark and process != here
            line = " ".join(process.cmdline())
            server = process.ppid() == here.pid and ("forkserver" in line or "resource_tracker" in line)
            if ours and not server and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {line[:100]}")
        except psutil.Error:
            continue
    return found


def main(names: Sequence[str], timeout: float, memory: float) -> int:
    """The number of problems."""
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.monotonic()
        # Before the fork server starts, which keeps its own environment.
        os.environ["PARVIBENCH_STUDY_STORE"] = str(folder / "spoilt")
        results = run(folder, names, timeout, memory)
        found = problems(results, folder)
        for c in results.cells:
            print(f"{c.label:15} {c.status:14} {' '.join((c.reason, *c.flags))[:110]}")
        found += overwritten(folder) if set(names) == set(EXPECTED) else []
        found += [f"log left: {log}" for log in Path(tempfile.gettempdir()).glob("*/worker-*")]
        print(f"{len(results.cells)} cells, {time.monotonic() - start:.0f} s, {len(found)} problems")
        print("\n".join(found))
        return len(found)


def apart(*arguments: str) -> int:
    """Run this file in an environment of its own, by which the processes it leaves behind are recognised."""
    with tempfile.TemporaryDirectory() as scratch:
        own = {**os.environ, MARK: str(uuid.uuid4()), "TMPDIR": scratch, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--here", *arguments]
        return subprocess.call(command, env=own, start_new_session=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="samplers; default: all")
    parser.add_argument("--timeout", default="15", help="wall-clock limit of a cell, s")
    parser.add_argument("--memory", default="4000", help="memory limit of a worker, MiB")
    given = parser.parse_args()
    if not given.here:
        raise SystemExit(apart("--timeout", given.timeout, "--memory", given.memory, *given.names))
    raise SystemExit(min(main(given.names or list(EXPECTED), float(given.timeout), float(given.memory)), 1))
