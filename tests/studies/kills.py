"""SIGKILLs at random moments to every command that writes: what it leaves ends equal to that of an undisturbed one.

``python tests/studies/kills.py --kills 200`` deals most of them to runs and their workers, in stores of their own with
their MLflow mirrors, and a tenth each to ``tune``, ``check --update``, ``merge``, ``report`` and ``reference build``. A command
is started again until it comes to its end; then its files, and of runs the mirror after ``sync``, are compared.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.util import get_temp_dir
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import psutil
from small_runs import run, suite_of

from parvibench.harness.session import run_cells
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.store.merging import shard
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.harness.workers.executors import InProcess
from parvibench.harness.workers.processes import Workers
from parvibench.metrics import own_floors
from parvibench.reference import build as builder
from parvibench.tracking.mirror import MirrorObserver, sync

TASKS = [
    "banana", "multimodal", "x-shaped", "correlated-2d", "gmm5-2d", "gmm2-2d", "monomial-gamma", "student-t",
]  # fmt: skip
METHODS = ["svgd", "sgld", "srld", "ksivi", "ada-sifg"]
#: Facts of a record that depend on the moment.
TIMED = ("seconds", "overheads", "created", "drift", "flags", "process", "files", "sha256")
TUNED = """name: tuned
tasks: [banana, multimodal]
algorithms: [svgd, sgld]
replicates: 2
budget: {iterations: 100}
tune: {step_size: [0.001, 1.0], points: 3}
"""
MINE = """import torch
import parvibench as pb
def exact(n, g):
    return 3 + 2 * torch.randn(n, 2, generator=g, dtype=torch.float64)
wide = pb.task(lambda x: -((x - 3) ** 2).sum(-1) / 8, 2, name="wide", exact=exact)
"""


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
    mirror = MirrorObserver(store)
    run(suite, store, Workers(2, 600), [mirror])
    mirror.close(120)


def survive(command: list[str], chance: Random, longest: float, most: int, workers: int = 0) -> int:
    """Run and kill until a run comes to its end, or ``most`` kills are dealt; how many it took.

    In every life up to ``workers`` workers are killed (a job survives two), then the command.
    """
    kills = 0
    while True:
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        start, spare = time.monotonic(), workers
        for moment in sorted(chance.uniform(0, longest) for _ in range(workers + 1)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, start + moment - time.monotonic()) if kills < most else 1200)
            if process.poll() is not None:
                assert process.returncode == 0, process.communicate()[1].decode()[-2000:]
                return kills
            if spare and kill_a_worker(process.pid, chance):
                spare -= 1
                kills += 1
        if kills < most:
            process.kill()
            kills += 1
            process.wait()


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
        records = [s.find(key) for s in (store, right)]
        plain = [{} if r is None else r.model_dump(exclude=set(TIMED)) for r in records]
        if not plain[0] or plain[0] != plain[1]:
            found.append(f"{key}: {[k for k in plain[1] if plain[0].get(k) != plain[1][k]]}")
        samples = [s.samples(key) for s in (store, right)]
        if any(x is None for x in samples) or not np.array_equal(*samples, equal_nan=True):  # diverged ones hold NaN
            found.append(f"{key}: samples")
        curves = [s.curve(key).drop(columns="seconds") for s in (store, right)]
        if not curves[0].equals(curves[1]):
            found.append(f"{key}: curve")
    unfinished = store.root / "unfinished"
    if unfinished.exists() and list(unfinished.iterdir()):
        found.append(f"left: {[p.name for p in unfinished.iterdir()]}")
    return found + [f"left: {p.name}" for p in store.root.rglob(".new-*")]


def mirror_differences(store: Store, right: Store) -> list[str]:
    """Where the mirrors differ in anything but time, and from their stores; read without MLflow."""
    mirrors = [mirrored(s.root, "cell_key") for s in (store, right)]
    found = [f"mirror: {len(v)} runs of cell {k}" for k, v in mirrors[0].items() if len(v) != 1]
    if mirrors[0].keys() != mirrors[1].keys():
        found.append(f"mirrored cells: {mirrors[0].keys() ^ mirrors[1].keys()}")
    for key in mirrors[0].keys() & mirrors[1].keys():
        facts = [m[key][0] for m in mirrors]
        found += [f"mirror of {key}: {k}" for k in ("status", "params", "metrics") if facts[0][k] != facts[1][k]]
        place = Path(facts[0]["artifacts"])
        for file in store.folder(key).iterdir():
            if not (place / file.name).is_file() or digest(place / file.name) != digest(file):
                found.append(f"mirror of {key}: {file.name}")
    parents = mirrored(store.root, "run_id")
    for run_id in store.runs():
        statuses = [p["status"] for p in parents.get(run_id, [])]
        if statuses != ["FINISHED"] or parents[run_id][0]["cells"] != str(len(store.run(run_id).cells)):
            found.append(f"mirror of run {run_id}: {statuses}")
    return found


def mirrored(root: Path, tag: str) -> dict[str, list[dict[str, Any]]]:
    """The active MLflow runs that carry a tag of ours, by its value."""
    found: dict[str, list[dict[str, Any]]] = {}
    with contextlib.closing(sqlite3.connect(root / "mlflow.db")) as base:
        ask = base.execute
        query = "SELECT run_uuid, status, artifact_uri FROM runs WHERE lifecycle_stage = 'active'"
        for uid, status, artifacts in ask(query).fetchall():
            tags = dict(ask("SELECT key, value FROM tags WHERE run_uuid = ?", (uid,)).fetchall())
            params = dict(ask("SELECT key, value FROM params WHERE run_uuid = ?", (uid,)).fetchall())
            metrics = ask("SELECT key, step, value FROM metrics WHERE run_uuid = ? ORDER BY 1, 2", (uid,)).fetchall()
            facts = {"status": status, "params": params, "metrics": metrics, "cells": tags.get("parvibench.n_cells")}
            if f"parvibench.{tag}" in tags:
                place = artifacts.removeprefix("file://")
                found.setdefault(tags[f"parvibench.{tag}"], []).append(facts | {"artifacts": place})
    return found


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kill_runs(kills: int, folder: Path, chance: Random, tasks: int, iterations: int, longest: float) -> list[str]:
    """Deal kills to runs and their workers; the differences afterwards, a line each."""
    suite = make_suite(tasks, iterations)
    start = time.monotonic()
    drive(folder / "right", suite)
    chunks = sum(len(c.chunks) for c in expand(suite))
    print(f"run: {chunks} chunks, undisturbed {time.monotonic() - start:.0f} s", flush=True)
    dealt, rounds, found = 0, 0, []
    while dealt < kills:
        store = Store(folder / f"round-{rounds}")
        command = [sys.executable, __file__, "--drive", str(store.root), "--tasks", str(tasks)]
        command += ["--iterations", str(iterations)]
        dealt += survive(command, chance, longest, kills - dealt, workers=2)
        told = sync(store)
        new = [*([told] if told else []), *differences(store, Store(folder / "right"))]
        found += [f"round {rounds}: {d}" for d in new + mirror_differences(store, Store(folder / "right"))]
        rounds += 1
        told = f"{dealt} kills in {rounds} rounds, {len(found)} differences, {time.monotonic() - start:.0f} s"
        print(f"run: {told}", *found, sep="\n  ", flush=True)
    return found


def parvibench(arguments: Sequence[str], die_at: int, written: Any) -> None:
    """Body of a fork of this process: the command line, which kills itself at a file that it writes, renames or removes."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(null, stream)

    def count(event: str, given: tuple[Any, ...]) -> None:
        flags = given[2] if event == "open" and len(given) > 2 else 0
        if event in ("os.rename", "os.remove", "os.mkdir") or (event == "open" and flags & (os.O_WRONLY | os.O_RDWR)):
            written.value += 1
            if written.value == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    sys.argv = ["parvibench", *arguments]
    from parvibench.cli import main

    main()


@dataclass
class Command:
    """A command line to be killed: every second time at a random file that it writes, else at a random moment."""

    arguments: list[str]
    longest: float = 0.0
    files: int = 0
    kills: int = 0

    def start(self, die_at: int = 0) -> Any:
        """The process, a fork: what it imports is there."""
        context = multiprocessing.get_context("fork")
        self.written = context.Value("i", 0)
        process = context.Process(target=parvibench, args=(self.arguments, die_at, self.written))
        process.start()
        return process

    def undisturbed(self) -> None:
        """Run it, and learn its time and how many files it writes."""
        start = time.monotonic()
        process = self.start()
        process.join()
        assert process.exitcode == 0, (self.arguments, process.exitcode)
        self.longest, self.files = time.monotonic() - start, self.written.value

    def survive(self, chance: Random, most: int) -> None:
        """Start and kill until it comes to its end, or ``most`` kills are dealt in all."""
        while True:
            at_file = self.kills % 2 and self.kills < most
            process = self.start(chance.randint(1, self.files) if at_file else 0)
            process.join(None if at_file or self.kills >= most else chance.uniform(0, self.longest))
            if process.is_alive():
                process.kill()
                process.join()
            if process.exitcode == 0:
                return
            assert process.exitcode == -signal.SIGKILL, (self.arguments, process.exitcode)
            self.kills += 1


def kill_command(
    kills: int, folder: Path, chance: Random, *arguments: str, afresh: Callable[[], object] = lambda: None
) -> None:
    """Run a command undisturbed with ``right`` in place of {}, and with ``killed`` until it was killed so often.

    ``afresh`` prepares the place of a command that came to its end.
    """
    command = Command([a.replace("{}", str(folder / "right")) for a in arguments])
    command.undisturbed()
    command.arguments = [a.replace("{}", str(folder / "killed")) for a in arguments]
    while command.kills < kills:
        afresh()
        command.survive(chance, kills)
    print(f"{arguments[0]}: {kills} kills, {command.files} files, undisturbed {command.longest:.1f} s", flush=True)


def kill_tune(kills: int, folder: Path, chance: Random) -> list[str]:
    """``tune``: the suite file is always whole, and gets the same choice."""
    for place in ("right", "killed"):
        (folder / f"{place}.yaml").write_text(TUNED)

    def afresh() -> None:
        (folder / "killed.yaml").write_text(TUNED)
        shutil.rmtree(folder / "killed", ignore_errors=True)

    kill_command(kills, folder, chance, "tune", "{}.yaml", "--out", "{}", "--workers", "0", afresh=afresh)
    chosen = [load_suite(str(folder / f"{p}.yaml")).tuned for p in ("killed", "right")]
    found = [] if chosen[0] is not None and chosen[0] == chosen[1] else ["tune: another choice"]
    return found + [f"tune: {d}" for d in differences(Store(folder / "killed"), Store(folder / "right"))]


def kill_check(kills: int, folder: Path, chance: Random) -> list[str]:
    """``check --update``: the baseline is always whole, and the same."""
    cells = ("--task", "banana", "--algorithm", "svgd", "--iterations", "50", "--seed", "1")
    arguments = ("check", *cells, "--workers", "0", "--update", "--yes", "--baseline", "{}.json")
    kill_command(kills, folder, chance, *arguments, afresh=lambda: (folder / "killed.json").unlink(missing_ok=True))
    made = [json.loads((folder / f"{p}.json").read_text()) for p in ("killed", "right")]
    timed = ("seconds", "evaluations per second")
    values = [
        {k: {n: v for n, v in c["statistics"].items() if not any(t in n for t in timed)} for k, c in m["cells"].items()}
        for m in made
    ]
    same = values[0] == values[1] and made[0]["densities"] == made[1]["densities"]
    left = [f"check left: {p.name}" for p in folder.iterdir() if p.name not in ("killed.json", "right.json")]
    return left + ([] if same else ["check: another baseline"])


def kill_merge(kills: int, folder: Path, chance: Random) -> list[str]:
    """``merge`` of two parts: the same cells."""
    suite = make_suite(2, 60)
    for i in (1, 2):
        run_cells(shard(expand(suite), i, 2), Store(folder / f"part-{i}"), InProcess(), suite=suite.resolved())
    parts = [str(folder / f"part-{i}") for i in (1, 2)]
    afresh = partial(shutil.rmtree, folder / "killed", ignore_errors=True)
    kill_command(kills, folder, chance, "merge", *parts, "--out", "{}", afresh=afresh)
    return [f"merge: {d}" for d in differences(Store(folder / "killed"), Store(folder / "right"))]


def kill_report(kills: int, folder: Path, chance: Random) -> list[str]:
    """``report``: the same files."""
    run(make_suite(2, 60), folder / "store")
    kill_command(kills, folder, chance, "report", "--out", str(folder / "store"), "--to", "{}")
    return same_files(folder / "killed", folder / "right")


def kill_build(kills: int, folder: Path, chance: Random) -> list[str]:
    """``reference build`` over an older reference: the same draws, floors and certificate."""
    place = folder / "mine.py"
    place.write_text(MINE)
    sizes = {"SIZES": (100,), "FEWEST": 300, "SETS_A_METRIC": 1, "CURVE": ()}
    build = ("reference", "build", f"{place}:wide", "--method", "exact", "--folder", "{}")
    older = Command([a.replace("{}", str(folder / "killed")) for a in build])
    with mock.patch.multiple(own_floors, **sizes), mock.patch.multiple(builder, ROWS=500, POOL=3000):
        older.undisturbed()
    with mock.patch.multiple(own_floors, **sizes), mock.patch.multiple(builder, ROWS=600, POOL=3000):
        kill_command(kills, folder, chance, *build)
    return same_files(folder / "killed", folder / "right")


def same_files(killed: Path, right: Path) -> list[str]:
    """Files that differ between two folders, but for the folder's own name."""
    pages = (killed, right)
    names = [sorted(str(p.relative_to(page)) for p in page.rglob("*") if p.is_file()) for page in pages]
    found = [f"files {set(names[0]) ^ set(names[1])}"] if names[0] != names[1] else []
    for name in set(names[0]) & set(names[1]):
        content = [(page / name).read_bytes().replace(str(page).encode(), b"") for page in pages]
        found += [f"{right.parent.name}: {name}"] if content[0] != content[1] else []
    return found


def study(kills: int, tasks: int, iterations: int, longest: float, seed: int, others: int | None = None) -> list[str]:
    """Deal the kills, ``others`` of them to each other command than a run; the differences, a line each."""
    chance = Random(seed)
    each = kills // 10 if others is None else others
    get_temp_dir()  # of this process: outside what is removed below
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name) / "tmp"
        scratch.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
        found = []
        for deal in (kill_tune, kill_check, kill_merge, kill_report, kill_build) if each else ():
            (Path(name) / deal.__name__).mkdir()
            new = deal(each, Path(name) / deal.__name__, chance)
            found += new
            print(f"{deal.__name__}: {len(new)} differences", *new, sep="\n  ", flush=True)
        if kills > 5 * each:
            found += kill_runs(kills - 5 * each, Path(name), chance, tasks, iterations, longest)
        time.sleep(2)
        mine = [p.name for p in scratch.iterdir() if p.name.startswith(("parvibench-", "pymp-"))]
        tempfile.tempdir = None
        return found + ([f"left in the temporary folder: {len(mine)}, such as {mine[0]}"] if mine else [])


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--longest", type=float, default=20.0, help="most seconds from start to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--others", type=int, help="kills of each other command; default: a tenth of all")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        drive(given.drive, make_suite(given.tasks, given.iterations))
    else:
        problems = study(given.kills, given.tasks, given.iterations, given.longest, given.seed, given.others)
        print("\n".join(problems))
        raise SystemExit(bool(problems))
