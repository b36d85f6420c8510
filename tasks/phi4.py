"""A field on a line that is positive or negative throughout: phi^4 in one dimension.

``phi4-100``: Gabrie, Rotskoff & Vanden-Eijnden (2022), Adaptive Monte Carlo augmented with normalizing flows, PNAS 119,
arXiv:2105.12603, "stochastic Allen-Cahn": with a = 0.1, beta = 20, d = 100 inner points s_i = i / (d + 1) and
phi_0 = phi_{d+1} = 0,

    log p = -beta [ a / (2 h) sum_{i=0}^{d} (phi_{i+1} - phi_i)^2 + h / (4 a) sum_{i=1}^{d} (1 - phi_i^2)^2 ],  h = 1/(d+1)

Two modes, +profile and -profile, of weight 1/2 each by symmetry, and a barrier that chains with local moves hardly
cross. Neighbours are strongly correlated besides. Start N(0, I), as in the paper; rough paths, far above the mass.

Exact draws and log Z: the field is a Markov chain, as a diffusion that is observed at every step. Its backward
messages and its marginals are trapezoidal sums, and draws follow as in ``diffusion-D``.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from parvibench.core.exact import FormulaTask
from parvibench.core.task import LEAN_METRICS, LOG_Z_METRICS, Facts, Modes

from .diffusion import Array, Smoother

_DIM = 100
_STIFFNESS, _BETA = 0.1, 20.0
_H = 1 / (_DIM + 1)
_VARIANCE = _H / (_BETA * _STIFFNESS)  # of a step without the wells
_WELL = _BETA * _H / (4 * _STIFFNESS)


def _density(x: Tensor) -> tuple[Tensor, Tensor]:
    """Log density, unnormalised, and score."""
    steps = pad(x, (0, 1)) - pad(x, (1, 0))
    rest = 1 - x**2
    log_p = -0.5 * steps.square().sum(-1) / _VARIANCE - _WELL * rest.square().sum(-1)
    return log_p, steps.diff(dim=-1) / _VARIANCE + 4 * _WELL * x * rest


class FieldChain(Smoother):
    """The field as a random walk, weighted by the wells at every point and by its end at 0."""

    def __init__(self) -> None:
        super().__init__(lambda x: x, _VARIANCE, [0.0] * (_DIM // 5), low=-2.4, high=2.4, spacing=0.02)

    def _log_likelihood(self, k: int) -> Array:
        """The wells, and at the last point the step to 0."""
        end = 0.5 * self.grid**2 / _VARIANCE if k == self.steps - 1 else 0.0
        return np.asarray(-_WELL * (1 - self.grid**2) ** 2 - end)


def _profile() -> Tensor:
    """The positive mode, (D,): Newton's method for a vanishing score."""
    x = torch.ones(_DIM, dtype=torch.float64)
    off = torch.full((_DIM - 1,), 1 / _VARIANCE, dtype=torch.float64)
    for _ in range(50):
        slope = -2 / _VARIANCE + 4 * _WELL * (1 - 3 * x**2)
        hessian = torch.diag(slope) + torch.diag(off, 1) + torch.diag(off, -1)
        x = x - torch.linalg.solve(hessian, _density(x)[1])
    return x


def _facts(chain: FieldChain) -> Facts:
    """Moments by quadrature, modes by symmetry."""
    _, sd = chain.moments()
    profile = _profile()
    spread = float((torch.from_numpy(sd) ** 2 - profile**2).clamp_min(0).mean().sqrt())
    modes = Modes(torch.stack([profile, -profile]), torch.full((2,), spread), torch.full((2,), 0.5))
    log_z = chain.log_evidence + 0.5 * _DIM * math.log(2 * math.pi * _VARIANCE)
    return Facts(mean=torch.zeros(_DIM, dtype=torch.float64), sd=torch.from_numpy(sd), modes=modes, log_z=log_z)


_CHAIN = FieldChain()
PHI4_100 = FormulaTask(
    name="phi4-100",
    summary="a field of 100 points that is positive or negative throughout",
    dim=_DIM,
    tags=frozenset({"exact", "multimodal", "correlated", "path"}),
    citation="Gabrie, Rotskoff & Vanden-Eijnden (2022), PNAS 119, arXiv:2105.12603",
    metrics=(*LEAN_METRICS, "mode_weight_tv", *LOG_Z_METRICS),
    facts=_facts(_CHAIN),
    formula=_density,
    draws=_CHAIN.sample,
)
