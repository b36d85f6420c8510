"""Log Gaussian Cox processes on a grid: points whose intensity is the exponential of a Gaussian field.

``cox-process-1600``: simulated points; no published number applies to it. Moller, Syversveen & Waagepetersen (1998), Log Gaussian Cox
processes, Scandinavian Journal of Statistics 25, as discretised by Heng et al. (2020), arXiv:1708.08396, on M x M cells of area 1 / M^2,

    x ~ N(mu, K),  K_ij = 1.91 exp(-33 |i - j| / M) (distance in cells),  mu = log 126 - 1.91 / 2,  y_i ~ Poisson(exp(x_i) / M^2),

with M = 40 and 111 points simulated from the model itself (PyTorch, seed 1998), as numbers. The condition number of K is 28, so that no
direction is far more difficult than another; what counts is 1,600 dimensions. log Z is known by long runs only. Start: the prior.

``pines-900`` and ``pines-1600``: the same process given the 126 saplings of Finnish pines of these papers, M = 30 and 40 (none lies on an
edge of two cells). Coordinates are whitened, x = mu + L z with L L^T = K: the prior is N(0, I),
and log Z is that of x. Published for M = 30: 497.621 (1,000 repetitions); controlled SMC 497.59 +- 0.17, AIS 484.39 +- 2.84.

All are log-concave. log_density includes all constants but y!, and for the pines, as in their program, but M^(-2 y). No exact draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.target import FormulaTarget, Target
from parvibench.core.task import LEAN_METRICS, LOG_Z_METRICS, Facts, Task
from parvibench.data.fetch import fetch

_SIDE = 40
_CELLS = _SIDE**2
_VARIANCE = 1.91
_MEAN = math.log(126) - _VARIANCE / 2
#: The cells of the points, counted row by row.
# fmt: off
_POINTS = (
    9, 18, 18, 30, 61, 123, 157, 166, 194, 205, 206, 209, 215, 246, 247, 253, 275, 303, 304, 317, 353, 376, 414,
    424, 438, 442, 443, 472, 483, 545, 551, 554, 557, 557, 557, 557, 564, 568, 571, 573, 611, 615, 616, 618, 637,
    651, 659, 668, 694, 700, 752, 765, 773, 794, 825, 826, 833, 837, 856, 862, 917, 934, 946, 958, 965, 986, 995,
    995, 995, 995, 1013, 1027, 1037, 1037, 1081, 1081, 1104, 1105, 1106, 1122, 1145, 1152, 1188, 1194, 1195, 1195,
    1205, 1210, 1228, 1230, 1242, 1300, 1312, 1350, 1392, 1395, 1419, 1425, 1432, 1439, 1452, 1455, 1458, 1459,
    1460, 1477, 1488, 1526, 1529, 1544, 1569,
)
# fmt: on


@cache
def _prior(side: int = _SIDE) -> tuple[Tensor, Tensor, float]:
    """Lower Cholesky factor of K, the inverse of K, and log det K, float64."""
    axis = torch.arange(side, dtype=torch.float64)
    cells = torch.cartesian_prod(axis, axis)
    factor = torch.linalg.cholesky(_VARIANCE * (-33 / side * torch.cdist(cells, cells)).exp())
    return factor, torch.cholesky_inverse(factor), 2 * float(factor.diagonal().log().sum())


@cache
def _pines(side: int) -> Tensor:
    """Numbers of pines in the cells, row by row, (side^2,) float64."""
    points = np.loadtxt(fetch("finpines"), delimiter=",", skiprows=1, quotechar='"', usecols=(1, 2))
    i, j = np.floor(points * side).astype(int).T
    return torch.from_numpy(np.bincount(i * side + j, minlength=side**2)).double()


def _density(x: Tensor, precision: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of the log intensity, not normalised, and score, from one product with K^-1."""
    apart = x - _MEAN
    pull = apart @ precision
    expected = x.exp() / _CELLS
    terms = counts * x - expected - 0.5 * apart * pull
    constant = -0.5 * (_CELLS * math.log(2 * math.pi) + _prior()[2]) - len(_POINTS) * math.log(_CELLS)
    return terms.sum(-1) + constant, counts - expected - pull


@dataclass(frozen=True, kw_only=True)
class CoxTask(Task):
    """A log Gaussian Cox process given points."""

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """The posterior, the same for all replicates."""
        counts = torch.tensor(_POINTS).bincount(minlength=_CELLS).to(device, dtype)
        return FormulaTarget(self.dim, _density, (_prior()[1].to(device, dtype), counts))

    def prior(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from the prior, (R, n, D) float64."""
        factor = _prior()[0]
        z = [torch.randn(n, _CELLS, generator=g, dtype=torch.float64) for g in generators]
        return torch.stack([_MEAN + noise @ factor.T for noise in z])

    initial = prior


def _whitened(x: Tensor, factor: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of the whitened log intensity, not normalised, and score, from two products with L."""
    cells = len(counts)
    field = _MEAN + x @ factor.T
    expected = field.exp() / cells
    terms = (counts * field - expected).sum(-1) - 0.5 * x.square().sum(-1)
    return terms - 0.5 * cells * math.log(2 * math.pi), (counts - expected) @ factor - x


@dataclass(frozen=True, kw_only=True)
class PinesTask(Task):
    """The log Gaussian Cox process of the Finnish pines."""

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """The posterior, the same for all replicates."""
        side = math.isqrt(self.dim)
        constants = [t.to(device, dtype) for t in (_prior(side)[0], _pines(side))]
        target = FormulaTarget(self.dim, _whitened, constants)
        target.prior_precision = 1.0
        return target

    initial = Task.prior


def _pines_task(side: int, log_z: float | None) -> PinesTask:
    return PinesTask(
        name=f"pines-{side**2}",
        summary=f"intensity of Finnish pines on {side} x {side} cells",
        dim=side**2,
        tags=frozenset({"log-concave", "gaussian process"}),
        citation="Moller, Syversveen & Waagepetersen (1998), Scandinavian Journal of Statistics 25; Heng et al. (2020), arXiv:1708.08396",
        metrics=(*LEAN_METRICS, *LOG_Z_METRICS),
        data=("finpines",),
        facts=Facts(log_z=log_z),
    )


PINES_900 = _pines_task(30, 497.621)
PINES_1600 = _pines_task(40, None)
COX_PROCESS_1600 = CoxTask(
    name="cox-process-1600",
    summary="intensity of 1,600 cells given the points in them",
    dim=_CELLS,
    tags=frozenset({"log-concave", "correlated", "gaussian process"}),
    citation="Moller, Syversveen & Waagepetersen (1998), Scandinavian Journal of Statistics 25; Heng et al. (2020), arXiv:1708.08396",
)
