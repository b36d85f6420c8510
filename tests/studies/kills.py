"""SIGKILLs at random moments to the driver or a worker: the store ends equal to that of an undisturbed run.

``python tests/studies/kills.py --kills 100`` runs 40 cells over and over, in stores of their own, until so many
kills have been dealt, and compares every finished store with the undisturbed one.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import numpy as np
import psutil
from small_runs import run, suite_of

from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.processes import Workers

TASKS = [
    "banana", "multimodal", "x-shaped", "correlated-2d", "gmm5-2d", "gmm2-2d", "monomial-gamma", "student-t",
]  # fmt: skip
METHODS = ["svgd", "sgld", "srld", "ksivi", "ada-sifg"]
#: Facts of a record that depend on the moment.
TIMED = ("seconds", "overheads", "created", "drift", "flags", "process", "files", "sha256")


def make_suite(tasks: int, iterations: int) -> Suite:
    """Five methods on the first tasks, in two chunks each."""
    return suite_of(
        TASKS[:tasks], METHODS, replicates=3, particles=1000, samples=100,
        budget={"iterations": iterations}, metrics=["ksd", "mean_error", "ess_bulk"],
    )  # fmt: skip


def drive(store: Path, suite: Suite) -> None:
    """The run that gets killed; its chunks save their state five times a second."""
    place = Store.snapshot
    Store.snapshot = lambda self, *chunk: SnapshotFile(place(self, *chunk).path, every=0.2)  # type: ignore[method-assign]
    run(suite, store, Workers(2, 600))


def kill_until_done(store: Path, arguments: list[str], chance: Random, longest: float, most: int) -> int:
    """Run and kill until a run comes to its end, or ``most`` kills are dealt; how many it took.

    In every life of the driver up to two workers are killed (a job survives two), then the driver.
    """
    kills = 0
    while True:
        command = [sys.executable, __file__, "--drive", str(store), *arguments]
        driver = subprocess.Popen(command, start_new_session=True)
        start = time.monotonic()
        workers = 2
        for moment in sorted(chance.uniform(0, longest) for _ in range(3)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(max(0.0, start + moment - time.monotonic()) if kills < most else 1200)
            if driver.poll() is not None:
                assert driver.returncode == 0
                return kills
            if workers and kill_a_worker(driver.pid, chance):
                workers -= 1
                kills += 1
        if kills < most:
            driver.kill()
            kills += 1
            driver.wait()


def kill_a_worker(driver: int, chance: Random) -> bool:
    """Kill one process that serves a job, if there is any."""
    with contextlib.suppress(psutil.Error):
        servers = [p for p in psutil.Process(driver).children() if "forkserver" in " ".join(p.cmdline())]
        if workers := [p for server in servers for p in server.children()]:
            chance.choice(workers).kill()
            return True
    return False


def differences(store: Store, right: Store) -> list[str]:
    """Where a store differs from the undisturbed one in anything but time."""
    found = []
    names = [sorted(p.name for p in (s.root / "cells").iterdir()) for s in (store, right)]
    if names[0] != names[1]:
        found.append(f"cells: {sorted(set(names[0]) ^ set(names[1]))}")
    for key in set(names[0]) & set(names[1]):
        records = [json.loads((s.folder(key) / "cell.json").read_text()) for s in (store, right)]
        plain = [{k: v for k, v in r.items() if k not in TIMED} for r in records]
        if plain[0] != plain[1]:
            found.append(f"{key}: {[k for k in plain[0] if plain[0][k] != plain[1].get(k)]}")
        if not np.array_equal(store.samples(key), right.samples(key)):
            found.append(f"{key}: samples")
        curves = [s.curve(key).drop(columns="seconds") for s in (store, right)]
        if not curves[0].equals(curves[1]):
            found.append(f"{key}: curve")
    unfinished = store.root / "unfinished"
    if unfinished.exists() and list(unfinished.iterdir()):
        found.append(f"left: {[p.name for p in unfinished.iterdir()]}")
    return found


def study(kills: int, tasks: int, iterations: int, longest: float, seed: int) -> list[str]:
    """Deal the kills; the differences afterwards, a line each."""
    chance = Random(seed)
    suite = make_suite(tasks, iterations)
    cells = expand(suite)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.monotonic()
        run(suite, folder / "right", Workers(2, 600))
        chunks = sum(len(c.chunks) for c in cells)
        print(f"{len(cells)} cells, {chunks} chunks, undisturbed {time.monotonic() - start:.0f} s")
        dealt, rounds, found = 0, 0, []
        while dealt < kills:
            store = folder / f"round-{rounds}"
            arguments = ["--tasks", str(tasks), "--iterations", str(iterations)]
            dealt += kill_until_done(store, arguments, chance, longest, kills - dealt)
            found += [f"round {rounds}: {d}" for d in differences(Store(store), Store(folder / "right"))]
            rounds += 1
            told = f"{dealt} kills in {rounds} rounds, {len(found)} differences"
            print(f"{told}, {time.monotonic() - start:.0f} s", flush=True)
        return found


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--longest", type=float, default=20.0, help="most seconds from start to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        drive(given.drive, make_suite(given.tasks, given.iterations))
    else:
        problems = study(given.kills, given.tasks, given.iterations, given.longest, given.seed)
        print("\n".join(problems))
        raise SystemExit(bool(problems))
