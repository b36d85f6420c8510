"""What questions share: generators with an address, and statistics of points."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core.streams import derive_seed

from .question import Expected, Law

#: Sets of exact draws behind the law of a statistic.
SETS = 1000
#: Settings as a tuple, so that questions can be compared and cached.
Settings = tuple[tuple[str, Any], ...]


def settings_of(**values: Any) -> Settings:
    """Settings that a question can hold."""
    return tuple(values.items())


def generator_of(*parts: object) -> Generator:
    """A generator seeded by its address."""
    return Generator().manual_seed(derive_seed("truth", *parts))


def per_replicate(ids: Sequence[int], width: int | None) -> Iterator[tuple[int, ...]]:
    """The replicates in chunks of at most ``width``."""
    step = width or len(ids)
    return (tuple(ids[first : first + step]) for first in range(0, len(ids), step))


def joined(parts: Iterable[Mapping[str, Iterable[float]]]) -> dict[str, list[float]]:
    """The statistics of replicates that were measured apart, together."""
    found: dict[str, list[float]] = {}
    for part in parts:
        for name, values in part.items():
            found.setdefault(name, []).extend(values)
    return found


def as_values(values: Tensor) -> list[float]:
    """One number per replicate, +inf where it is not finite."""
    return torch.where(values.isfinite(), values, torch.inf).tolist()


def laws(found: Mapping[str, Sequence[float] | NDArray[np.float64]]) -> dict[str, Expected]:
    """Every statistic's draws as its law."""
    return {name: Law(np.asarray(values, dtype=np.float64)) for name, values in found.items()}
