"""Noise floors of user-built references: of sets that share draws.

A set of n is drawn without replacement from a pool of at least ten times as many draws, none of which is among those that the
reference's rows, moments, unit and bandwidth are of: a floor's sets are compared as samples are. Floors at a sample size are
simulated when they are first needed, and stored beside the reference.
"""

import contextlib
import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.metric import Context
from parvibench.core.reference import Floored, Reference, Values, home_of, load_pool
from parvibench.core.streams import derive_seed
from parvibench.core.task import Task
from parvibench.data.atomic import write_atomically

from .compute import in_parallel, values_of
from .divergence import NEAREST
from .floors import SETS_A_METRIC, SIZES, Notify, density_of, rounded, silent, verdict_metrics

#: A pool holds at least this many times the draws of a set.
TIMES = 10
#: Sizes that the curve of the sliced distance has besides ``SIZES``.
CURVE = (2, 5, 10, 25)
#: Fewest values of a floor.
FEWEST = 200
SEED = 20241105

#: Sample size n -> a set of n draws, (n, D).
Draw = Callable[[int], Tensor]
#: Sample sizes, each with the metrics whose floors are wanted.
Plan = Sequence[tuple[int, Sequence[str]]]


def sizes_of(pool: int) -> list[int]:
    """Sample sizes whose floors a pool of so many draws allows."""
    return [n for n in SIZES if n * TIMES <= pool]


def floored_metrics(task: Task, repeats: bool = False) -> list[str]:
    """Metrics of a task's verdict; where rows repeat, without those of nearest neighbours."""
    return [metric for metric in verdict_metrics(task) if not (repeats and metric in NEAREST)]


def plan_of(task: Task, whole: Sequence[int], sizes: Sequence[int], repeats: bool = False) -> Plan:
    """All metrics at the sizes ``whole``; the sliced distance also at the other ``sizes`` and, of several, below: its curve."""
    metrics = floored_metrics(task, repeats)
    further = [*(n for n in sizes if n not in whole), *(CURVE if len(sizes) > 1 else ())]
    return [*((n, metrics) for n in whole), *((n, ["sliced_w2"]) for n in further if "sliced_w2" in metrics)]


def drawn_from(pool: Tensor, name: str) -> Draw:
    """Sets of a task's pool (m, D), those of each size from a generator of their own."""
    generators: dict[int, Generator] = {}

    def drawn(n: int) -> Tensor:
        g = generators.setdefault(n, Generator().manual_seed(derive_seed(SEED, name, f"floors-{n}")))
        return pool[torch.randperm(len(pool), generator=g)[:n]]

    return drawn


def pooled_floors(
    task: Task, pools: Sequence[tuple[Reference, Draw]], plan: Plan, *, repeats: bool = False, notify: Notify = silent
) -> dict[str, dict[int, Values]]:
    """Floors of references and sets in equal shares: metric -> size -> sorted values.

    Metrics without a finite value of every set are left out: a coordinate has one value, or rows repeat (``repeats``).
    """
    target = density_of(task)
    each = -(-max(FEWEST, SETS_A_METRIC * len(floored_metrics(task, repeats))) // len(pools))
    found: dict[tuple[str, int], list[float]] = {}

    def sets() -> Iterator[tuple[int, Sequence[str], Context, Tensor]]:
        for reference, drawn in pools:
            context = Context(task, reference, target)
            for n, names in plan:
                yield from ((n, names, context, drawn(n)) for _ in range(each))

    def values(one: tuple[int, Sequence[str], Context, Tensor]) -> tuple[int, dict[str, float]]:
        n, names, context, x = one
        return n, values_of(names, x, context)

    sizes = ", ".join(str(n) for n, names in plan if names != ["sliced_w2"])
    total = each * len(pools) * len(plan)
    for i, (n, by_metric) in enumerate(in_parallel(values, sets())):
        for name, value in by_metric.items():
            found.setdefault((name, n), []).append(value)
        if i % 20 == 0:
            notify(f"noise floors at n = {sizes}", i, total)
    floors: dict[str, dict[int, Values]] = {}
    for (name, n), numbers in found.items():
        if np.isfinite(numbers).all():
            floors.setdefault(name, {})[n] = np.sort(numbers)
    return floors


def forecast(task: Task, reference: Reference, plan: Plan, rows: Tensor) -> float:
    """Seconds that floors of one pool will take, from a set of rows (m, D) for each size."""
    context, seconds = Context(task, reference, density_of(task)), 0.0
    each = max(FEWEST, SETS_A_METRIC * len(floored_metrics(task)))
    for n, names in plan:
        values_of(names, rows[:n], context)  # fills caches
        began = time.perf_counter()
        values_of(names, rows[:n], context)
        seconds += each * (time.perf_counter() - began)
    return seconds / torch.get_num_threads()


def with_floors(task: Task, reference: Floored | None, n: int, notify: Notify = silent) -> Floored | None:
    """A task's reference with the floors that judge n samples, which are simulated and stored where they are missing.

    Other references than user-built ones with a pool are returned as they are. Floors of other sizes are left out, but for
    the curve of the sliced distance: results do not depend on what was simulated before.

    Raises:
        InputError: the draws behind the floors are missing or not those of the certificate.
    """
    if not isinstance(reference, Reference) or not (
        size := max((s for s in reference.pool_sizes if s <= n), default=0)
    ):
        return reference
    floors = {metric: dict(table) for metric, table in reference.floors.items()}
    if not any(size in table for metric, table in floors.items() if metric != "sliced_w2"):
        pool, repeats = load_pool(task.name, reference.certificate), reference.certificate["pool"]["repeats"]
        plan, pools = plan_of(task, [size], [size], repeats), [(reference, drawn_from(pool, task.name))]
        made = pooled_floors(task, pools, plan, repeats=repeats, notify=notify)
        if (home := home_of(task.name)) is not None:
            arrays = {f"{metric}/{n}": rounded(v) for metric, table in made.items() for n, v in table.items()}
            np.savez_compressed(buffer := io.BytesIO(), reference=reference.certificate["sha256"], **arrays)  # type: ignore[arg-type]
            with contextlib.suppress(OSError):  # a folder that cannot be written: they are simulated again next time
                write_atomically(Path(str(home / f"{task.name}.floors-{size}.npz")), buffer.getvalue())
        for metric, table in made.items():
            floors.setdefault(metric, {}).update({s: rounded(v).astype(np.float64) for s, v in table.items()})
    shown = {m: table if m == "sliced_w2" else {s: table[s] for s in table if s == size} for m, table in floors.items()}
    return replace(reference, floors={metric: table for metric, table in shown.items() if table})
