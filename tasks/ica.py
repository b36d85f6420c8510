"""Bayesian independent component analysis of generated signals.

Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.3: x = W^-1 s with independent sources of density
1 / (pi cosh s) and W_ij ~ N(0, 100), so that given n observations

    log p(W) = n log|det W| - sum_n sum_i log cosh (W x_n)_i - ||W||^2 / 200 + const

The paper's data are five channels of an MEG recording. Here they are generated, after the example of Korba et al.
(2021), arXiv:2105.09994: a 5 x 5 matrix W0 of standard normal entries, n = 1000 rows of Laplace sources s, x =
W0^-1 s, all from ``numpy.random.RandomState(3)``, whose stream is frozen. W0 is known, so the Amari distance judges
the samples. Start, the authors' code: W_ij ~ N(0, 100).

Trap: the authors' code divides the log likelihood by n for all its samplers. That posterior is as wide as a single
observation leaves it: on these data the Amari distance of its exact samples, 0.89, exceeds the start's, 0.68, where
the posterior above has 0.009. It is no task here, since no distance to W0 could rank samplers of it.

The posterior has 2^5 5! equal modes, the orders and signs of the rows of W; the Amari distance is the same at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from parvibench.core.exact import Normal
from parvibench.core.target import Target
from parvibench.core.task import DENSITY_METRICS, Facts, Task

_CHANNELS = 5
_ROWS = 1000
_PRIOR_PRECISION = 0.01


class ICATarget(Target):
    """The posterior of the unmixing matrix W, row-major.

    Args:
        x: (n, p) observations.
    """

    prior_precision: float = _PRIOR_PRECISION

    def __init__(self, x: Tensor) -> None:
        self.rows, self._channels = x.shape
        self.dim = self._channels**2
        self._x = x
        # Of the sources' 1/pi and of the prior.
        self._constant = -self.rows * self._channels * math.log(math.pi) - 0.5 * self.dim * math.log(
            2 * math.pi / _PRIOR_PRECISION
        )

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log of likelihood times prior in nats; -inf at singular W: (R, N, D) -> (R, N)."""
        w, _, sources, scale = self._sources(x, batch)
        # log cosh s = |s| + log(1 + exp(-2 |s|)) - log 2
        log_cosh = sources.abs() + softplus(-2 * sources.abs()) - math.log(2)
        likelihood = self._rows * torch.linalg.slogdet(w)[1] - scale * log_cosh.sum((-2, -1))
        return likelihood - 0.5 * _PRIOR_PRECISION * x.square().sum(-1) + self._constant

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient n W^-T - tanh(W X) X^T - W / 100, not finite at singular W: (R, N, D) -> (R, N, D)."""
        w, data, sources, scale = self._sources(x, batch)
        likelihood = self._rows * torch.linalg.inv_ex(w)[0].mT - scale * sources.tanh() @ data
        return likelihood.flatten(-2) - _PRIOR_PRECISION * x

    @property
    def _rows(self) -> int:
        return len(self._x)

    def _sources(self, x: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor, Tensor, float]:
        """W (R, N, p, p), observations (B, p) or (R, 1, B, p), their sources (R, N, p, B), and n/B."""
        w = x.reshape(*x.shape[:-1], self._channels, self._channels)
        data = self._x if batch is None else self._x[batch].unsqueeze(1)
        return w, data, w @ data.mT, self._rows / data.shape[-2]


@dataclass(frozen=True, kw_only=True)
class ICATask(Task):
    """Unmixing of the generated signals."""

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> ICATarget:
        """The posterior given all rows, the same for all replicates."""
        return ICATarget(_signals()[1].to(device, dtype))

    def canonical(self, x: Tensor) -> Tensor:
        """Rows of W in the order, and with the signs, that bring W nearest to the known W0: (..., D) -> (..., D).

        With P = W W0^-1 and its rows of unit length: the order that maximises sum_i |P_i,order(i)|, over all p!,
        then the signs that make these entries positive. All 2^p p! equal modes fall onto one.
        """
        known = self.facts.unmixing
        assert known is not None
        p = len(known)
        w = x.reshape(*x.shape[:-1], p, p)
        fit = w @ torch.linalg.inv(known.to(x))
        fit = fit / fit.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        # Row j of the answer is the row order(j) of W.
        orders = torch.tensor(list(permutations(range(p))), device=x.device)
        chosen = torch.nn.functional.one_hot(orders, p).mT.flatten(1).to(x)
        order = orders[(fit.abs().flatten(-2) @ chosen.T).argmax(-1)]
        rows = w.gather(-2, order.unsqueeze(-1).expand_as(w))
        entry = fit.gather(-2, order.unsqueeze(-1).expand_as(w)).diagonal(dim1=-2, dim2=-1)
        return (rows * torch.where(entry < 0, -1.0, 1.0).unsqueeze(-1)).reshape(x.shape)

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from the prior N(0, 100 I), (R, n, D) float64."""
        return torch.stack([Normal(sd=10.0).sample(n, self.dim, g) for g in generators])


@cache
def _signals() -> tuple[Tensor, Tensor]:
    """W0, (p, p), and the observations, (n, p), float64."""
    stream = np.random.RandomState(3)
    w0 = stream.standard_normal((_CHANNELS, _CHANNELS))
    sources = stream.laplace(size=(_ROWS, _CHANNELS))
    return torch.from_numpy(w0), torch.from_numpy(sources @ np.linalg.inv(w0).T)


ICA_SYNTHETIC = ICATask(
    name="ica-synthetic",
    summary="unmixing of five generated signals, 1000 rows",
    dim=_CHANNELS**2,
    tags=frozenset({"unmixing", "multimodal", "sifg"}),
    citation="Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.3 (model)",
    metrics=("amari", *DENSITY_METRICS),
    primary="amari",
    rows=_ROWS,
    facts=Facts(unmixing=_signals()[0]),
)
