"""What questions share: generators with an address, statistics of points, and ranks of exact draws in the chains through them.

For a reversible kernel that leaves the target invariant, the rank of an exact draw among the points of the chain that
runs from it forwards and backwards is uniform (Gandy & Scott 2020, arXiv:2001.06465).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core.streams import derive_seed
from parvibench.core.target import Target

from .question import Expected, Law, Values

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


def ranks_of(target: Target, start: Tensor, paths: Sequence[Tensor], generator: Generator) -> Tensor:
    """Ranks in 0 to L, (F, R, N), of exact draws (R, N, D) in the chains through them, ties broken at random.

    One for each of the functions of ``rank_functions``. The two paths of L steps, (L, R, N, D), both begin at the draws;
    a random part of them, L steps together, is the chain's future and past.
    """
    length = len(paths[0])
    place = torch.randint(0, length + 1, start.shape[:2], generator=generator)
    step = torch.arange(length)[:, None, None]
    used = torch.cat([step < place, step < length - place])  # (2L, R, N)
    own = rank_functions(start, target.log_density(start))[:, None]
    found = torch.stack([rank_functions(x, target.log_density(x)) for x in torch.cat(list(paths))], 1)
    return ties_broken(((found < own) & used).sum(1), ((found == own) & used).sum(1), generator)


def ranks_among(own: Tensor, draws: Tensor, generator: Generator) -> Tensor:
    """Ranks in 0 to L of values (R, F) among draws (R, L, F), ties broken at random: (R, F)."""
    own = own.unsqueeze(1)
    return ties_broken((draws < own).sum(1), (draws == own).sum(1), generator)


def ties_broken(below: Tensor, ties: Tensor, generator: Generator) -> Tensor:
    """Ranks at random among so many equal values, above so many lower ones."""
    return below + (torch.rand(ties.shape, generator=generator, dtype=torch.float64) * (ties + 1)).long()


def rank_functions(x: Tensor, log_density: Tensor) -> Tensor:
    """The log density, every coordinate, and the product of the first two: (R, N, D) -> (F, R, N)."""
    return torch.stack([log_density, *x.unbind(-1), x[..., 0] * x[..., 1]])


def rank_statistics(ranks: Tensor, length: int) -> Values:
    """Mean and spread of ranks (F, R, N), as shares of L."""
    shares = ranks.double() / length - 0.5
    found = {f"rank[{i}]": as_values(share.mean(1)) for i, share in enumerate(shares)}
    return found | {f"rank_spread[{i}]": as_values(share.abs().mean(1)) for i, share in enumerate(shares)}


@cache
def uniform_ranks(length: int, chains: int, functions: int) -> Mapping[str, Expected]:
    """What ``rank_statistics`` gives for uniform ranks."""
    drawn = np.random.default_rng(length).integers(0, length + 1, (SETS, chains))
    one = rank_statistics(torch.from_numpy(drawn)[None], length)
    return laws({f"{name[:-3]}[{i}]": values for name, values in one.items() for i in range(functions)})
