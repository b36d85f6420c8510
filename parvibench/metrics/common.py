"""What metrics share: what they need of their context, values replicate by replicate, blocks of rows, and evenly spaced rows."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable

_Value = TypeVar("_Value")
#: Entries of one block of a pairwise matrix: 2 MB in float64, a few of which fit the cache together.
BLOCK_ENTRIES = 2**18
#: In single precision, updated in place: 4 MB; narrower ones would leave matrix products idle.
WIDE_BLOCK = 2**20


def row_blocks(rows: int, columns: int, *, wide: bool = False) -> Iterator[slice]:
    """Cut ``rows`` so that a block of ``columns`` wide rows has at most BLOCK_ENTRIES entries, or WIDE_BLOCK."""
    step = max(1, (WIDE_BLOCK if wide else BLOCK_ENTRIES) // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def median_distance(x: Tensor, most: int = 2000) -> float:
    """Median distance between two different rows of at most ``most`` evenly spaced ones, in units of x."""
    rows = thin(x, most)
    return float(torch.nn.functional.pdist(rows).median())


def average_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1 of (n,) values; equal ones have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[inverse]


def thin(x: Tensor, most: int) -> Tensor:
    """At most ``most`` rows of x, evenly spaced over the whole; x itself when it is short enough."""
    return x if len(x) <= most else x[evenly(len(x), most)]


def evenly(count: int, most: int) -> Tensor:
    """At most ``most`` of the numbers 0, ..., ``count`` - 1, evenly spaced."""
    kept = min(count, most)
    return torch.arange(kept) * count // kept


def given(value: _Value | None, otherwise: str) -> _Value:
    """The value; ``NotApplicable`` with the reason ``otherwise`` where it is None."""
    if value is None:
        raise NotApplicable(otherwise)
    return value


def against_reference(
    samples: Tensor, context: Context, distance: Callable[[Tensor, Tensor], float | Tensor]
) -> Tensor:
    """``distance`` of every replicate's samples (n, D) to the reference rows (m, D) that it is judged against: (R,)."""
    values = [distance(x, context.reference_rows(r)) for r, x in enumerate(samples)]
    return torch.tensor(values, dtype=samples.dtype)
