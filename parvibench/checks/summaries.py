"""What questions share: generators with an address, and statistics of points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def summaries(x: Tensor, log_density: Tensor | None = None, prefix: str = "") -> dict[str, list[float]]:
    """Means, log sds and correlations of neighbouring coordinates of points (R, N, D), one value per replicate.

    ``log_density`` (R, N) at the points, where given, has the mean ``energy``; ``prefix`` stands before every name.
    """
    # Accumulated in double: a replicate that overflowed is +inf below.
    x = x.double()
    mean, centred = x.mean(1), x - x.mean(1, keepdim=True)
    sd = centred.square().mean(1).sqrt()
    found = {f"mean[{d}]": mean[:, d] for d in range(x.shape[2])}
    found |= {f"log_sd[{d}]": sd[:, d].log() for d in range(x.shape[2])}
    for d in range(x.shape[2] - 1):
        found[f"corr[{d}]"] = (centred[..., d] * centred[..., d + 1]).mean(1) / (sd[:, d] * sd[:, d + 1])
    if log_density is not None:
        found["energy"] = log_density.mean(1)
    return {prefix + name: as_values(value) for name, value in found.items()}


def as_values(values: Tensor) -> list[float]:
    """One number per replicate, +inf where it is not finite."""
    return torch.where(values.isfinite(), values, torch.inf).tolist()


def laws(found: Mapping[str, Sequence[float] | NDArray[np.float64]]) -> dict[str, Expected]:
    """Every statistic's draws as its law."""
    return {name: Law(np.asarray(values, dtype=np.float64)) for name, values in found.items()}
