"""A log Gaussian Cox process on a grid of 40 x 40: points whose intensity is the exponential of a Gaussian field.

``cox-process-1600``: Moller, Syversveen & Waagepetersen (1998), Log Gaussian Cox processes, Scandinavian Journal of
Statistics 25, as discretised by Heng et al. (2020), arXiv:1708.08396, with M = 1600 cells of area 1/M,

    x ~ N(mu, K),  K_ij = 1.91 exp(-33 |i - j| / 40) (distance in cells),  mu = log 126 - 1.91 / 2,
    y_i ~ Poisson(exp(x_i) / M)

They take 126 pines in Finland; here are 111 points simulated from the model itself (PyTorch, seed 1998), as numbers.
Log-concave. The condition number of K is 28, so that no direction is far more difficult than another; what counts is
1,600 dimensions. log_density includes
all constants but y!. No exact draws; log Z is known by long runs only. Start: the prior, N(mu, K).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Generator, Tensor

from parvibench.core.target import JointTarget, Target
from parvibench.core.task import Task

_SIDE = 40
_CELLS = _SIDE**2
_VARIANCE, _DECAY = 1.91, 33 / _SIDE
_MEAN = math.log(126) - _VARIANCE / 2
#: Points in the cells, row by row.
_COUNTS = (
    "0000000001000000002000000000001000000000000000000000000000000100000000000000000000000000000000000000"
    "0000000000000000000000010000000000000000000000000000000001000000001000000000000000000000000000100000"
    "0000011001000001000000000000000000000000000000110000010000000000000000000001000000000000000000000000"
    "0001100000000000010000000000000000000000000000000000010000000000000000000000100000000000000000000000"
    "0000000000000010000000001000000000000010001100000000000000000000000000001000000000010000000000000000"
    "0000000000000000000000000000000000000000000001000001001004000000100010010100000000000000000000000000"
    "0000000000010001101000000000000000000100000000000001000000010000000010000000000000000000000000100000"
    "1000000000000000000000000000000000000000000000000000100000000000010000000100000000000000000000100000"
    "0000000000000000000000000110000001000100000000000000000010000010000000000000000000000000000000000000"
    "0000000000000000010000000000000000100000000000100000000000100000010000000000000000000010000000040000"
    "0000000000000100000000000001000000000200000000000000000000000000000000000000000002000000000000000000"
    "0000111000000000000000100000000000000000000001000000100000000000000000000000000000000000100000120000"
    "0000010000100000000000000000101000000000001000000000000000000000000000000000000000000000000000000000"
    "1000000000001000000000000000000000000000000000000010000000000000000000000000000000000000000010010000"
    "0000000000000000000100000100000010000001000000000000100100111000000000000000010000000000100000000000"
    "0000000000000000000000000010010000000000000010000000000000000000000001000000000000000000000000000000"
)


@cache
def _prior() -> tuple[Tensor, Tensor, float]:
    """Lower Cholesky factor of K, the inverse of K, and log det K, float64."""
    axis = torch.arange(_SIDE, dtype=torch.float64)
    cells = torch.cartesian_prod(axis, axis)
    factor = torch.linalg.cholesky(_VARIANCE * (-_DECAY * torch.cdist(cells, cells)).exp())
    return factor, torch.cholesky_inverse(factor), 2 * float(factor.diagonal().log().sum())


class CoxTarget(JointTarget):
    """The posterior of the log intensity, not normalised."""

    dim = _CELLS

    def __init__(self, device: torch.device | str, dtype: torch.dtype) -> None:
        _, precision, log_det = _prior()
        self._precision = precision.to(device, dtype)
        counts = [int(c) for c in _COUNTS]
        self._counts = torch.tensor(counts, dtype=dtype, device=device)
        self._constant = -0.5 * (_CELLS * math.log(2 * math.pi) + log_det) - sum(counts) * math.log(_CELLS)

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one product with K^-1."""
        apart = x - _MEAN
        pull = apart @ self._precision
        expected = x.exp() / _CELLS
        terms = self._counts * x - expected - 0.5 * apart * pull
        return terms.sum(-1) + self._constant, self._counts - expected - pull


@dataclass(frozen=True, kw_only=True)
class CoxTask(Task):
    """A log Gaussian Cox process given points."""

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> CoxTarget:
        """The posterior, the same for all replicates."""
        return CoxTarget(device, dtype)

    def prior(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from the prior, (R, n, D) float64."""
        factor = _prior()[0]
        z = [torch.randn(n, _CELLS, generator=g, dtype=torch.float64) for g in generators]
        return torch.stack([_MEAN + noise @ factor.T for noise in z])

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """The prior."""
        return self.prior(target, n, generators)


COX_PROCESS_1600 = CoxTask(
    name="cox-process-1600",
    summary="intensity of 1,600 cells given the points in them",
    dim=_CELLS,
    tags=frozenset({"log-concave", "correlated", "gaussian process"}),
    citation="Moller, Syversveen & Waagepetersen (1998), Scandinavian Journal of Statistics 25; Heng et al. (2020), arXiv:1708.08396",
)
