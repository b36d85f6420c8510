"""Every file of a store truncated, removed, or with one bit flipped: told, nothing read otherwise, that cell alone run again.

``python tests/studies/damaged_stores.py --states 300``
"""

import argparse
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
from small_runs import run, suite_of

from parvibench.core.errors import ParVIBenchError
from parvibench.core.result import Status
from parvibench.harness.store.merging import merge
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.reporting.facts.board import table

#: Two cells: seven files with the record of the run.
SUITE = suite_of(
    ["multimodal"], ["sgld", "svgd"],
    replicates=2, particles=10, budget={"iterations": 20}, metrics=["ksd", "mean_error"],
)  # fmt: skip
HARMS = ("truncated", "removed", "flipped")


def harm(path: Path, how: str, chance: Random) -> None:
    """Damage a file."""
    content = bytearray(path.read_bytes())
    if how == "removed":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(content[: chance.randrange(len(content))])
    else:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)


def same(a: StoredRun, b: StoredRun, i: int) -> bool:
    """Whether cell number ``i`` is the same in both: record, curve and samples."""
    x, y = a.cells[i], b.cells[i]
    return x == y and a.curve(x).equals(b.curve(y)) and np.array_equal(a.samples(x), b.samples(y), equal_nan=True)


def read(root: Path, right: StoredRun, harmed: Path) -> tuple[str, list[str]]:
    """What a reader is told of a harmed store, and what is wrong with that."""
    try:
        found = StoredRun.load(Store(root))
        table(found)
        found.curves.size  # noqa: B018
    except ParVIBenchError as error:
        whole = harmed.parent.name == "runs"
        return "the run is refused", [] if whole and "\n" not in str(error) else [f"refused: {error}"]
    if found.run != right.run:
        return "", ["another run record"]
    told = [c.status is Status.DAMAGED and str(harmed.name) in c.reason for c in found.cells]
    expected = [harmed.parent.name == c.key for c in right.cells]
    wrong = [
        f"cell {i} differs in silence" for i, damaged in enumerate(told) if not damaged and not same(found, right, i)
    ]
    return "the cell is damaged", wrong + ([] if told == expected else [f"told {told}, harmed {expected}"])


def mend(root: Path, right: StoredRun) -> list[str]:
    """Run again: the harmed cell alone, to the same numbers."""
    before = {c.key: c.sha256 for c in right.cells}
    after = run(SUITE, root)
    again = [c.key for c in after.cells if c.sha256 != before[c.key]]
    wrong = [f"{len(again)} cells run again"] if len(again) > 1 else []
    for cell, old in zip(after.cells, right.cells, strict=True):
        if cell.values != old.values or not np.array_equal(after.samples(cell), right.samples(old), equal_nan=True):
            wrong.append(f"{cell.label}: other numbers when run again")
    return wrong


def study(states: int, seed: int = 0) -> tuple[list[str], Counter[str]]:
    """Problems, a line each, and how often what was told."""
    chance, found, counts = Random(seed), [], Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        right = run(SUITE, folder / "right")
        files = sorted(p.relative_to(folder / "right") for p in (folder / "right").rglob("*.*") if p.name != ".lock")
        print(f"{len(files)} files: {', '.join(sorted({p.name for p in files}))}")
        for i in range(states):
            file, how = files[i // len(HARMS) % len(files)], HARMS[i % len(HARMS)]
            root = folder / "harmed"
            shutil.copytree(folder / "right", root)
            harm(root / file, how, chance)
            try:
                told, wrong = read(root, right, root / file)
                try:
                    merge([Store(root)], Store(folder / "merged"))
                    wrong.append("merged in silence")
                except ParVIBenchError:
                    pass
                wrong += mend(root, right)
            except Exception as error:  # a user would have met a traceback
                told, wrong = "", [f"traceback: {type(error).__name__}: {error}"]
            counts[told] += 1
            found += [f"{file} {how}: {w}" for w in wrong]
            shutil.rmtree(root)
            shutil.rmtree(folder / "merged", ignore_errors=True)
    return found, counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problems, answers = study(given.states, given.seed)
    print(f"{given.states} states, {dict(answers)}, {len(problems)} problems")
    print("\n".join(problems))
    raise SystemExit(bool(problems))
