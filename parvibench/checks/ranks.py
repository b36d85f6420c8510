"""Ranks of exact draws in the chains through them.

For a reversible kernel that leaves the target invariant, the rank of an exact draw among the points of the chain that
runs from it forwards and backwards is uniform (Gandy & Scott 2020, arXiv:2001.06465).
"""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.target import Target

from .question import Expected, Values
from .summaries import SETS, as_values, laws


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
