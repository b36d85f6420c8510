"""Stores in trouble: a full disk, a read-only one, a corrupt database, two runs at a time.

``python tests/studies/broken_stores.py``. All but the last two mount a small tmpfs, which takes root.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from small_runs import command_line, run, suite_of

import parvibench as pb
from parvibench import cli
from parvibench.cli import shared
from parvibench.core.errors import StoreError
from parvibench.core.result import Status
from parvibench.harness.store.store import Store


class NoMountError(RuntimeError):
    """This process may not mount."""


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A tmpfs of that size."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NoMountError(str(error)) from None
    if done.returncode:
        raise NoMountError(done.stderr.strip())
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    """Change a mounted disk."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


#: Six cells of 120 kB.
SUITE = suite_of(
    ["banana", "multimodal"], ["sgld", "ula", "mala"],
    replicates=15, particles=100, samples=1000, budget={"iterations": 24}, metrics=["mean_error"],
)  # fmt: skip


def full_disk(folder: Path) -> list[str]:
    """Room for some cells only: a clear error, those are kept; with more room the run goes on to the same numbers."""
    found = []
    right = run(SUITE, folder / "right")
    with small_disk(folder, 400) as place:
        root = place / "store"
        try:
            run(SUITE, root)
            found.append("no error on a full disk")
        except StoreError as error:
            if "No space left on device" not in str(error):
                found.append(f"told: {error}")
        keys = [c.key for c in right.cells]
        kept = [k for k in keys if Store(root).find(k) is not None]
        if not 0 < len(kept) < len(keys):
            found.append(f"{len(kept)} of {len(keys)} cells kept")
        for key in kept:
            if not np.array_equal(Store(root).samples(key), Store(folder / "right").samples(key)):
                found.append(f"{key}: damaged")
        remount(place, "size=50m")
        after = run(SUITE, root)
        found += [
            f"{a.label}: differs after all"
            for a, b in zip(after.cells, right.cells, strict=True)
            if a.status is not Status.OK or not np.array_equal(after.samples(a), right.samples(b))
        ]
        left = [p.name for p in (root / "cells").iterdir() if p.name.startswith(".")]
        found += [f"left behind: {left}"] if left else []
    return found


def read_only_disk(folder: Path) -> list[str]:
    """A store that cannot be written is told at once; it can still be read."""
    found = []
    with small_disk(folder, 8000) as place:
        run(SUITE, place / "store")
        remount(place, "ro")
        try:
            run(SUITE, place / "store")
            found.append("no error on a read-only disk")
        except StoreError as error:
            if "Read-only file system" not in str(error):
                found.append(f"told: {error}")
        if Store(place / "store").run() is None:
            found.append("cannot be read")
    return found


#: Each writes to the disk; none may end in a traceback.
COMMANDS = {
    "run": "run -t multimodal -a hmc {size} --out {disk}/store",
    "run again": "run -t multimodal -a ula {size} --out {disk}/store",
    "run elsewhere": "run -t multimodal -a ula {size} --out {disk}/new",
    "report": "report --out {disk}/store",
    "latex": "report --out {disk}/store --format latex --to {disk}/latex",
    "figure": "report --out {disk}/store --figure curve-multimodal-sliced_w2-iteration --to {disk}/figure",
    "sync": "sync --out {disk}/store",
    "merge": "merge {disk}/store --out {disk}/merged",
    "compare": "compare {disk}/store {disk}/store --to {disk}/compare",
    "submit": "submit {disk}/store --name mine --to {disk}/mine.zip",
    "new": "new algorithm mine --to {disk}",
    "tune": "tune {disk}/suite.yaml --workers 0 --out {disk}/tuning",
    "evaluate": "evaluate {disk}/draws.npy --task multimodal --out {disk}/store",
}
_SIZE = "--replicates 3 --particles 5 --budget iterations=5 --workers 0"
#: Kilobytes left on the disk; None: it is read-only.
LEFT = (0, 24, None)
_TUNED = """
name: mine
tasks: [multimodal]
algorithms: [ula]
particles: 5
budget: {iterations: 5}
tune: {step_size: [0.01, 0.1], points: 2, replicates: 2}
"""


def commands(folder: Path) -> list[str]:
    """Every command on a full and a read-only disk: exit code 0 or 1, one clear reason, the finished cell is whole."""
    found = []
    made = folder / "made"
    told(COMMANDS["run elsewhere"].format(disk=made, size=_SIZE))
    (made / "new").rename(made / "store")
    (made / "suite.yaml").write_text(_TUNED)
    np.save(made / "draws.npy", np.random.default_rng(0).normal(size=(500, 2)))
    (cell,) = Store(made / "store").run().cells
    for left, name in product(LEFT, COMMANDS):
        (folder / "place").mkdir()
        with small_disk(folder / "place", 12_000) as disk:
            shutil.copytree(made, disk, dirs_exist_ok=True)
            if left is None:
                remount(disk, "ro")
            else:
                fill(disk, left)
            code, said = told(COMMANDS[name].format(disk=disk, size=_SIZE))
            new = [] if code in (0, 1) else [f"exit {code}"]
            new += ["no reason"] if code and not re.search("No space left|Read-only|is full", said) else []
            new += [] if Store(disk / "store").usable(cell.key) else ["the finished cell is lost"]
        (folder / "place" / "disk").rmdir()
        (folder / "place").rmdir()
        where = "read-only disk" if left is None else f"{left} kB left"
        found += [f"{name}, {where}: {n}: {said[-400:]}" for n in new]
        print(f"{name}, {where}: exit {code}: {' '.join(said.split())[-160:]}", flush=True)
    return found


def fill(disk: Path, left: int) -> None:
    """Leave some kilobytes."""
    with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - 1024 * left)


def told(words: str) -> tuple[int, str]:
    """Exit code and output of a command in this process; -1 for a traceback."""
    said = io.StringIO()
    sys.argv = ["parvibench", *words.split()]
    shared.console.file = said
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cli.main()
    except SystemExit as ended:
        return int(ended.code or 0), said.getvalue()
    except BaseException:
        return -1, traceback.format_exc()
    return 0, said.getvalue()


def corrupt_database(folder: Path) -> list[str]:
    """The mirror's SQLite file is junk: the results stand, the warning names the remedy, and it works."""
    root, told = folder / "store", []
    root.mkdir(parents=True)
    (root / "mlflow.db").write_bytes(b"SQLite format 3\0" + os.urandom(4000))
    options = {"replicates": 2, "workers": 0, "warn": told.append}
    results = pb.run(tasks=["banana"], algorithms=["exact"], out=root, **options)
    found = [] if all(c.status is Status.OK for c in results.cells) else ["cells failed"]
    if len(told) != 1 or "If mlflow.db is damaged, delete it" not in told[0]:
        found.append(f"told: {told}")
    (root / "mlflow.db").unlink()
    later = command_line("sync", "--out", str(root))
    return found + ([f"sync: {later.stderr}"] if later.returncode else [])


def two_runs(folder: Path) -> list[str]:
    """A second run on a store is refused while the first goes on unharmed."""
    right, root = run(SUITE, folder / "right"), folder / "store"
    inside, go_on = threading.Event(), threading.Event()

    class Waits:
        def started(self, *_: object) -> None: ...
        def progress(self, *_: object) -> None: ...
        def ended(self, *_: object) -> None: ...
        def finished(self, *_: object) -> None:
            inside.set()
            go_on.wait(60)

    thread = threading.Thread(target=run, args=(SUITE, root), kwargs={"observers": [Waits()]})
    thread.start()
    inside.wait(60)
    second = command_line("run", "--task", "banana", "--algorithm", "exact", "--out", str(root))
    go_on.set()
    thread.join()
    found = []
    said = second.stderr
    if second.returncode != 2 or "another run is writing" not in said or "Traceback" in said:
        found.append(f"the second run: exit {second.returncode}, {said[-300:]}")
    for cell in right.cells:
        if not np.array_equal(Store(root).samples(cell.key), right.samples(cell)):
            found.append(f"{cell.label}: differs")
    return found


CHECKS = {f.__name__: f for f in (full_disk, read_only_disk, commands, corrupt_database, two_runs)}


def main() -> int:
    """The number of problems."""
    count = 0
    for name, check in CHECKS.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = check(Path(folder))
            except NoMountError as error:
                print(f"{name}: not run ({error})")
                continue
        count += len(found)
        print(f"{name}: {len(found)} problems", *found, sep="\n  ")
    return count


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
