"""Targets with tails heavier than a Gaussian's, with exact draws.

- ``monomial-gamma``: Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.2,

      log p = -0.3 (|x1|^0.9 + |x2|^0.9) + const,

  so that |x_j|^0.9 ~ Gamma(1/0.9, rate 0.3), x_j with a random sign: E|x_j| = 4.488, E x_j^2 = 42.60. This is the
  paper's text. Its code has the exponent exp(-0.1) = 0.9048 and draws |x_j|^0.9048 from a Gamma of shape 0.9048
  instead of 1/0.9048: published divergences are from that other law. Start N(0, I). The score is unbounded at the
  axes x_j = 0; |x_j| is floored there at 1e-12.
- ``student-t``: Cheng et al. (2024), arXiv:2405.18997, Table 3. x = A z with z_1, z_2 independent Student t with
  two degrees of freedom: the mean is 0, second moments are infinite. A is the code's, whose comment says unit
  determinant; it is 0.0696. Start N(0, I).
- ``funnel-10d``: Neal (2003), Slice sampling, Annals of Statistics 31, Section 8. x1 ~ N(0, 9) and, given x1,
  x2 ... x10 ~ N(0, exp(x1)). Start N(0, I), our choice.

Where second moments are infinite or rest on few draws (the funnel: Var x2 = exp(9/2), its draws' kurtosis
3 exp(9)), errors of moments and Wasserstein distances say little; MMD ranks these two.
"""

import math
from typing import Any

import torch
from scipy.special import gammaincinv
from torch import Generator, Tensor

from parvibench.core.exact import FormulaTask
from parvibench.core.target import InJax
from parvibench.core.task import DENSITY_METRICS, Facts

_EXPONENT = 0.9
_RATE = 0.3
_FLOOR = 1e-12

#: A of the Student target, from numpy.random.RandomState(50); see the test of it.
_MIXING = torch.tensor(((0.28216196, -0.11803875), (-0.11803875, 0.29587176)), dtype=torch.float64)
_LOG_DETERMINANT = float(torch.linalg.slogdet(_MIXING)[1])

_MOMENT_METRICS = frozenset({"mean_error", "sd_error", "correlation_error"})
_NO_MOMENTS = tuple(m for m in DENSITY_METRICS if m not in _MOMENT_METRICS)


def _monomial_gamma(x: Tensor) -> tuple[Tensor, Tensor]:
    """Normalised log density of independent coordinates, sum_j -rate |x_j|^a + const, and score, 0 on the axes."""
    a, size = _EXPONENT, x.abs().clamp_min(_FLOOR)
    constant = math.log(a) + math.log(_RATE) / a - math.lgamma(1 / a) - math.log(2)
    return (constant - _RATE * size**a).sum(-1), -_RATE * _EXPONENT * x.sign() * size ** (_EXPONENT - 1)


def _student(x: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Log density, normalised, of x = A z, z_j independent t_2, and score A^-T s(z), s(u) = -3 u / (2 + u^2)."""
    z = x @ inverse.T
    constant = -2 * math.log(2 * math.sqrt(2)) - _LOG_DETERMINANT
    return -1.5 * (z**2 / 2).log1p().sum(-1) + constant, (-3 * z / (2 + z**2)) @ inverse


def _funnel(x: Tensor) -> tuple[Tensor, Tensor]:
    """Log density, normalised, of x = (v, y), v ~ N(0, 9), y | v ~ N(0, exp(v) I), and score."""
    v, y = x[..., :1], x[..., 1:]
    pull = -(-v).exp() * y
    q, n = -(pull * y).sum(-1, keepdim=True), y.shape[-1]
    constant = -0.5 * (n + 1) * math.log(2 * math.pi) - math.log(3)
    log_p = constant - (v**2 / 9 + n * v + q) / 2
    return log_p.squeeze(-1), torch.cat([-v / 9 + (q - n) / 2, pull], -1)


def _funnel_in_jax(data: Any, x: Any) -> Any:
    import jax.numpy as jnp

    v, y = x[0], x[1:]
    return -(v**2) / 18 - 0.5 * (len(y) * v + jnp.exp(-v) * (y @ y))


def _monomial_gamma_draws(n: int, generator: Generator) -> Tensor:
    u = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    sign = 2 * torch.randint(2, (n, 2), generator=generator) - 1
    power = torch.from_numpy(gammaincinv(1 / _EXPONENT, u.numpy())) / _RATE
    return sign * power ** (1 / _EXPONENT)


def _student_draws(n: int, generator: Generator) -> Tensor:
    """t_2 = N(0, 1) / sqrt(E) with E ~ Exp(1)."""
    z = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    e = -torch.rand(n, 2, generator=generator, dtype=torch.float64).neg().log1p()
    return (z / e.sqrt()) @ _MIXING.T


def _funnel_draws(n: int, generator: Generator) -> Tensor:
    x = torch.randn(n, 10, generator=generator, dtype=torch.float64)
    x[:, 0] *= 3
    x[:, 1:] *= (x[:, :1] / 2).exp()
    return x


def _monomial_gamma_facts() -> Facts:
    """Exact moments: E x^2 = rate^(-2/a) Gamma(3/a) / Gamma(1/a)."""
    a = _EXPONENT
    square = _RATE ** (-2 / a) * math.gamma(3 / a) / math.gamma(1 / a)
    return Facts(mean=torch.zeros(2, dtype=torch.float64), sd=torch.full((2,), math.sqrt(square), dtype=torch.float64))


def _funnel_facts(dim: int) -> Facts:
    """Exact moments: Var y = E exp(v) = exp(9/2)."""
    sd = torch.full((dim,), math.exp(9 / 4), dtype=torch.float64)
    sd[0] = 3
    return Facts(mean=torch.zeros(dim, dtype=torch.float64), sd=sd)


MONOMIAL_GAMMA = FormulaTask(
    name="monomial-gamma",
    summary="independent coordinates with tails exp(-0.3 |x|^0.9)",
    dim=2,
    tags=frozenset({"2d", "exact", "sifg"}),
    citation="Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.2",
    facts=_monomial_gamma_facts(),
    formula=_monomial_gamma,
    draws=_monomial_gamma_draws,
)

STUDENT_T = FormulaTask(
    name="student-t",
    summary="two mixed Student t coordinates with two degrees of freedom",
    dim=2,
    tags=frozenset({"2d", "heavy-tailed", "exact", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Table 3",
    metrics=(
        *(m for m in _NO_MOMENTS if m not in {"sliced_w2", "w2"}),
        "energy_distance", "w2sq_window_5", "w2sq_window_8", "w2sq_window_10",
    ),
    primary="mmd2",
    facts=Facts(mean=torch.zeros(2, dtype=torch.float64), infinite_moments=True),
    formula=_student, constants=lambda: (torch.linalg.inv(_MIXING),),
    draws=_student_draws,
)  # fmt: skip

FUNNEL_10D = FormulaTask(
    name="funnel-10d",
    summary="Neal's funnel: the scale of nine coordinates is the exponential of the first",
    dim=10,
    tags=frozenset({"curved", "heavy-tailed", "exact"}),
    citation="Neal (2003), Slice sampling, Annals of Statistics 31, Section 8",
    metrics=(*_NO_MOMENTS, "energy_distance"),
    primary="mmd2",
    facts=_funnel_facts(10),
    formula=_funnel,
    draws=_funnel_draws,
    jax=InJax(_funnel_in_jax, ()),
)
