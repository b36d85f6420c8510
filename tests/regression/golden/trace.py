"""What a trace is: a name, and a function that gives a few numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

#: A finite number, or a text: of a number that is not finite, of a choice.
Value = float | str
#: Label -> values; those of steps in their order.
Values = dict[str, list[Value]]

#: Digits stored.
_DIGITS = 10
_GOLDEN = (math.sqrt(5) - 1) / 2


class Trace(NamedTuple):
    """One trace."""

    name: str  #: what is run, the subject's name first
    take: Callable[[], Values]  #: run it


def weighted(values: ArrayLike | Tensor) -> float:
    """Mean of ``|x| + 0.3 x`` over all entries, weighted by 1/2 + frac(k (sqrt 5 - 1) / 2), k = 1, 2, ...

    Every sign and every place counts, and nothing cancels: relative rounding of the entries stays relative.
    """
    x = np.asarray(values.detach().double().cpu() if isinstance(values, Tensor) else values, dtype=np.float64).ravel()
    weights = 0.5 + np.arange(1, x.size + 1) * _GOLDEN % 1
    with np.errstate(all="ignore"):
        return float(weights @ (np.abs(x) + 0.3 * x) / x.size) if x.size else 0.0


def plain(value: Any) -> list[Value]:
    """A result of any nesting as numbers: one for each array, field, item and text in it."""
    return [_rounded(v) for v in _leaves(value)]


def _leaves(value: Any) -> Iterator[Value]:
    if isinstance(value, Tensor | np.ndarray):
        yield weighted(value)
    elif value is None or isinstance(value, str):
        yield str(value)
    elif isinstance(value, bool | int | float | np.number | np.bool_):
        yield float(value)
    elif dataclasses.is_dataclass(value):
        yield from _leaves([getattr(value, f.name) for f in dataclasses.fields(value)])
    elif isinstance(value, Mapping):
        yield from _leaves([part for key in sorted(value, key=str) for part in (str(key), value[key])])
    elif isinstance(value, Sequence) and value and all(type(v) in (int, float) for v in value) and len(value) > 6:
        yield weighted(value)
    elif isinstance(value, Sequence | set | frozenset):
        for part in sorted(value, key=str) if isinstance(value, set | frozenset) else value:
            yield from _leaves(part)
    elif hasattr(value, "tolist"):
        yield from _leaves(np.asarray(value))
    else:
        raise TypeError(f"a trace holds no {type(value).__name__}")


def _rounded(value: Value) -> Value:
    if isinstance(value, str):
        return value
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)


def taken(trace: Trace) -> Values:
    """The values of a trace; PyTorch's own generator is left as it was."""
    before = torch.get_rng_state()
    try:
        return {label: [v for value in values for v in plain(value)] for label, values in trace.take().items()}
    finally:
        torch.set_rng_state(before)
