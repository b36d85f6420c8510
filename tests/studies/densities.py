"""Densities that stop being numbers in the middle of a run: told, never a traceback, no sample that is not finite.

``python tests/studies/densities.py --tries 48``. From a random call on, or at one call only, a density gives NaN or
infinity, or raises, in all rows or in one. A metric without a value, as of the last call, counts as the worst in tables.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor

import parvibench as pb
from parvibench.core.result import CellRecord, Status

METHODS = ["ula", "mala", "hmc", "nuts", "svgd", "ksivi"]
VALUES = {"nan": float("nan"), "+inf": float("inf"), "-inf": float("-inf"), "raises": None}
#: How long, and in how many rows.
EXTENTS = [("on", "all"), ("on", "one"), ("once", "all"), ("once", "one")]


def density(at: int, value: float | None, extent: tuple[str, str]) -> tuple[Callable[[Tensor], Tensor], list[int]]:
    """A normal density that goes wrong at call number ``at``, and the count of its calls."""
    calls = [0]
    duration, rows = extent

    def log_density(x: Tensor) -> Tensor:
        calls[0] += 1
        found = -(x**2).sum(-1) / 2
        if calls[0] < at or (duration == "once" and calls[0] > at):
            return found
        if value is None:
            raise ValueError("no density here")
        wrong = torch.zeros_like(found, dtype=torch.bool)
        wrong.view(-1)[: None if rows == "all" else 1] = True
        return torch.where(wrong, found.abs() * value, found)

    return log_density, calls


def run(log_density: Callable[[Tensor], Tensor], method: str, folder: Path) -> tuple[CellRecord, np.ndarray | None]:
    """The only cell, and its samples."""
    found = pb.run(
        tasks=[pb.task(log_density, 2, name="mine", batched=True)], algorithms=[method], replicates=2, particles=8, samples=8,
        budget={"iterations": 24}, workers=0, tracking=False, out=folder,
    )  # fmt: skip
    (cell,) = found.cells
    return cell, found.samples(cell)


def wrong(cell: CellRecord, samples: np.ndarray | None, right: np.ndarray) -> list[str]:
    """What a reader is not told."""
    told = " ".join((cell.reason, *cell.flags))
    found = [] if cell.status in (Status.OK, Status.DIVERGED, Status.CRASHED) else [f"{cell.status}"]
    if cell.status is Status.CRASHED and "no density here" not in told and "finite" not in told:
        found.append(f"crashed: {told[:200]}")
    if cell.status is Status.OK:
        kept = [r for r in cell.spec.replicates if r not in cell.diverged]
        if samples is None or not np.isfinite(samples[kept]).all():
            found.append("ok with samples that are not finite")
        if not told and not cell.diverged and _valued(cell) and not np.array_equal(samples, right):
            found.append("other samples in silence")
    elif not told:
        found.append(f"{cell.status} in silence")
    return found


def _valued(cell: CellRecord) -> bool:
    """Whether every metric has a value in every replicate."""
    return all(v is not None and np.isfinite(v) for values in cell.values.values() for v in values)


def study(tries: int, seed: int = 0) -> tuple[list[str], Counter[str]]:
    """Problems, a line each, and what was told how often."""
    chance, found, counts = Random(seed), [], Counter[str]()
    # That a point has no density, once, is nothing that could be told from a bound of the support.
    kinds = [k for k in product(VALUES, EXTENTS) if (k[0], k[1][0]) != ("-inf", "once")]
    chance.shuffle(kinds)
    with tempfile.TemporaryDirectory() as name:
        rights = {}
        for method in METHODS:
            plain, calls = density(10**9, 0.0, EXTENTS[0])
            rights[method] = (run(plain, method, Path(name) / method)[1], calls[0])
        for i in range(tries):
            method, (value, extent) = METHODS[i % len(METHODS)], kinds[i // len(METHODS) % len(kinds)]
            right, calls_made = rights[method]
            at = chance.randrange(calls_made // 3, calls_made)
            spoilt, _ = density(at, VALUES[value], extent)
            what = f"{method}, {value} {' '.join(extent)} at call {at} of {calls_made}"
            try:
                cell, samples = run(spoilt, method, Path(name) / f"try-{i}")
                new = wrong(cell, samples, right)
                told = str(cell.status) + (", flagged" if cell.flags else "") + (", some" if cell.diverged else "")
            except pb.ParVIBenchError as error:
                new, told = ([f"{error}"] if "\n" in str(error) else []), "refused"
            except Exception as error:
                new, told = [f"traceback: {type(error).__name__}: {error}"], "traceback"
            counts[told] += 1
            found += [f"{what}: {', '.join(new)}"] if new else []
    return found, counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problems, answers = study(given.tries, given.seed)
    print(f"{given.tries} densities, {dict(answers)}, {len(problems)} problems", *problems, sep="\n")
    raise SystemExit(bool(problems))
