"""Densities that stop being numbers, or functions, in the middle of a run: told, never a traceback, no sample that is not finite.

``python tests/studies/densities.py --tries 144``. From a random call on, or at one call only, a density gives NaN or
infinity, has noise, or raises, in all rows, in one, or beyond a bound that the first points do not reach; or it has noise
from the first call on. A metric without a value, as of the last call, counts as the worst in tables.
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
from parvibench.harness.run.account import UNDEFINED

METHODS = ["ula", "mala", "hmc", "nuts", "svgd", "ksivi"]
VALUES = ["nan", "inf", "-inf", "noise", "raises"]
#: How long, and in which rows.
EXTENTS = [("on", "all"), ("on", "one"), ("once", "all"), ("once", "one"), ("ever", "beyond"), ("ever", "all")]
#: A point without density is nothing to tell, nor is noise of a single call or of a part of the space.
UNTOLD = [("-inf", "once", "all"), ("-inf", "once", "one"), ("-inf", "ever", "beyond"),
          ("noise", "once", "all"), ("noise", "once", "one"), ("noise", "ever", "beyond")]  # fmt: skip
#: Of the first coordinate; no method starts beyond it.
_BOUND = 0.8


def density(at: int, value: str, extent: tuple[str, str]) -> tuple[Callable[[Tensor], Tensor], list[int]]:
    """A normal density that goes wrong at call number ``at``, and the count of its calls."""
    calls, generator = [0], torch.Generator().manual_seed(0)
    duration, rows = extent

    def log_density(x: Tensor) -> Tensor:
        calls[0] += 1
        found = -(x**2).sum(-1) / 2
        if (calls[0] < at and duration != "ever") or (duration == "once" and calls[0] > at):
            return found
        wrong = x[..., 0] > _BOUND if rows == "beyond" else torch.zeros_like(found, dtype=torch.bool)
        if rows != "beyond":
            wrong.view(-1)[: None if rows == "all" else 1] = True
        if value == "raises" and wrong.any():
            raise ValueError("no density here")
        if value == "noise":
            return found + wrong * torch.randn(found.shape, generator=generator)
        # Not by torch.where of two densities: through it the score of a row that is right would be NaN, too.
        return found if value == "raises" else found * torch.where(wrong, -float(value), 1.0)

    return log_density, calls


def start(n: int, generator: torch.Generator) -> Tensor:
    """First points, (n, 2)."""
    return torch.rand(n, 2, generator=generator) - 0.5


def run(log_density: Callable[[Tensor], Tensor], method: str, folder: Path) -> tuple[CellRecord, np.ndarray | None]:
    """The only cell, and its samples."""
    found = pb.run(
        tasks=[pb.task(log_density, 2, name="mine", batched=True, initial=start)], algorithms=[method], replicates=2,
        particles=8, samples=8, budget={"iterations": 24}, workers=0, tracking=False, out=folder,
    )  # fmt: skip
    (cell,) = found.cells
    return cell, found.samples(cell)


def wrong(cell: CellRecord, samples: np.ndarray | None, right: np.ndarray) -> list[str]:
    """What a reader is not told."""
    told = " ".join((cell.reason, *(flag for flag in cell.flags if "machine" not in flag)))
    found = [] if cell.status in (Status.OK, Status.DIVERGED, Status.CRASHED) else [f"{cell.status}"]
    if cell.status is Status.CRASHED and "no density here" not in told and "finite" not in told:
        found.append(f"crashed: {told[:200]}")
    if UNDEFINED in cell.flags and "too large" in cell.reason:
        found.append("the step size is blamed")
    if cell.status is Status.OK:
        kept = [r for r in cell.spec.replicates if r not in cell.diverged]
        if samples is None or not np.isfinite(samples[kept]).all():
            found.append("ok with samples that are not finite")
        if not told and not cell.diverged and _valued(cell) and not np.array_equal(samples, right):
            found.append("other samples in silence")
    elif not told:
        found.append(f"{cell.status} in silence")
    return found


#: Of a density that is wrong from the first call on.
REFUSED = {"noise": "gives other values when it is called again", "raises": "no density here"}


def refused(message: str, value: str, extent: tuple[str, str]) -> list[str]:
    """What is wrong with the answer to a density that was not run."""
    cause = REFUSED.get(value, f"is {value} at the initial point") if extent == ("ever", "all") else ""
    return [] if "\n" not in message and cause in message else [f"refused: {message}"]


def _valued(cell: CellRecord) -> bool:
    """Whether every metric has a value in every replicate."""
    return all(v is not None and np.isfinite(v) for values in cell.values.values() for v in values)


def study(tries: int, seed: int = 0) -> tuple[list[str], Counter[str]]:
    """Problems, a line each, and what was told how often."""
    chance, found, counts = Random(seed), [], Counter[str]()
    kinds = [(value, extent) for value, extent in product(VALUES, EXTENTS) if (value, *extent) not in UNTOLD]
    chance.shuffle(kinds)
    with tempfile.TemporaryDirectory() as name:
        rights = {}
        for method in METHODS:
            plain, calls = density(10**9, "nan", EXTENTS[0])
            rights[method] = (run(plain, method, Path(name) / method)[1], calls[0])
        for i in range(tries):
            turn, kind = divmod(i, len(kinds))  # every kind in the first 24 tries, with every method in 144
            method, (value, extent) = METHODS[(kind + turn) % len(METHODS)], kinds[kind]
            right, calls_made = rights[method]
            at = chance.randrange(calls_made // 3, calls_made)
            spoilt, _ = density(at, value, extent)
            what = f"{method}, {value} {' '.join(extent)} at call {at} of {calls_made}"
            try:
                cell, samples = run(spoilt, method, Path(name) / f"try-{i}")
                new = wrong(cell, samples, right)
                told = str(cell.status) + (", flagged" if cell.flags else "") + (", some" if cell.diverged else "")
            except pb.ParVIBenchError as error:
                new, told = refused(str(error), value, extent), "refused"
            except Exception as error:
                new, told = [f"traceback: {type(error).__name__}: {error}"], "traceback"
            counts[told] += 1
            found += [f"{what}: {', '.join(new)}"] if new else []
    return found, counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=144)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problems, answers = study(given.tries, given.seed)
    print(f"{given.tries} densities, {dict(answers)}, {len(problems)} problems", *problems, sep="\n")
    raise SystemExit(bool(problems))
