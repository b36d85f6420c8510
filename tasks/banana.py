"""A correlated Gaussian bent along a parabola.

Cheng et al. (2024), arXiv:2405.18997, Table 4. Start N(0, I).

- ``banana``, the paper's text: x = (v1, v1^2 + v2 + 1) with v ~ N(0, [[1, 0.9], [0.9, 1]]).
- ``banana-ksivi-code``, the authors' code: (x1, x1^2 + x2 + 1) ~ N(0, [[1, 0.9], [0.9, 1]]). This is the law of
  -x under the paper's text: it opens downwards.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from parvibench.core.exact import FormulaTask
from parvibench.core.target import InJax
from parvibench.core.task import Facts

_CORRELATION = 0.9
_DETERMINANT = 1 - _CORRELATION**2


def _density(x: Tensor, sign: int = 1) -> tuple[Tensor, Tensor]:
    """Normalised log density and score; the bend x2 - x1^2 - 1 has unit Jacobian. With sign -1 the law of -x.

    With g = C^-1 v: log p = -g.v/2 + const and its gradient (2 x1 g2 - g1, -g2).
    """
    x = sign * x
    v1 = x[..., 0]
    v2 = x[..., 1] - v1**2 - 1
    g1 = (v1 - _CORRELATION * v2) / _DETERMINANT
    g2 = (v2 - _CORRELATION * v1) / _DETERMINANT
    constant = -math.log(2 * math.pi) - 0.5 * math.log(_DETERMINANT)
    return constant - 0.5 * (g1 * v1 + g2 * v2), sign * torch.stack([2 * v1 * g2 - g1, -g2], dim=-1)


def _in_jax(sign: Any, x: Any) -> Any:
    v1 = sign * x[0]
    v2 = sign * x[1] - v1**2 - 1
    return -0.5 * (v1**2 - 2 * _CORRELATION * v1 * v2 + v2**2) / _DETERMINANT


def _draws(n: int, generator: Generator, sign: int = 1) -> Tensor:
    z1, z2 = torch.randn(2, n, generator=generator, dtype=torch.float64)
    v2 = _CORRELATION * z1 + math.sqrt(_DETERMINANT) * z2
    return sign * torch.stack([z1, z1**2 + v2 + 1], dim=-1)


def _facts(sign: int) -> Facts:
    """Exact moments: Var(v1^2 + v2) = Var(v1^2) + Var(v2) = 2 + 1, for odd moments of v vanish."""
    return Facts(
        mean=torch.tensor([0.0, 2.0 * sign], dtype=torch.float64),
        sd=torch.tensor([1.0, math.sqrt(3.0)], dtype=torch.float64),
    )


BANANA = FormulaTask(
    name="banana",
    summary="a correlated Gaussian bent along a parabola",
    dim=2,
    tags=frozenset({"2d", "curved", "exact", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Table 4",
    facts=_facts(1),
    formula=_density,
    draws=_draws,
    jax=InJax(_in_jax, 1),
)

BANANA_KSIVI_CODE = FormulaTask(
    name="banana-ksivi-code",
    summary="the banana of the KSIVI authors' code: opens downwards",
    dim=2,
    tags=frozenset({"2d", "curved", "exact", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, authors' code",
    facts=_facts(-1),
    formula=partial(_density, sign=-1),
    draws=partial(_draws, sign=-1),
    jax=InJax(_in_jax, -1),
)
