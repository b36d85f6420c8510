"""One bit flipped in a snapshot of an interrupted run: the run resumes to the numbers of an uninterrupted one.

``python tests/studies/snapshots.py --bits 300``. Runs are stopped in the middle of their second chunk, so that a finished
chunk and a running one are there. Bits are dealt in turn to finished chunks, running ones, and the ends of both.
"""

import argparse
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
from small_runs import suite_of

from parvibench.core.result import Status
from parvibench.harness.session import run_cells
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.workers.executors import InProcess

#: Particles, mini-batches, a chain, a network with its optimiser, decisions that are a part of the state.
PAIRS = [
    ("multimodal", "svgd"), ("linear-regression", "sgld"), ("multimodal", "hmc"), ("multimodal", "ksivi"),
    ("multimodal", "ada-sifg"), ("bandit-wheel", "svgd"),
]  # fmt: skip
#: Bytes at both ends of a file: the checksum, headers and the directory.
_ENDS = 400
PLACES = ("finished", "running", "ends")


def make_cell(task: str, method: str) -> Cell:
    """Two replicates, a chunk each."""
    sizes: dict[str, Any] = {"particles": 10, "metrics": ["ksd", "mean_error", "ess_bulk"]}
    algorithm: dict[str, Any] = {"name": method}
    if task == "bandit-wheel":
        sizes = {"particles": 3, "metrics": ["regret"], "contexts": 200}
        algorithm["settings"] = {"step_size": 1e-7}
    (cell,) = expand(suite_of([task], [algorithm], replicates=2, budget={"iterations": 12}, **sizes))
    return cell.varied(chunk=1)


def run(cell: Cell, root: Path) -> StoredRun:
    """Run or resume the cell into a store."""
    return run_cells([cell], Store(root), InProcess(), suite={"name": "study"})


def interrupt(cell: Cell, root: Path) -> None:
    """Run up to the ninth step of the second chunk, with a snapshot after every look."""
    algorithm = type(cell.load()[1])
    step, place = algorithm.step, Store.snapshot

    def stops(self: Any, problem: Any, settings: Any, state: Any, streams: Any) -> Any:
        if streams.step == 8 and list(root.glob("unfinished/*/1.pt")):
            raise KeyboardInterrupt
        return step(self, problem, settings, state, streams)

    with (
        mock.patch.object(algorithm, "step", stops),
        mock.patch.object(Store, "snapshot", lambda self, *a: SnapshotFile(place(self, *a).path, every=0.0)),
    ):
        run(cell, root)
    assert {p.name for p in root.glob("unfinished/*/*")} == {"0.done.pt", "1.pt"}, (cell.task, cell.label)


def flip(root: Path, place: str, chance: Random) -> Path:
    """Flip a bit of a snapshot: the file."""
    files = sorted(root.glob("unfinished/*/*.pt"))
    path = {"finished": files[0], "running": files[1]}.get(place) or chance.choice(files)
    content = bytearray(path.read_bytes())
    at = chance.randrange(-_ENDS, _ENDS) if place == "ends" else chance.randrange(len(content))
    content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return path


def differences(found: StoredRun, right: StoredRun) -> list[str]:
    """What differs but time and memory."""
    (a,), (b,) = found.cells, right.cells
    if a.status is not Status.OK or a.traceback:
        return [f"{a.status} {a.reason} {a.traceback[-200:]}"]
    timeless = [
        c[~c["metric"].isin(["seconds", "peak_memory"])].drop(columns="seconds").reset_index(drop=True)
        for c in (found.curve(a), right.curve(b))
    ]
    wrong = [] if timeless[0].equals(timeless[1]) else ["curve"]
    for name in ("iterations", "score_evaluations", "diverged", "absent"):
        wrong += [name] if getattr(a, name) != getattr(b, name) else []
    wrong += [m for m, v in b.values.items() if m not in ("seconds", "peak_memory") and v != a.values.get(m)]
    return wrong + ([] if np.array_equal(found.samples(a), right.samples(b)) else ["samples"])


def study(bits: int, seed: int = 0) -> tuple[list[str], Counter[str]]:
    """Problems, a line each, and how many bits were dealt where."""
    chance, found, counts = Random(seed), [], Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cells = [make_cell(*pair) for pair in PAIRS]
        rights = [run(cell, folder / f"right-{i}") for i, cell in enumerate(cells)]
        for i, cell in enumerate(cells):
            interrupt(cell, folder / f"stopped-{i}")
            shutil.copytree(folder / f"stopped-{i}", folder / "whole")
            found += [f"{cell.label} undamaged: {d}" for d in differences(run(cell, folder / "whole"), rights[i])]
            shutil.rmtree(folder / "whole")
        for k in range(bits):
            i, place = k % len(cells), PLACES[k // len(cells) % len(PLACES)]
            shutil.copytree(folder / f"stopped-{i}", folder / "harmed")
            harmed = flip(folder / "harmed", place, chance)
            try:
                wrong = differences(run(cells[i], folder / "harmed"), rights[i])
            except Exception as error:  # a user would have met a traceback
                wrong = [f"traceback: {type(error).__name__}: {error}"]
            counts[place] += 1
            found += [f"{cells[i].task} x {cells[i].label}, {harmed.name} {place}: {', '.join(wrong)}"] if wrong else []
            shutil.rmtree(folder / "harmed")
    return found, counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problems, dealt = study(given.bits, given.seed)
    print(f"{given.bits} bits, {dict(dealt)}, {len(problems)} problems", *problems, sep="\n")
    raise SystemExit(bool(problems))
