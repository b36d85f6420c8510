"""Ten components with tails like a Student t's in 50 dimensions.

``student-mixture-50d``: Blessing et al. (2024), Beyond ELBOs, ICML, arXiv:2406.07423: ten components of equal weight,
each a product of Student t densities with two degrees of freedom and unit scale around a centre uniform on (-10, 10)^50.
Their centres are JAX's of seed 0; these are PyTorch's of seed 0, of the same law. The density is normalised: log Z = 0.
The mean is that of the centres; second moments are infinite, so that errors of moments and Wasserstein distances say
little and MMD ranks. Start N(0, 10^2 I), as wide as the target, our choice.
"""

import math
from functools import cache

import torch
from torch import Generator, Tensor

from parvibench.core.exact import FormulaTask, Normal
from parvibench.core.task import DENSITY_METRICS, LOG_Z_METRICS, Facts
from parvibench.kernels.gram import log_sum_exp

_COMPONENTS, _DIM, _HALF_WIDTH = 10, 50, 10.0
_SECOND_MOMENTS = frozenset({"mean_error", "sd_error", "correlation_error", "sliced_w2", "w2"})


@cache
def centres() -> Tensor:
    """(K, D) float64."""
    numbers = torch.rand(_COMPONENTS, _DIM, generator=Generator().manual_seed(0), dtype=torch.float32)
    return _HALF_WIDTH * (2 * numbers.double() - 1)


def _density(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Log density, t_2(u) = (1 + u^2 / 2)^(-3/2) / (2 sqrt 2) each, and score, by (R, K, N, D) temporaries."""
    apart = x.unsqueeze(-3) - centres.unsqueeze(-2)
    square = 1 + 0.5 * apart**2
    terms = -1.5 * square.log().sum(-1)
    shares = terms.softmax(-2).unsqueeze(-1)
    constant = -1.5 * math.log(2) * _DIM - math.log(_COMPONENTS)
    return log_sum_exp(terms, -2) + constant, (shares * (-1.5 * apart / square)).sum(-3)


def _draws(n: int, generator: Generator) -> Tensor:
    """t_2 = N(0, 1) / sqrt(E) with E ~ Exp(1)."""
    k = torch.randint(_COMPONENTS, (n,), generator=generator)
    z = torch.randn(n, _DIM, generator=generator, dtype=torch.float64)
    e = -torch.rand(n, _DIM, generator=generator, dtype=torch.float64).neg().log1p()
    return centres()[k] + z / e.sqrt()


STUDENT_MIXTURE_50D = FormulaTask(
    name="student-mixture-50d",
    summary="ten components with heavy tails in 50 dimensions",
    dim=_DIM,
    tags=frozenset({"exact", "multimodal", "heavy-tailed"}),
    citation="Blessing et al. (2024), arXiv:2406.07423",
    metrics=(*(m for m in DENSITY_METRICS if m not in _SECOND_MOMENTS), "energy_distance", *LOG_Z_METRICS),
    primary="mmd2",
    start=Normal(sd=_HALF_WIDTH),
    facts=Facts(infinite_moments=True, log_z=0.0),
    formula=_density,
    constants=lambda: (centres(),),
    draws=_draws,
)
