"""Evaluate many metrics on the samples of a batch of replicates."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from scipy import special
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits
from torch import Tensor

from parvibench.core import registry
from parvibench.core.errors import ShapeError
from parvibench.core.metric import Context, NotApplicable
from parvibench.core.reference import Reference
from parvibench.core.registry import load_metric
from parvibench.core.target import Target
from parvibench.core.task import Task

from .copies import coincidence

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
#: Metrics that compare with the reference's rows, and need more than them.
_BY_ROWS = ("tail_error", "path_primary", "path_equivalent_n")
#: Samples nearer to a reference row than this, in spreads of every coordinate, are copies of it.
_NEAR = 5e-6
#: Chance of more copies than these among exact draws, where some are met by chance.
_CHANCE = 1e-6


def compute(
    names: Iterable[str], samples: Tensor, context: Context, when: Literal["every", "last"] = "last"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All metrics of a checkpoint, on samples and paths in the task's canonical coordinates.

    A replicate with a non-finite sample, or whose value is not a number, gets the worst value: +inf where
    lower is better, NaN otherwise. Costs and diagnostics stand as they are.

    Of samples (R, n, D), n >= 2: values, name -> (R,) float64 on the CPU, and the reasons of the metrics that do not apply. ``when``:
    ``every`` leaves out the metrics meant for the last checkpoint; ``last`` takes all.

    Raises:
        ShapeError: samples are no (R, n, D) batch of the task.
        UnknownNameError: no such metric.
    """
    task = context.task
    if samples.dim() != 3 or samples.shape[2] != task.dim or samples.shape[1] < 2:
        raise ShapeError(
            f"{task.name} wants samples of shape (R, n, {task.dim}) with n >= 2, got {tuple(samples.shape)}"
        )
    samples = samples.detach().to("cpu", torch.float64)
    finite = samples.isfinite().flatten(1).all(1)
    # Zeros keep the other replicates of the batch computable; their values are overwritten.
    usable = task.canonical(torch.where(finite[:, None, None], samples, 0.0))
    if context.path is not None:
        context = replace(context, path=context.task.canonical(context.path))
    usable, context = _in_units(usable, context)
    values: dict[str, Tensor] = {}
    absent: dict[str, str] = {}
    for metric in map(load_metric, names):
        if when == "every" and metric.when == "last":
            continue
        try:
            with torch.no_grad():
                found = metric.compute(usable, context)
        except NotApplicable as reason:
            absent[metric.name] = str(reason)
        else:
            worst = math.inf if metric.direction == "lower" else math.nan
            spent = metric.need in ("cost", "diagnostics")
            values[metric.name] = found if spent else torch.where(finite & ~found.isnan(), found, worst)
    return values, absent


def values_of(names: Iterable[str], x: Tensor, context: Context) -> dict[str, float]:
    """The values of one set of samples, (n, D), by all of the metrics that apply."""
    return {name: float(value[0]) for name, value in compute(names, x[None], context)[0].items()}


class _Rescaled(Target):
    """The density of z = x / units, up to a constant, of a target in x; ``units`` (D,)."""

    def __init__(self, base: Target, units: Tensor) -> None:
        self.base, self.units, self.dim = base, units, base.dim

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.base.log_density(x * self.units.to(x), batch)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        units = self.units.to(x)
        return self.base.score(x * units, batch) * units


def _in_units(x: Tensor, context: Context) -> tuple[Tensor, Context]:
    """Samples (R, n, D), path, target and reference in the reference's units, for tasks whose scales differ."""
    reference = context.reference
    if reference is None or reference.units is None:
        return x, context
    path = None if context.path is None else reference.in_units(context.path)
    target = None if context.target is None else _Rescaled(context.target, reference.units)
    return reference.in_units(x), replace(context, reference=reference.standardised, path=path, target=target)


def in_parallel(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Results in the order of the items, which are read as needed: one operation per core, each on one thread.

    PyTorch and BLAS would split every small operation over all cores, and their threads wait for one another: on cores
    that other programs use, too, that takes ten times as long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    waiting: deque[Future[_Result]] = deque()
    try:
        with ThreadPoolExecutor(threads) as pool, threadpool_limits(1, "blas"):
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(threads)


def compute_guarded(
    names: Iterable[str], samples: Tensor, context: Context, when: Literal["every", "last"] = "last"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """As ``compute``, without the metrics that copies of reference rows among the samples would flatter.

    The anchor's samples are rows of the reference and are scored against the others: they are no copies.
    """
    values, absent = compute(names, samples, context, when)
    if context.reference is not None and context.excluded_rows is None:
        copies = [copied_rows(x, context.reference) for x in context.task.canonical(samples.detach().double().cpu())]
        if max(copies) > 0:
            reason = f"{max(copies)} of {samples.shape[1]} samples are rows of the reference itself"
            biased = [m for m in values if registry.metrics()[m].need == "reference" or m in _BY_ROWS]
            absent |= dict.fromkeys(biased, reason)
    return {m: v for m, v in values.items() if m not in absent}, absent


def copied_rows(samples: Tensor, reference: Reference) -> int:
    """How many samples, (n, D), are rows of the reference, to 5e-6 of the spread of every coordinate; 0 for a single row.

    Of a thousand exact draws in the plane one comes so near to one of 10,000 rows in about 0.02% of sets. A leaderboard
    looks at a million samples, so that one row is met by chance, and flatters no method; two in one set are not. In one
    dimension more are met by chance, by density and rounding of the rows; and where values repeat: as many as rows meet
    each other.
    """
    tree, spread, share = _scaled_rows(reference.draws)
    finite = samples[samples.isfinite().all(1)]
    distances, which = tree.query((finite / spread).numpy(), p=np.inf, distance_upper_bound=_NEAR)
    near = which[np.isfinite(distances)]
    many = len(np.unique(near))
    return len(near) if many > 1 and special.pdtrc(many - 1, share * len(finite)) <= _CHANCE else 0


@lru_cache(maxsize=4)  # the key is the tensor's identity
def _scaled_rows(rows: Tensor) -> tuple[cKDTree, Tensor, float]:
    """The rows in units of half the distance of their 16% and 84% quantiles, these units, (D,), and how many a sample meets.

    By chance, that is: the number of other rows near to one, with three standard errors; in one dimension, where few rows
    may meet none, by their density.
    """
    low, high = rows.quantile(torch.tensor([0.16, 0.84], dtype=rows.dtype), dim=0)
    spread = (high - low) / 2
    spread = torch.where(spread > 0, spread, rows.std(0))  # most values are one
    spread = torch.where(spread > 0, spread, 1.0)
    tree = cKDTree((rows / spread).numpy())
    if rows.shape[1] == 1:
        return tree, spread, len(rows) * coincidence(rows[:, 0].numpy(), 2 * _NEAR * float(spread))
    pairs = (int(tree.count_neighbors(tree, _NEAR, p=np.inf)) - len(rows)) / 2
    return tree, spread, 2 * (pairs + 3 * math.sqrt(pairs)) / len(rows)


def check_samples(samples: Any, task: Task) -> Tensor:
    """A user's samples, anything NumPy or PyTorch reads as a matrix, as an (n, D) float64 tensor.

    Raises:
        ShapeError: not a matrix of numbers, wrong dimension, fewer than two rows, or not finite.
    """
    try:
        x = torch.as_tensor(samples, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(f"the samples are no array of numbers: {error}") from None
    wanted = f"{task.name} wants samples of shape (n, {task.dim})"
    if x.dim() != 2 or x.shape[1] != task.dim:
        raise ShapeError(f"{wanted}, got {tuple(x.shape)}")
    if len(x) < 2:
        raise ShapeError(f"{wanted} with n >= 2, got {tuple(x.shape)}")
    bad = ~x.isfinite().all(1)
    if bad.any():
        first = int(bad.nonzero()[0])
        raise ShapeError(
            f"{int(bad.sum())} of {len(x)} samples hold NaN or infinity, the first is number {first + 1}: {x[first].tolist()}"
        )
    return x
