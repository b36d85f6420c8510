"""Bayesian independent component analysis, of generated signals and of recorded ones.

Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.3: x = W^-1 s with independent sources of density
1 / (pi cosh s) and W_ij ~ N(0, 100), so that given n observations

    log p(W) = n log|det W| - sum_n sum_i log cosh (W x_n)_i - ||W||^2 / 200 + const

Generated signals, after the example of Korba et al. (2021), arXiv:2105.09994: a 5 x 5 matrix W0 of standard normal
entries, n = 1000 rows of Laplace sources s, x = W0^-1 s, all from ``numpy.random.RandomState(3)``, whose stream is
frozen. W0 is known, so the Amari distance judges the samples. Start, the authors' code: W_ij ~ N(0, 100).

Recorded signals, the paper's: the first 5 of 122 channels of a magnetoencephalogram (Vigario, Sarela & Oja 1997,
NIPS 10), n = 17,730, neither centred nor scaled. Nobody knows their unmixing matrix. The authors take the mean of
the second half of one HMC chain of 100,000 iterations for it, of whichever mode that chain is in; the Amari distance
to it says how near a sampler is to their chain. Here samples are judged by the density (``ksd``) instead.

Trap: the authors' code divides the log likelihood by n for all its samplers, the reference chain included. That
posterior is as wide as a single observation leaves it: on the generated data the Amari distance of its exact
samples, 0.89, exceeds the start's, 0.68, where the posterior above has 0.009. So the generated signals have no such
variant, since no distance to W0 could rank its samplers; the recorded ones do, to repeat what the paper ran.

The posterior has 2^5 5! equal modes, the orders and signs of the rows of W; the Amari distance is the same at all.
"""

import math
import warnings
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
from parvibench.data.archives import load_channels

_CHANNELS = 5
_RECORDING = "meg-art"
_ROWS = 1000
_PRIOR_PRECISION = 0.01


class ICATarget(Target):
    """The posterior of W, row-major, given observations (n, p); ``tempered`` divides the log likelihood by n."""

    prior_precision: float = _PRIOR_PRECISION

    def __init__(self, x: Tensor, tempered: bool = False) -> None:
        self.rows: int = len(x)
        self._channels = x.shape[1]
        self.dim = self._channels**2
        self._x = x
        #: Power of the likelihood.
        self._power = 1 / self.rows if tempered else 1.0
        prior = 0.5 * self.dim * math.log(2 * math.pi / _PRIOR_PRECISION)
        self._constant = -self._power * self.rows * self._channels * math.log(math.pi) - prior  # of sources: 1/pi

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log of likelihood times prior in nats; -inf at singular W: (R, N, D) -> (R, N)."""
        w, _, sources, scale = self._sources(x, batch)
        # log cosh s = |s| + log(1 + exp(-2 |s|)) - log 2
        log_cosh = sources.abs() + softplus(-2 * sources.abs()) - math.log(2)
        likelihood = self.rows * torch.linalg.slogdet(w)[1] - scale * log_cosh.sum((-2, -1))
        prior = -0.5 * _PRIOR_PRECISION * x.square().sum(-1)
        return self._power * likelihood + prior + self._constant

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient n W^-T - tanh(W X) X^T - W / 100, not finite at singular W: (R, N, D) -> (R, N, D)."""
        w, data, sources, scale = self._sources(x, batch)
        likelihood = self.rows * torch.linalg.inv_ex(w)[0].mT - scale * sources.tanh() @ data
        return self._power * likelihood.flatten(-2) - _PRIOR_PRECISION * x

    def _sources(self, x: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor, Tensor, float]:
        """W (R, N, p, p), observations (B, p) or (R, 1, B, p), their sources (R, N, p, B), and n/B."""
        w = x.reshape(*x.shape[:-1], self._channels, self._channels)
        data = self._x if batch is None else self._x[batch].unsqueeze(1)
        return w, data, w @ data.mT, self.rows / data.shape[-2]


@dataclass(frozen=True, kw_only=True)
class ICATask(Task):
    """Unmixing of the generated signals."""

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> ICATarget:
        """The posterior given all rows, the same for all replicates."""
        return ICATarget(_signals()[1].to(device, dtype))

    def canonical(self, x: Tensor) -> Tensor:
        """Rows of W in the order, and with the signs, that bring W nearest to W0: (..., D) -> (..., D).

        With P = W W0^-1 and its rows of unit length: the order that maximises sum_i |P_i,order(i)|, over all p!,
        then the signs that make these entries positive. All 2^p p! equal modes fall onto one.
        """
        known = self.landmark()
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

    def landmark(self) -> Tensor:
        """W0 of the canonical coordinates, (p, p): the known unmixing matrix."""
        known = self.facts.unmixing
        assert known is not None
        return known

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from the prior N(0, 100 I), (R, n, D) float64."""
        return torch.stack([Normal(sd=10.0).sample(n, self.dim, g) for g in generators])


@dataclass(frozen=True, kw_only=True)
class MEGTask(ICATask):
    """Unmixing of five recorded channels of a magnetoencephalogram.

    The tempered density is the one that the authors' code samples, not the posterior that the paper states: the prior
    times the n-th root of the likelihood of n = 17,730 observations.

    The unmixing matrix is unknown, so no Amari distance is measured. W0 of the canonical coordinates, which only
    settle the order and signs of rows, is the solution of FastICA (log cosh) on the recording from a fixed start.
    """

    tempered: bool = False  #: whether the log likelihood is divided by n

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> ICATarget:
        """The posterior given all rows, the same for all replicates."""
        recorded = torch.from_numpy(load_channels(_RECORDING, _CHANNELS).copy())
        return ICATarget(recorded.to(device, dtype), self.tempered)

    def landmark(self) -> Tensor:
        """W0 of the canonical coordinates, (p, p): FastICA's solution."""
        return _fast_ica()


@cache
def _fast_ica() -> Tensor:
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():  # wherever it stops, it stops there every time
        warnings.simplefilter("ignore", ConvergenceWarning)
        method = FastICA(whiten="unit-variance", w_init=np.eye(_CHANNELS), max_iter=1000, tol=1e-8)
        method.fit(load_channels(_RECORDING, _CHANNELS))
    return torch.from_numpy(method.components_)


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


def _meg(name: str, summary: str, tempered: bool = False) -> MEGTask:
    return MEGTask(
        name=name,
        summary=summary,
        dim=_CHANNELS**2,
        tags=frozenset({"unmixing", "multimodal", "sifg"}),
        citation="Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.3",
        metrics=("ksd", "ess_bulk", "rhat", "seconds", "score_evaluations", "peak_memory"),
        primary="ksd",
        rows=17_730,
        data=(_RECORDING,),
        tempered=tempered,
    )


ICA_MEG = _meg("ica-meg", "unmixing of five recorded channels, 17730 rows")
ICA_MEG_TEMPERED = _meg(
    "ica-meg-tempered", "unmixing of five recorded channels, log likelihood divided by 17730", tempered=True
)
