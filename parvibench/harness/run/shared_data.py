"""A digest of the data that cells of one process share: references, and the arrays behind densities."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parvibench.core.errors import InputError

from .chunks import Chunk

CHANGED_DATA = (
    "changed reference or data that cells of this process share: its results are void, and later cells are refused"
)
REFUSED = "not run: {cell} changed data in this process; run it in another, with --workers 1 or more"
_spoilt: list[str] = []  #: The first cell of this process that changed shared data.


def refuse_spoilt() -> None:
    """Raise ``InputError`` in a process in which a cell has changed shared data."""
    if _spoilt:
        raise InputError(REFUSED.format(cell=_spoilt[0]))


@contextmanager
def unchanged(chunk: Chunk) -> Iterator[None]:
    """Context in which a chunk runs; ``InputError`` on leaving it where shared data have changed."""
    before = _digest(chunk)
    try:
        yield
    finally:
        if _digest(chunk) != before:
            _spoilt.append(f"{chunk.cell.label} on {chunk.cell.task}")
            raise InputError(CHANGED_DATA)


def _digest(chunk: Chunk) -> str:
    task, found = chunk.task, hashlib.blake2b()
    for array in _arrays((task, task.floored(), task.target(chunk.replicates[:1], "cpu", torch.float64)), set()):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _arrays(value: Any, seen: set[int]) -> Iterator[np.ndarray]:
    """Tensors and arrays in a value and its parts; of a dataclass only the fields, not cached values."""
    if isinstance(value, (str, int, float, type, type(None))) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value.detach().cpu().numpy()
    elif isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _arrays(part, seen)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _arrays(getattr(value, field.name), seen)
    elif type(value).__module__.startswith("parvibench."):
        yield from _arrays(vars(value) if hasattr(value, "__dict__") else None, seen)
