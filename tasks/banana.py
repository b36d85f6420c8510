"""A correlated Gaussian bent along a parabola.

Cheng et al. (2024), arXiv:2405.18997, Table 4. Start N(0, I).

- ``banana``, the paper's text: x = (v1, v1^2 + v2 + 1) with v ~ N(0, [[1, 0.9], [0.9, 1]]).
- ``banana-ksivi-code``, the authors' code: (x1, x1^2 + x2 + 1) ~ N(0, [[1, 0.9], [0.9, 1]]). This is the law of
  -x under the paper's text: it opens downwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from parvibench.core.exact import ExactTask
from parvibench.core.target import InJax, JointTarget
from parvibench.core.task import Facts

_CORRELATION = 0.9
_DETERMINANT = 1 - _CORRELATION**2


class BananaTarget(JointTarget):
    """The normalised density; the bend x2 - x1^2 - 1 has unit Jacobian. With sign -1 the law of -x."""

    dim = 2

    def __init__(self, sign: int = 1) -> None:
        self._sign = sign

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both, with g = C^-1 v: log p = -g.v/2 + const and its gradient (2 x1 g2 - g1, -g2)."""
        x = self._sign * x
        v1 = x[..., 0]
        v2 = x[..., 1] - v1**2 - 1
        g1 = (v1 - _CORRELATION * v2) / _DETERMINANT
        g2 = (v2 - _CORRELATION * v1) / _DETERMINANT
        constant = -math.log(2 * math.pi) - 0.5 * math.log(_DETERMINANT)
        score = self._sign * torch.stack([2 * v1 * g2 - g1, -g2], dim=-1)
        return constant - 0.5 * (g1 * v1 + g2 * v2), score

    def in_jax(self) -> InJax:
        """The same, up to a constant."""
        return InJax(_in_jax, self._sign)


def _in_jax(sign: Any, x: Any) -> Any:
    v1 = sign * x[0]
    v2 = sign * x[1] - v1**2 - 1
    return -0.5 * (v1**2 - 2 * _CORRELATION * v1 * v2 + v2**2) / _DETERMINANT


@dataclass(frozen=True, kw_only=True)
class BananaTask(ExactTask):
    """The banana, opening upwards (sign 1) or downwards (-1)."""

    sign: int = 1

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> BananaTarget:
        """The density, the same for all replicates."""
        return BananaTarget(self.sign)

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, 2) float64."""
        z1, z2 = torch.randn(2, n, generator=generator, dtype=torch.float64)
        v2 = _CORRELATION * z1 + math.sqrt(_DETERMINANT) * z2
        return self.sign * torch.stack([z1, z1**2 + v2 + 1], dim=-1)


def _facts(sign: int) -> Facts:
    """Exact moments: Var(v1^2 + v2) = Var(v1^2) + Var(v2) = 2 + 1, for odd moments of v vanish."""
    return Facts(
        mean=torch.tensor([0.0, 2.0 * sign], dtype=torch.float64),
        sd=torch.tensor([1.0, math.sqrt(3.0)], dtype=torch.float64),
    )


BANANA = BananaTask(
    name="banana",
    summary="a correlated Gaussian bent along a parabola",
    dim=2,
    tags=frozenset({"2d", "curved", "exact", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Table 4",
    facts=_facts(1),
)

BANANA_KSIVI_CODE = BananaTask(
    name="banana-ksivi-code",
    summary="the banana of the KSIVI authors' code: opens downwards",
    dim=2,
    tags=frozenset({"2d", "curved", "exact", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, authors' code",
    facts=_facts(-1),
    sign=-1,
)
