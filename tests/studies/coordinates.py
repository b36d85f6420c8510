"""One wrong coordinate of many: false alarms and power of the verdict with ``worst_coordinate`` in the family.

``python tests/studies/coordinates.py levels|six|ten [--sets 400]``. ``levels``: exact draws of twelve tasks called
distinguishable, with the metric in the family and without. ``six``: one coordinate's sd wrong by six standard errors of
that coordinate's own estimate, on four tasks of 32 to 50 dimensions: detected, and named. ``ten``: one coordinate's sd 10%
or 5% too small, at n = 1,000. Wherever tails are heavy, a coordinate is scaled about its median and the estimate is its
10-90% range.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.registry import load_task
from parvibench.core.streams import derive_seed
from parvibench.core.task import Task
from parvibench.metrics.compute import compute
from parvibench.metrics.floors import ALPHA, WEIGHTS, FloorTests, floor_tests, verdict_metrics
from parvibench.metrics.moments import _marginals, worst_named
from parvibench.statistics import holm

ADDED = "worst_coordinate"
LEVELS = (
    "banana", "student-t", "funnel-10d", "gmm2-20d", "gmm40-50d", "brownian-32", "many-well-32", "student-mixture-50d",
    "lapd-mixture-32", "gaussian-100d", "x-shaped", "monomial-gamma",
)  # fmt: skip
SIX = ("brownian-32", "many-well-32", "student-mixture-50d", "gmm40-50d")
TEN = ("brownian-32", "many-well-32", "student-mixture-50d")


def is_heavy(reference: Reference) -> Tensor:
    """Which coordinates are judged by shares, (D,)."""
    return _marginals(reference.draws)[3] | reference.sd.isinf()


def standard_errors(task: Task, n: int, g: Generator, sets: int = 400) -> Tensor:
    """Relative standard error of each coordinate's sd, or 10-90% range, in n exact draws, (D,)."""
    heavy, found = is_heavy(task.reference()), []
    for _ in range(sets):
        low, high = task.exact(n, g).quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), dim=0)
        found.append(torch.where(heavy, high - low, task.exact(n, g).std(0)))
    return torch.stack(found).std(0) / torch.stack(found).mean(0)


def scaled(task: Task, x: Tensor, d: int, factor: float) -> Tensor:
    """Draws (n, D) with coordinate d scaled about its centre, which stays."""
    reference = task.reference()
    centre = reference.draws.median(0).values[d] if is_heavy(reference)[d] else reference.mean[d]
    x[:, d] = centre + factor * (x[:, d] - centre)
    return x


def judged(task: Task, x: Tensor, names: list[str]) -> tuple[FloorTests, str]:
    """Tests of draws (n, D) by metrics, and the worst coordinates that they name."""
    context = Context(task, task.reference(), task.target([0], "cpu", torch.float64))
    values = {m: v.numpy() for m, v in compute(names, x[None], context)[0].items()}
    tests = floor_tests(values, len(x), context.reference, task.metrics)
    limit = tests.floors[ADDED].quantile(1 - ALPHA) if ADDED in tests.floors else np.inf
    return tests, worst_named(x, context, [f"<{i}>" for i in range(task.dim)], limit, most=1)


def both(task: Task, x: Tensor) -> Iterator[tuple[str, bool]]:
    """Whether the verdict is ``distinguishable``, with the metric and without."""
    names = verdict_metrics(task)
    values = judged(task, x, names)[0]
    yield "with", values.verdict == "distinguishable"
    yield "alone", values.p_values[ADDED] <= ALPHA
    others = [m for m in values.p_values if m != ADDED]
    old = holm([values.p_values[m] for m in others], [{**WEIGHTS, "mode_weight_tv": 10.0}.get(m, 1.0) for m in others])
    yield "without", min(old) <= ALPHA


def main() -> None:
    """Print one line a task."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("levels", "six", "ten"))
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--n", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    total: Counter[str] = Counter()
    for name in {"levels": LEVELS, "six": SIX, "ten": TEN}[options.part]:
        task, n, found = load_task(name), options.n, Counter[str]()
        g = Generator().manual_seed(derive_seed("coordinates", options.part, name, n))
        errors = standard_errors(task, n, g) if options.part == "six" else None
        tasks = len(LEVELS) if options.part == "levels" else 1
        sets = options.sets // tasks + (LEVELS.index(name) < options.sets % tasks if tasks > 1 else 0)
        for i in range(sets):
            d = int(torch.randint(task.dim, (), generator=g))
            if options.part == "levels":
                found.update({k: int(v) for k, v in both(task, task.exact(n, g))})
            elif errors is not None:
                wrong = scaled(task, task.exact(n, g), d, 1 + 6 * float(errors[d]) * (-1) ** i)
                tests, text = judged(task, wrong, [ADDED])
                # As one of the task's family whose other p-values are all 1: never less than Holm's.
                weight = sum(WEIGHTS.get(m, 1.0) for m in verdict_metrics(task) if m in task.reference().floors)
                hit = tests.p_values[ADDED] * weight <= ALPHA
                found.update(detected=int(hit), named=int(hit and f"<{d}>" in text))
            else:
                for share in (0.9, 0.95):
                    made = both(task, scaled(task, task.exact(n, g), d, share))
                    found.update({f"{share} {k}": int(v) for k, v in made})
        total.update(found, sets=sets)
        print(f"{name}, n = {n}, {sets} sets: {dict(found)}", flush=True)
    print(f"all: {dict(total)}")


if __name__ == "__main__":
    main()
