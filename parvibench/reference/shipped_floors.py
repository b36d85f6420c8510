"""Floors that shipped references lack, of new metrics or sample sizes: ``parvibench reference floors``."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Generator, Tensor

from parvibench.core.errors import InputError
from parvibench.core.exact import ExactTask
from parvibench.core.reference import Reference, load_reference, read_certified
from parvibench.core.streams import derive_seed
from parvibench.core.task import Task
from parvibench.metrics.equivalent import POOL_SIZE, POOLS, V_STATISTICS, v_constants
from parvibench.metrics.floors import SETS, Notify, Sets, judged_metrics, missing_floors, silent, simulate_floors
from parvibench.metrics.own_floors import SEED

from .build import default_folder
from .certificates import floor_summaries, write

#: Draws for the floors of tasks whose draws rest on numerical integration: two hundred sets of the largest size.
NUMERICAL_DRAWS = 800_000


def complete_floors(
    task: Task, folder: Path | None = None, metrics: Sequence[str] | None = None, notify: Notify = silent
) -> Path | None:
    """Simulate what the floors of a task's reference lack, and write them beside its draws, which stay.

    By default of all metrics that have floors, in the package's own references. The certificate's path; None where nothing
    was missing; ``InputError`` for a task without a reference of draws, or without an exact sampler.
    """
    folder = folder or default_folder()
    found = read_certified(task.name, "draws", folder)
    reference = load_reference(task.name, folder)
    if found is None or reference is None:
        raise InputError(f"{task.name} has no reference draws whose floors could be completed")
    if "exact" not in task.provides:
        raise InputError(f"{task.name}: the chains behind its floors are not stored; build its reference again")
    metrics = metrics or judged_metrics()
    if not missing_floors(task, reference, metrics):
        return None
    sets = exact_sets(task)
    floors = simulate_floors(task, reference, sets, metrics, notify)
    certificate, arrays, _ = found
    constants = equivalence_constants(task, reference, sets, list(floors), notify)
    summary = {"v_statistics": constants, "floors": floor_summaries(floors)}
    return write(folder, task.name, certificate | summary, arrays, floors)


def equivalence_constants(
    task: Task, reference: Reference, sets: Sets, metrics: Sequence[str], notify: Notify
) -> dict[str, dict[str, float]]:
    """Gap and bias of the V-statistics among the metrics; those in the certificate stay."""
    known: dict[str, dict[str, float]] = reference.certificate.get("v_statistics", {})
    missing = [metric for metric in V_STATISTICS if metric in metrics and metric not in known]

    def pools() -> Iterator[Tensor]:
        for number, pool in enumerate(islice(sets(POOL_SIZE), POOLS)):
            notify("expected values for equivalent sample sizes", number, POOLS)
            yield pool

    return known | (v_constants(task, reference, pools(), missing) if missing else {})


def exact_sets(task: Task) -> Sets:
    """Sets of exact draws for the floors of a task with an exact sampler."""

    def generator(purpose: str) -> Generator:
        return Generator().manual_seed(derive_seed(SEED, task.name, purpose))

    if isinstance(task, ExactTask) and task.numerical:  # one draw takes as long as all its metrics
        g = generator("floor")
        every = torch.cat([task.exact(POOL_SIZE, g) for _ in range(NUMERICAL_DRAWS // POOL_SIZE)])
        return lambda n: islice(every[: len(every) // n * n].split(n), SETS)

    def fresh(n: int) -> Iterator[Tensor]:
        g = generator(f"floor-{n}")
        return (task.exact(n, g) for _ in range(SETS))

    return fresh
