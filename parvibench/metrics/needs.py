"""What metrics find in their context, or why they do not apply; and values replicate by replicate."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable

_Value = TypeVar("_Value")


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
