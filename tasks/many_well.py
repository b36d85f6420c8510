"""Sixteen independent double wells: 65,536 modes.

``many-well-32``: Midgley et al. (2023), arXiv:2208.01893 (after Noe et al. 2019, Boltzmann generators), for each of 16
pairs (x1, x2) of neighbouring coordinates

    log p = -x1^4 + 6 x1^2 + x1 / 2 - x2^2 / 2

with wells of x1 at -1.71 and 1.75, 8.5 nats above the barrier at -0.04 and weights of 0.155 and 0.845. Z of a pair is
11784.51 sqrt(2 pi): log Z = 164.6957 in 32 dimensions, by a trapezoidal sum that is exact to rounding. Start N(0, I).

Exact draws: x2 is standard normal; x1 by rejection from a step function over (-4, 4), outside of which there is less
than 1e-60 of the mass. Within a cell of width h the logarithm is at most h^2 / 8 max|12 x^2 - 12| above its larger end.
"""

import math

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.exact import FormulaTask
from parvibench.core.task import LEAN_METRICS, LOG_Z_METRICS, Facts

_PAIRS = 16
_EDGE, _CELLS = 4.0, 800


def _log_well(x: Tensor) -> Tensor:
    """Log density of x1, unnormalised."""
    square = x**2
    return (6 - square) * square + 0.5 * x


def _density(x: Tensor) -> tuple[Tensor, Tensor]:
    """Log density of 16 pairs, unnormalised, and score."""
    a, b = x[..., ::2], x[..., 1::2]
    log_p = (_log_well(a) - 0.5 * b**2).sum(-1)
    return log_p, torch.stack([(12 - 4 * a**2) * a + 0.5, -b], -1).flatten(-2)


def _draws(n: int, generator: Generator) -> Tensor:
    wells = _wells(n * _PAIRS, generator).view(n, _PAIRS)
    rest = torch.randn(n, _PAIRS, generator=generator, dtype=torch.float64)
    return torch.stack([wells, rest], -1).flatten(-2)


def _wells(n: int, generator: Generator) -> Tensor:
    """Draws of x1 by rejection, (n,)."""
    edges = torch.linspace(-_EDGE, _EDGE, _CELLS + 1, dtype=torch.float64)
    width = 2 * _EDGE / _CELLS
    ends = _log_well(edges)
    slack = width**2 / 8 * 12 * (_EDGE**2 - 1)
    bounds = torch.maximum(ends[:-1], ends[1:]) + slack
    found = torch.empty(0, dtype=torch.float64)
    while len(found) < n:
        cells = torch.multinomial(bounds.exp(), n, replacement=True, generator=generator)
        u, v = torch.rand(2, n, generator=generator, dtype=torch.float64)
        x = edges[cells] + width * u
        found = torch.cat([found, x[v.log() < _log_well(x) - bounds[cells]]])
    return found[:n]


def _facts() -> Facts:
    """Moments and log Z, by trapezoidal sums."""
    x = torch.linspace(-_EDGE, _EDGE, 8001, dtype=torch.float64)
    p = _log_well(x).exp()
    mass = float(p.sum() * (x[1] - x[0]))
    mean = float((p * x).sum() / p.sum())
    sd = math.sqrt(float((p * x**2).sum() / p.sum()) - mean**2)
    right = float(p[x > -0.04].sum() / p.sum())
    return Facts(
        mean=torch.from_numpy(np.tile([mean, 0.0], _PAIRS)),
        sd=torch.from_numpy(np.tile([sd, 1.0], _PAIRS)),
        log_z=_PAIRS * (math.log(mass) + 0.5 * math.log(2 * math.pi)),
        constants={"weight of a right well": right},
    )


MANY_WELL_32 = FormulaTask(
    name="many-well-32",
    summary="sixteen independent double wells of unequal weight",
    dim=2 * _PAIRS,
    tags=frozenset({"exact", "multimodal"}),
    citation="Midgley et al. (2023), arXiv:2208.01893",
    metrics=(*LEAN_METRICS, *LOG_Z_METRICS),
    facts=_facts(),
    formula=_density,
    draws=_draws,
)
