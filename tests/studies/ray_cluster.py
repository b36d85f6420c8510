"""Ray: two local workers give the bits of this process, a killed Ray worker's cell is done again.

``python tests/studies/ray_cluster.py``
"""

import contextlib
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from small_runs import run, suite_of

from parvibench.core.result import Status
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.cluster import Cluster

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


def killed_worker(folder: Path) -> tuple[list[str], int]:
    """Kill the first busy Ray worker while it runs; what is wrong afterwards, and how many were killed."""
    suite = make_suite(["sgld"], tasks=["multimodal"], budget={"iterations": 3000}, replicates=2)
    here = run(suite, folder / "here")
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 120
        while not killed and time.monotonic() < deadline:
            time.sleep(0.2)
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    # A worker that serves has a fork server below it with a sampler's process.
                    busy = len(process.children(recursive=True)) > 2
                    if busy and "ray::serve" in " ".join(process.cmdline()):
                        process.kill()
                        killed.append(process.pid)
                        return

    thread = threading.Thread(target=kill)
    thread.start()
    there = run(suite, folder / "there", cluster())
    thread.join()
    found = []
    for a, b in zip(here.cells, there.cells, strict=True):
        if b.status is not Status.OK or not np.array_equal(here.samples(a), there.samples(b)):
            found.append(f"{b.label}: {b.status} {b.reason}")
    return found, len(killed)


def main() -> int:
    """The number of problems."""
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.monotonic()
        found = same_bits(folder / "bits")
        print(f"bits: {len(found)} problems, {time.monotonic() - start:.0f} s")
        more, killed = killed_worker(folder / "killed")
        found += more + ([] if killed else ["no worker was killed"])
        print(f"killed workers: {killed}, {len(more)} problems, {time.monotonic() - start:.0f} s")
        print("\n".join(found))
        return len(found)


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
