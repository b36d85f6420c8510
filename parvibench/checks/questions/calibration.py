"""Calibration within a model: parameters drawn from a prior, data given them, and the parameters' ranks in the posterior.

Simulation-based calibration (Talts, Betancourt, Simpson, Vehtari & Gelman 2018, arXiv:1804.06788): among N draws of the
posterior, the rank of the parameter that made the data is uniform on 0..N. Each replicate has data of its own, so that
samplers meet posteriors of many places, widths and skewnesses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from parvibench.checks.question import Bound, Expected, Values
from parvibench.checks.summaries import generator_of, joined, per_replicate, rank_statistics, ranks_among
from parvibench.checks.targets import STABLE
from parvibench.core.target import InJax, Target

from .of_sampler import OfSampler

#: Independent parameters, trials of each, prior sd of the log odds, and the unit in which posteriors are about 1/2 wide.
_DIM, _TRIALS, _PRIOR, _UNIT = 6, 8, 1.5, 0.7
#: Errors of the mean rank and of its mean distance from the middle, as shares of N, that an approximation is allowed.
_LIMIT = 0.03


class _Binomial(Target):
    """Posterior of log odds t = x / unit: t ~ N(0, prior^2), y ~ Binomial(trials, 1 / (1 + e^-t)); y is (R, 1, D)."""

    dim = _DIM

    def __init__(self, y: Tensor) -> None:
        self._y = y

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """(R, N, D) -> (R, N)."""
        t = x / _UNIT
        return (self._y.to(x) * t - _TRIALS * softplus(t) - (t / _PRIOR).square() / 2).sum(-1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """(R, N, D) -> (R, N, D)."""
        t = x / _UNIT
        return (self._y.to(x) - _TRIALS * torch.sigmoid(t) - t / _PRIOR**2) / _UNIT

    def in_jax(self) -> InJax:
        """The same density, of the one replicate that a kernel in JAX is given at a time."""
        return InJax(_binomial_in_jax, self._y[0, 0].numpy())


def _binomial_in_jax(y: Any, x: Any) -> Any:
    import jax.numpy as jnp

    t = x / _UNIT
    return (y * t - _TRIALS * jnp.logaddexp(0, t) - (t / _PRIOR) ** 2 / 2).sum()


@dataclass(frozen=True)
class Calibration(OfSampler):
    """Whether parameters have uniform ranks in the posteriors of their data, among the last states of the chains.

    - ``calibrated.rank``: mean rank of all parameters as a share of N, less 1/2.
    - ``calibrated.rank_spread``: its mean distance from 1/2, less that of uniform ranks.
    """

    limit: float = _LIMIT  #: 0 for a sampler that claims to be exact

    title = "calibration"
    hint = "a step that fits one width only, or a bias on skewed posteriors: ranks pile up at the ends or in the middle"

    def measure(self, replicates: range, seed: int) -> Values:
        """One value per replicate."""
        return joined(self._ranks(ids, seed) for ids in per_replicate(replicates, self.loaded.max_chunk))

    def _ranks(self, ids: Sequence[int], seed: int) -> Values:
        g = generator_of("model", seed, ids)
        t = _PRIOR * torch.randn(len(ids), 1 + self.points, _DIM, generator=g, dtype=torch.float64)
        trials = torch.rand(len(ids), _TRIALS, _DIM, generator=g, dtype=torch.float64)
        y = (trials < torch.sigmoid(t[:, :1])).double().sum(1, keepdim=True)
        truth, start = _UNIT * t[:, :1], _UNIT * t[:, 1:]  # of the prior
        run = self.observe(self.problem(STABLE["normal"], ids, seed, start, _Binomial(y)))
        x = run.outputs[self.effort.steps]  # (R, n, D)
        ranks = ranks_among(truth[:, 0], x, g)
        rank, spread = rank_statistics(ranks[None], x.shape[1]).values()
        uniform = float(torch.linspace(-0.5, 0.5, x.shape[1] + 1, dtype=torch.float64).abs().mean())
        return {"calibrated.rank": rank, "calibrated.rank_spread": [value - uniform for value in spread]}

    def expected(self) -> Mapping[str, Expected]:
        """Uniform ranks."""
        return {f"calibrated.{name}": Bound(self.limit) for name in ("rank", "rank_spread")}
