"""A correlated Gaussian bent along a parabola.

Cheng et al. (2024), arXiv:2405.18997, Table 4: x = (v1, v1^2 + v2 + 1) with v ~ N(0, [[1, 0.9], [0.9, 1]]).
This is the paper's text; the authors' code samples (x1, x1^2 + x2 + 1) ~ N(0, C) instead, which is the
same law under x -> -x. Start N(0, I).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from parvibench.core.target import Target
from parvibench.core.task import Facts, Task

_CORRELATION = 0.9
_DETERMINANT = 1 - _CORRELATION**2


class BananaTarget(Target):
    """The normalised density; the bend x2 - x1^2 - 1 has unit Jacobian."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log density in nats: (R, N, 2) -> (R, N)."""
        return self.log_density_and_score(x)[0]

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, 2) -> (R, N, 2)."""
        return self.log_density_and_score(x)[1]

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both, with g = C^-1 v: log p = -g.v/2 + const and its gradient (2 x1 g2 - g1, -g2)."""
        v1 = x[..., 0]
        v2 = x[..., 1] - v1**2 - 1
        g1 = (v1 - _CORRELATION * v2) / _DETERMINANT
        g2 = (v2 - _CORRELATION * v1) / _DETERMINANT
        constant = -math.log(2 * math.pi) - 0.5 * math.log(_DETERMINANT)
        return constant - 0.5 * (g1 * v1 + g2 * v2), torch.stack([2 * v1 * g2 - g1, -g2], dim=-1)


@dataclass(frozen=True, kw_only=True)
class BananaTask(Task):
    """The banana, its start N(0, I) and its exact sampler."""

    provides: frozenset[str] = frozenset({"score", "hvp", "full-batch", "exact"})

    def target(
        self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype
    ) -> BananaTarget:
        """The density, the same for all replicates."""
        return BananaTarget()

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from N(0, I), (R, n, 2) float64."""
        return torch.stack([torch.randn(n, 2, generator=g, dtype=torch.float64) for g in generators])

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, 2) float64."""
        z1, z2 = torch.randn(2, n, generator=generator, dtype=torch.float64)
        v2 = _CORRELATION * z1 + math.sqrt(_DETERMINANT) * z2
        return torch.stack([z1, z1**2 + v2 + 1], dim=-1)


BANANA = BananaTask(
    name="banana",
    summary="a correlated Gaussian bent along a parabola",
    dim=2,
    tags=frozenset({"2d", "curved", "exact", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Table 4",
    # Var(v1^2 + v2) = Var(v1^2) + Var(v2) = 2 + 1: odd moments of v vanish.
    facts=Facts(
        mean=torch.tensor([0.0, 2.0], dtype=torch.float64),
        sd=torch.tensor([1.0, math.sqrt(3.0)], dtype=torch.float64),
    ),
)
