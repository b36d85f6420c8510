"""Samples judged by draws that were given, without a reference on disk.

Such references are small: of independent draws, several random splits in rows and pool make a floor together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core.errors import InputError, ShapeError, UnsupportedError
from parvibench.core.metric import Cost
from parvibench.core.reference import Reference
from parvibench.core.target import Target
from parvibench.core.task import Task
from parvibench.data.draws.arrays import Draws
from parvibench.data.draws.naming import listed
from parvibench.metrics.common import thin
from parvibench.metrics.compute import check_samples
from parvibench.metrics.evaluate import chain_diagnostics, counted, evaluate_samples, serially_correlated
from parvibench.metrics.floors import SIZES, silent
from parvibench.metrics.own_floors import SEED, TIMES, plan_of
from parvibench.targets.densities import METRICS

from .build import ROWS, Part, calibrated, step_between, time_major

#: Independent draws are this many times those judged.
_TIMES_ONCE = 5
#: Random splits of the draws of a small reference, and draws of the pool of each over those of a set.
_SPLITS, _POOL_ONCE = 20, 2
#: Fewest draws of a reference.
_FEWEST_ONCE = 400
#: Draws worth less than this share of their number are correlated; the smallest of many ESS is low by chance.
_INDEPENDENT = 0.5
#: Spreads below this, or above its inverse, are measured in a unit of their own.
_SMALLEST = 1e-18
#: A column is constant if its values differ by no more than this of their size: rounding in double precision.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True)
class DrawsTask(Task):
    """A law of which draws are all that is known, and what samples are compared by then."""

    name: str = "given-draws"
    summary: str = "draws given as reference"
    tags: frozenset[str] = frozenset({"own"})
    citation: str = ""
    metrics: tuple[str, ...] = tuple(metric for metric in METRICS if metric not in ("ksd", "tail_error"))

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """None: ``UnsupportedError``."""
        raise UnsupportedError(f"{self.name}: the density is not known")

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """None: ``UnsupportedError``."""
        raise UnsupportedError(f"{self.name}: there is no start")


def reference_of_draws(task: Task, draws: Tensor, n: int) -> tuple[Reference, str]:
    """A reference in memory, for samples worth n independent draws: floors at the largest size there can be; its copies.

    That is n, or a fifth of the draws, so that no sample is left out without need; of correlated draws a tenth of
    what they are worth. ``InputError`` as of ``build_from_draws``, or for fewer than 400.
    """
    copies, chains, once = time_major(task, draws, _FEWEST_ONCE)
    given, found = int(once.sum()), chain_diagnostics(chains.transpose(0, 1))
    worth = given if found is None else min(given, int(found["worth"] * given / once.numel()))
    correlated = worth < _INDEPENDENT * given
    # Neighbours on both sides of a split would make a floor too low: correlated draws are spaced until nearly independent.
    step = step_between(chains)
    if correlated or serially_correlated(chains.transpose(0, 1).flatten(0, 1)):
        step = max(step, -(-2 * given // max(worth, 1)))
    y = chains[::step].transpose(0, 1)[once[::step].T]
    own = min(n, len(y) // _TIMES_ONCE, max(SIZES))
    sizes = sorted({size for size in SIZES if size < own} | ({own} if own >= min(SIZES) else set()))[-2:]
    g = Generator().manual_seed(SEED)
    large = len(y) - ROWS >= TIMES * _POOL_ONCE * own
    held_out = len(y) - ROWS if large else _POOL_ONCE * own
    orders = (torch.randperm(len(y), generator=g) for _ in range(1 if large or not sizes else _SPLITS))
    parts = [Part(thin(y[o[held_out:]], ROWS), y[o[held_out:]], y[o[:held_out]], copies.repeats) for o in orders]
    worth = worth if correlated else given
    head = {"exact": False, "certified": False, "made_for": sizes[-1:], "worth": worth, "given": given}
    return calibrated(task, parts, plan_of(task, sizes[-1:], sizes, copies.repeats), head, silent), copies.said


def evaluate_against(
    draws: Draws, given: Draws, metrics: Sequence[str] | None, cost: Cost | None, task: Task | None = None
) -> dict[str, Any]:
    """The document of ``evaluate`` for samples and reference draws, whose columns correspond.

    Without a task, columns that have one value in every draw of both are left out: there is nothing to compare.

    Raises:
        ShapeError: another number of columns.
        InputError: the samples are the reference, no column varies, or as of ``reference_of_draws``.
    """
    wide, own = draws.values.shape[-1], given.values.shape[-1]
    if task is None and wide != own:
        hint = (
            "; if they are chains of one number, say --axes chain,draw" if own == 1 and draws.values.ndim == 2 else ""
        )
        raise ShapeError(f"the samples have {_columns(wide)}, the reference has {_columns(own)}{hint}")
    if draws.values.shape == given.values.shape and np.array_equal(draws.values, given.values):
        raise InputError("samples and reference are the same draws: give draws that are independent of the samples")
    for what, of in (("samples have", draws), ("reference has", given)):
        if math.prod(of.values.shape[:-1]) < 2:
            raise InputError(f"the {what} one draw: at least two are needed")
    said = list(draws.read)
    if task is None:
        draws, given, constant = _varying(draws, given)
        said += [f"constant, and left out: {listed(constant)}"] if constant else []
        task = DrawsTask(dim=draws.values.shape[-1])
        unit = _unit(given.values)
        if unit != 1:
            draws, given = (replace(d, values=d.values / unit) for d in (draws, given))
            said.append(f"in units of {unit:.3g}")
    x = torch.tensor(draws.values)
    check_samples(x.flatten(0, -2), task)  # before floors are simulated
    copies, path, rows = counted(x)
    known = None if path is None else chain_diagnostics(path)
    n = len(rows) if known is None else min(len(rows), int(known["worth"] * copies.counted.mean()))
    reference, said_copies = reference_of_draws(task, torch.tensor(given.values), n)
    said += [f"of the reference {said_copies}"] if said_copies else []
    if (worth := reference.certificate["worth"]) < (total := reference.certificate["given"]):
        said.append(f"the {total:,} draws of the reference are correlated, worth {worth:,} independent ones")
    document = evaluate_samples(task, x, cost, metrics, reference, draws.names)
    return document | {"read": "; ".join(filter(None, [*said, document["read"]]))}


def _unit(x: NDArray[np.float64]) -> float:
    """A power of two near the largest spread where squares, or single precision, would leave their range; else 1."""
    spread = float(np.nanmax(np.ptp(x.reshape(-1, x.shape[-1]), axis=0)))
    extreme = math.isfinite(spread) and not _SMALLEST < spread < 1 / _SMALLEST
    return 2.0 ** round(math.log2(spread)) if extreme else 1.0


def _columns(count: int) -> str:
    return f"{count} column" + ("s" if count > 1 else "")


def _varying(draws: Draws, given: Draws) -> tuple[Draws, Draws, list[str]]:
    """Both without the columns that have one value in all draws, and the names of these."""
    both = [d.values.reshape(-1, d.values.shape[-1]) for d in (draws, given)]
    x = np.concatenate(both)
    with np.errstate(invalid="ignore"):
        constant = np.ptp(x, axis=0) <= _ROUNDING * np.abs(x.min(0))
    if not constant.any():
        return draws, given, []
    if constant.all():
        raise InputError("every column has one value in all draws, of samples and reference alike: nothing to compare")
    names = draws.names or tuple(f"column {i + 1}" for i in range(len(constant)))
    left = [name for name, out in zip(names, constant, strict=True) if out]
    kept = [i for i, out in enumerate(constant) if not out]
    draws, given = (
        replace(d, values=d.values[..., kept], names=tuple(d.names[i] for i in kept) if d.names else ())
        for d in (draws, given)
    )
    return draws, given, left
