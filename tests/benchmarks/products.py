"""Steps beside their matrix products alone: ``python tests/benchmarks/products.py``.

A step cannot take less time than the matrix products of its arithmetic. Those of one step are recorded, of whatever
shapes and layouts, and taken again on other numbers, by the same library on one thread, into memory that is there
already. Writes a page into ``reports/benchmarks/``.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from pairing import restart_in_environment

    restart_in_environment()

import torch
from jobs import Job
from pairing import Ratio, Run, paired_ratio
from stepping import looped
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from parvibench.harness.store.environment import hardware

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "benchmarks"
#: A step takes at most so many times its products.
LIMIT = 2.5
_STUDENT, _PATHS = "student-t", "diffusion-100"
JOBS = (
    *(
        Job(f"{name} on bnn-boston-sifg, 100 particles", "bnn-boston-sifg", name, {"preset": "bnn-boston-sifg"}, 100)
        for name in ("l2-gf", "ada-gwg", "ada-sifg", "sifg", "svgd")
    ),
    Job("ksdd on student-t", _STUDENT, "ksdd", {"preset": _STUDENT}, 1000),
    Job("mied on student-t", _STUDENT, "mied", {"preset": _STUDENT}, 1000),
    Job("uivi on diffusion-100", _PATHS, "uivi", {}, 100),
    *(
        Job(f"{name} on diffusion-100", _PATHS, name, {"preset": _PATHS}, 100)
        for name in ("sivi-sm", "sivi", "ksivi", "ksivi-ustat")
    ),
)


@dataclass(frozen=True)
class Product:
    """A batch of products (b, m, k) x (b, k, n), and how its factors lie in memory."""

    shapes: tuple[torch.Size, torch.Size]
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    dtype: torch.dtype

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        left, right = self.shapes
        return 2.0 * left.numel() * right[-1]

    def again(self) -> Callable[[], object]:
        """The product of other numbers, into its own memory."""
        left, right = (
            torch.empty_strided(shape, stride, dtype=self.dtype).normal_()
            for shape, stride in zip(self.shapes, self.strides, strict=True)
        )
        out = left @ right
        return lambda: torch.matmul(left, right, out=out)


class Recorder(TorchDispatchMode):
    """Notes every matrix product, those of the backward pass too."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("matmul", "mm", "bmm", "addmm", "baddbmm", "addmm_", "baddbmm_"):  # the first in inference mode
            pair: tuple[Tensor, Tensor] = args[-2:]
            self.products.append(Product(
                (pair[0].shape, pair[1].shape), (pair[0].stride(), pair[1].stride()), pair[0].dtype
            ))  # fmt: skip
        return func(*args, **(kwargs or {}))


def products_of(job: Job) -> list[Product]:
    """The products of a step in the middle of a run."""
    stepper = job.fresh()
    stepper.run(3)
    with Recorder() as recorder:
        stepper.run(1)
    return recorder.products


def alone(products: list[Product]) -> Run:
    """Nothing but the products."""
    each = [p.again() for p in products]

    def step() -> None:
        for product in each:
            product()

    return looped(step)


@dataclass(frozen=True)
class Row:
    """One job's outcome."""

    job: str
    gflop: float
    number: int
    ratio: Ratio  #: of the products' time to the step's

    @property
    def times(self) -> float:
        """How many times its products a step takes."""
        return 1 / self.ratio.value

    def line(self) -> str:
        """A row of the Markdown table."""
        r = self.ratio
        return (
            f"| {self.job} | {1e3 * r.ours:.3g} | {self.number} | {self.gflop:.3g} | {1e3 * r.other:.3g} "
            f"| {self.gflop / r.other:.3g} | {self.times:.2f} ({1 / r.high:.2f} to {1 / r.low:.2f}) "
            f"| {'yes' if self.times <= LIMIT else '**no**'} |"
        )


def measure(only: str, seconds: float, rounds: int) -> list[Row]:
    """One row for each job whose data are there."""
    rows = []
    for job in JOBS:
        if only not in job.name:
            continue
        if job.missing:
            print(f"{job.name}: {job.missing}", file=sys.stderr)
            continue
        products = products_of(job)
        ratio = paired_ratio(job.ours(), alone(products), seconds, rounds)
        rows.append(Row(job.name, sum(p.flops for p in products) / 1e9, len(products), ratio))
        print(rows[-1].line(), file=sys.stderr, flush=True)
    return rows


def page(rows: list[Row], rounds: int) -> str:
    """The Markdown page."""
    return f"""# Steps beside their matrix products

Made by `python tests/benchmarks/products.py` on {date.today().isoformat()}. {hardware("cpu")}, one thread, allocator of
the harness's workers. The products of one step are recorded and taken again alone; both sides take turns in one
process, {rounds} rounds, processor seconds. *times*: how many times its products a step takes, with its 95% interval;
at most {LIMIT} is aimed at.

| job | ms a step | products | GFLOP | ms of the products | GFLOP/s | times | at most {LIMIT} |
|---|---|---|---|---|---|---|---|
{chr(10).join(row.line() for row in rows)}

{REMARKS}
"""


REMARKS = """What keeps the others away, by PyTorch's profiler:

- KSDD and MIED on student-t are passes over a million pairs of particles, of which the products (their dimension is 2) are
  a small part: four fifths of KSDD's time goes into some fifty multiplications, sums and divisions of (1000, 1000) arrays
  for the gradient of the kernel Stein discrepancy, MIED's into logarithm, softmax and the like.
- UIVI takes forty network passes of its inner Hamiltonian chain, of six thousand operations in all: two fifths of the time
  are products, the rest activations, masks and the backward passes' copies.
- SIVI, SIVI-SM, KSIVI and SVGD take less than 5 ms: the fixed cost of some 500 operations, one logarithm of densities
  (SIVI) and the target's Hessian products (KSIVI) count there.
"""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="Steps beside their matrix products.")
    parser.add_argument("--only", default="", help="part of the names of the jobs")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    torch.set_num_threads(1)
    text = page(measure(given.only, given.seconds, given.rounds), given.rounds)
    (given.out / "products.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
