"""Ray: two local workers give the bits of this process, also when a worker, the node or the driver is killed.

``python tests/studies/ray_cluster.py --tries 5``
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from small_runs import run, suite_of

from parvibench.core.result import Status
from parvibench.harness.execution import Execution
from parvibench.harness.session import run_cells
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.cluster import Cluster
from parvibench.harness.workers.executors import InProcess

#: Ray's workers run at a low priority, and would wait for whatever else this machine does.
os.environ.setdefault("RAY_worker_niceness", "0")
PLUGIN = Path(__file__).with_name("hostile_plugins.py")


def make_suite(algorithms: list[Any], **values: object) -> Suite:
    """A suite on two targets."""
    base = {
        "tasks": ["banana", "multimodal"], "replicates": 3, "particles": 1000, "samples": 100,
        "budget": {"scores_per_particle": 20}, "metrics": ["ksd", "mean_error"],
    }  # fmt: skip
    return suite_of(**{**base, "algorithms": algorithms, **values})


def cluster(count: int = 2, timeout: float = 120.0) -> Cluster:
    """A local one."""
    return Cluster("local", count, timeout, None, 0.0)


def same_bits(folder: Path) -> list[str]:
    """Cells whose samples differ between Ray and this process; a plug-in is sent along as its source."""
    plugin = folder / "sent" / "plugin.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_bytes(PLUGIN.read_bytes())
    suite = make_suite(["svgd", "sgld", "ksivi", f"{plugin}:Good", f"{plugin}:Segfault"])
    here = run(make_suite(["svgd", "sgld", "ksivi", f"{plugin}:Good"]), folder / "here")
    there = run(suite, folder / "there", cluster())
    found = []
    by_name = {(c.task, c.label): c for c in there.cells}
    for cell in here.cells:
        other = by_name[cell.task, cell.label]
        if other.status is not Status.OK or not np.array_equal(here.samples(cell), there.samples(other)):
            found.append(f"{cell.task} x {cell.label}: {other.status} {other.reason}")
    crashed = [c for c in there.cells if c.label.endswith("Segfault")]
    found += [f"{c.label}: {c.status} {c.reason}" for c in crashed if "SIGSEGV" not in c.reason]
    return found


#: Runs for some seconds.
LONG = {"tasks": ["multimodal"], "budget": {"iterations": 12000}, "replicates": 2}


def different(here: StoredRun, there: StoredRun) -> list[str]:
    """Cells that have other samples than they have here."""
    return [
        f"{b.label}: {b.status} {b.reason}"
        for a, b in zip(here.cells, there.cells, strict=True)
        if b.status is not Status.OK or not np.array_equal(here.samples(a), there.samples(b))
    ]


def busy(process: psutil.Process) -> bool:
    """Whether it is a Ray worker that serves: it has a fork server below it with a sampler's process."""
    with contextlib.suppress(psutil.Error):
        return "ray::serve" in " ".join(process.cmdline()) and len(process.children(recursive=True)) > 2
    return False


def wait_for(driver: psutil.Process, kind: Callable[[psutil.Process], bool]) -> psutil.Process | None:
    """The first process of a kind below a driver, when it has come."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and driver.is_running() and driver.status() != psutil.STATUS_ZOMBIE:
        with contextlib.suppress(psutil.Error):
            for process in driver.children(recursive=True):
                if kind(process):
                    return process
        time.sleep(0.2)
    return None


def killed_worker(folder: Path, delay: float = 0.0) -> tuple[list[str], int]:
    """Kill the first busy Ray worker while it runs; what is wrong afterwards, and how many were killed."""
    suite = make_suite(["sgld"], **LONG)
    here = run(suite, folder / "here")
    killed: list[int] = []

    def kill() -> None:
        worker = wait_for(psutil.Process(), busy)
        time.sleep(delay)
        if worker is not None:
            worker.kill()
            killed.append(worker.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    there = run(suite, folder / "there", cluster())
    thread.join()
    return different(here, there), len(killed)


@contextlib.contextmanager
def one_node() -> Iterator[None]:
    """A local Ray with a small object store, which all runs of this process use."""
    import ray

    ray.init(num_cpus=2, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def full_object_store(folder: Path) -> list[str]:
    """The object store of the node is full of objects of another user."""
    import ray

    suite = make_suite(["sgld", "svgd"], tasks=["multimodal"])
    here = run(suite, folder / "here")
    held = [ray.put(np.zeros(1_000_000)) for _ in range(20)]
    found = different(here, run(suite, folder / "there", cluster()))
    del held
    return found


def killed_above(folder: Path, victim: str, delay: float) -> list[str]:
    """Kill the driver, or the node's process, while a cell runs: no hang, no traceback, no process left; then go on here."""
    suite = make_suite(["sgld"], **LONG)
    here = run(suite, folder / "here")
    command = [sys.executable, __file__, "--drive", str(folder / "there")]
    mark = {**os.environ, "PARVIBENCH_STUDY": str(folder)}
    driver = subprocess.Popen(command, env=mark, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if wait_for(psutil.Process(driver.pid), busy) is None:
        driver.kill()
        return [f"no worker was ever busy: {driver.communicate()[0][-500:]}"]
    time.sleep(delay)
    if victim == "driver":
        driver.kill()
        driver.wait()
    else:
        node = wait_for(psutil.Process(driver.pid), lambda p: p.name() == "raylet")
        if node is not None:
            node.kill()
    try:
        told = driver.communicate(timeout=240)[0]
    except subprocess.TimeoutExpired:
        driver.kill()
        return [f"the driver hangs when its {victim} is killed"]
    found = [told[-1500:]] if "Traceback" in told else []
    deadline = time.monotonic() + 60
    while (left := _marked(str(folder))) and time.monotonic() < deadline:
        time.sleep(0.5)
    for process in left:
        with contextlib.suppress(psutil.Error):
            found.append(f"left: {process.pid} {' '.join(process.cmdline())[:100]}")
            process.kill()
    again = run_cells(
        expand(suite),
        Store(folder / "there"),
        InProcess(),
        suite=suite.resolved(),
        execution=Execution(retry_failed=True),
    )
    return found + different(here, again)


def _marked(mark: str) -> list[psutil.Process]:
    """The processes that a driver has started and left."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("PARVIBENCH_STUDY") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def troubles(folder: Path, tries: int) -> list[str]:
    """Kill workers, nodes and drivers at several moments, fill the object store; what is wrong afterwards."""
    found = []
    with one_node():
        for i in range(tries):
            more, killed = killed_worker(folder / f"worker-{i}", delay=0.7 * i)
            found += [f"worker: {m}" for m in more] + ([] if killed else ["no worker was killed"])
            found += [f"object store: {m}" for m in full_object_store(folder / f"full-{i}")]
            print(f"{i + 1} workers and full object stores, {len(found)} problems", *found, sep="\n  ", flush=True)
    for i in range(tries):
        for victim in ("driver", "node"):
            found += [f"{victim}: {m}" for m in killed_above(folder / f"{victim}-{i}", victim, delay=0.7 * i)]
        print(f"{i + 1} drivers and nodes killed, {len(found)} problems", *found, sep="\n  ", flush=True)
    return found


def main(tries: int) -> int:
    """The number of problems."""
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.monotonic()
        found = same_bits(folder / "bits")
        print(f"bits: {len(found)} problems, {time.monotonic() - start:.0f} s", *found, sep="\n  ", flush=True)
        found += troubles(folder / "troubles", tries)
        print("\n".join(found))
        return len(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        run(make_suite(["sgld"], **LONG), given.drive, cluster(1))
    else:
        raise SystemExit(min(main(given.tries), 1))
