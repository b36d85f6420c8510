"""Samples judged by draws that were given, with or without a task."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parvibench.core.errors import InputError, ShapeError
from parvibench.core.metric import Cost
from parvibench.core.task import Task
from parvibench.data.draws.naming import listed
from parvibench.data.samples import Draws
from parvibench.metrics.evaluate import chain_diagnostics, evaluate_samples

from .own import reference_of_draws, task_of_draws

#: Spreads below this, or above its inverse, are measured in a unit of their own.
_SMALLEST = 1e-18
#: A column is constant if its values differ by no more than this of their size: rounding in double precision.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


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
    said = list(draws.read)
    if task is None:
        draws, given, constant = _varying(draws, given)
        said += [f"constant, and left out: {listed(constant)}"] if constant else []
        task = task_of_draws(draws.values.shape[-1])
        unit = _unit(given.values)
        if unit != 1:
            draws, given = (replace(d, values=d.values / unit) for d in (draws, given))
            said.append(f"in units of {unit:.3g}")
    x = torch.tensor(draws.values)
    known = chain_diagnostics(x) if x.dim() == 3 else None
    n = x.numel() // x.shape[-1]
    n = n if known is None else min(n, int(known["worth"]))
    reference = reference_of_draws(task, torch.tensor(given.values), n)
    if (worth := reference.certificate["worth"]) < (total := reference.certificate["given"]):
        said.append(f"the {total:,} draws of the reference are correlated, worth {worth:,} independent ones")
    document = evaluate_samples(task, x, cost, metrics, reference, draws.names)
    return document | {"read": "; ".join(said)}


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
    constant = _constant(np.concatenate(both))
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


def _constant(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which columns of (n, d) have one value, up to rounding."""
    with np.errstate(invalid="ignore"):
        low, high = x.min(0), x.max(0)
        return np.asarray(high - low <= _ROUNDING * np.abs(low))
