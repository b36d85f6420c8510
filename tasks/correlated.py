"""A flat-topped ridge along a parabola.

Ye, Ren & Liu (2020), arXiv:2002.09070, Section 6.1 (the paper prints the exponent only):

    p(t1, t2) ~ exp( -t1^4 / 10 - (4 (t2 + 1.2) - t1^2)^2 / 2 )

Exact draws: u = 4 (t2 + 1.2) - t1^2 is N(0, 1) given t1, and G = t1^4 / 10 has density
exp(-G) |dt1/dG| ~ G^(-3/4) exp(-G), that is Gamma(1/4, 1). Start, from the authors' code: each coordinate
from N(2, 1) truncated to within two standard deviations.
"""

import math
from typing import Any

import torch
from scipy.special import gammaincinv
from torch import Generator, Tensor

from parvibench.core.exact import FormulaTask, TruncatedNormal
from parvibench.core.target import InJax
from parvibench.core.task import Facts

# Integral of exp(-t^4/10) is 2 * 10^(1/4) * Gamma(5/4); that over t2 is sqrt(2 pi) / 4.
_LOG_NORMALISER = math.log(0.5 * 10**0.25 * math.gamma(1.25) * math.sqrt(2 * math.pi))


def _density(x: Tensor) -> tuple[Tensor, Tensor]:
    """Normalised log density and score; with u = 4 (t2 + 1.2) - t1^2 the gradient is (2 u t1 - 0.4 t1^3, -4 u)."""
    t1, t2 = x.unbind(-1)
    u = 4 * (t2 + 1.2) - t1**2
    log_p = -(t1**4) / 10 - 0.5 * u**2 - _LOG_NORMALISER
    return log_p, torch.stack([2 * u * t1 - 0.4 * t1**3, -4 * u], dim=-1)


def _in_jax(data: Any, x: Any) -> Any:
    return -(x[0] ** 4) / 10 - (4 * (x[1] + 1.2) - x[0] ** 2) ** 2 / 2


def _draws(n: int, generator: Generator) -> Tensor:
    u = torch.rand(n, generator=generator, dtype=torch.float64)
    sign = 2 * torch.randint(2, (n,), generator=generator) - 1
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    t1 = sign * (10 * torch.from_numpy(gammaincinv(0.25, u.numpy()))) ** 0.25
    return torch.stack([t1, (t1**2 + noise) / 4 - 1.2], dim=-1)


def _facts() -> Facts:
    """Exact moments: E t1^2 = sqrt(10) E sqrt(G), E t1^4 = 10 E G = 5/2."""
    square = math.sqrt(10) * math.gamma(0.75) / math.gamma(0.25)
    return Facts(
        mean=torch.tensor([0.0, square / 4 - 1.2], dtype=torch.float64),
        sd=torch.tensor([square, (2.5 - square**2 + 1) / 16], dtype=torch.float64).sqrt(),
    )


CORRELATED_2D = FormulaTask(
    name="correlated-2d",
    summary="a flat-topped ridge along a parabola; start at one end",
    dim=2,
    tags=frozenset({"2d", "curved", "exact", "srld"}),
    citation="Ye, Ren & Liu (2020), arXiv:2002.09070, Section 6.1",
    facts=_facts(),
    start=TruncatedNormal(),
    formula=_density,
    draws=_draws,
    jax=InJax(_in_jax, ()),
)
