"""Mixtures of Gaussians in the plane, with exact draws.

- ``gmm5-2d``: Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.1. Five isotropic components, equal
  weights, standard deviations 0.1 ... 0.5. The text draws the means from N(0, I); the authors' code draws
  them from N(0, 4 I) with a fixed seed, and those are the numbers below. Start N((3, 0), 0.25 I), beside the
  narrowest component. The paper moves 1000 particles; here N is the suite's, 100 by default.
- ``multimodal`` and ``x-shaped``: Cheng et al. (2024), arXiv:2405.18997, Table 4. Start N(0, I).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from parvibench.core.target import Target
from parvibench.core.task import DENSITY_METRICS, Facts, Modes, Task


@dataclass(frozen=True)
class Mixture:
    """Parameters of sum_k w_k N(m_k, C_k), float64.

    Attributes:
        means: m, (K, D).
        covariances: C, (K, D, D).
        weights: w, (K,), summing to 1.
    """

    means: Tensor
    covariances: Tensor
    weights: Tensor

    @classmethod
    def equal(cls, means: Sequence[Sequence[float]], covariances: Tensor) -> Mixture:
        """Components of equal weight."""
        m = torch.tensor(means, dtype=torch.float64)
        return cls(m, covariances, torch.full((len(m),), 1 / len(m), dtype=torch.float64))

    def facts(self, with_modes: bool) -> Facts:
        """Exact moments; the modes where the components are apart."""
        mean = self.weights @ self.means
        second = self.covariances.diagonal(dim1=-2, dim2=-1) + self.means**2
        spreads = self.covariances.diagonal(dim1=-2, dim2=-1).mean(-1).sqrt()
        modes = Modes(self.means, spreads, self.weights) if with_modes else None
        return Facts(mean, (self.weights @ second - mean**2).sqrt(), modes)

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Independent draws, (n, D) float64."""
        k = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        z = torch.randn(n, self.means.shape[1], 1, generator=generator, dtype=torch.float64)
        return self.means[k] + (torch.linalg.cholesky(self.covariances)[k] @ z).squeeze(-1)


class MixtureTarget(Target):
    """The normalised density of a mixture; responsibilities are shared by density and score."""

    def __init__(self, mixture: Mixture, device: torch.device | str, dtype: torch.dtype) -> None:
        precisions = torch.linalg.inv(mixture.covariances)
        self.dim = mixture.means.shape[1]
        constants = mixture.weights.log() + 0.5 * (precisions / (2 * math.pi)).logdet()
        self._means = mixture.means.unsqueeze(-2).to(device, dtype)
        self._precisions = precisions.to(device, dtype)
        self._constants = constants.unsqueeze(-1).to(device, dtype)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log density in nats: (R, N, D) -> (R, N)."""
        return self._components(x)[0].logsumexp(-2)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        return self.log_density_and_score(x)[1]

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one pass: grad log p = -sum_k r_k(x) P_k (x - m_k), r the responsibilities."""
        log_p, pulls = self._components(x)
        return log_p.logsumexp(-2), -(log_p.softmax(-2).unsqueeze(-1) * pulls).sum(-3)

    def _components(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log of w_k N(x; m_k, C_k), (R, K, N), and P_k (x - m_k), (R, K, N, D)."""
        apart = x.unsqueeze(-3) - self._means
        pulls = apart @ self._precisions  # symmetric
        return self._constants - 0.5 * (apart * pulls).sum(-1), pulls


@dataclass(frozen=True, kw_only=True)
class MixtureTask(Task):
    """A mixture with its start N(start_mean, start_sd^2 I)."""

    mixture: Mixture
    start_mean: tuple[float, ...] = (0.0, 0.0)
    start_sd: float = 1.0
    provides: frozenset[str] = frozenset({"score", "hvp", "full-batch", "exact"})

    def target(
        self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype
    ) -> MixtureTarget:
        """The density, the same for all replicates."""
        return MixtureTarget(self.mixture, device, dtype)

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from the start distribution, (R, n, D) float64."""
        z = [torch.randn(n, self.dim, generator=g, dtype=torch.float64) for g in generators]
        return torch.tensor(self.start_mean, dtype=torch.float64) + self.start_sd * torch.stack(z)

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64."""
        return self.mixture.sample(n, generator)


def _covariances(*matrices: tuple[tuple[float, float], tuple[float, float]]) -> Tensor:
    return torch.tensor(matrices, dtype=torch.float64)


_GMM5 = Mixture.equal(
    [
        (1.322704, 0.533848),
        (0.123355, 1.242635),
        (-0.903812, -0.332260),
        (-3.045537, 0.763368),
        (-2.055217, -1.126106),
    ],
    _covariances(*(((s * s, 0.0), (0.0, s * s)) for s in (0.1, 0.2, 0.3, 0.4, 0.5))),
)
_PAIR = Mixture.equal([(-2.0, 0.0), (2.0, 0.0)], _covariances(*[((1.0, 0.0), (0.0, 1.0))] * 2))
_CROSS = Mixture.equal(
    [(0.0, 0.0), (0.0, 0.0)],
    _covariances(((2.0, 1.8), (1.8, 2.0)), ((2.0, -1.8), (-1.8, 2.0))),
)

GMM5_2D = MixtureTask(
    name="gmm5-2d",
    summary="five Gaussians of sd 0.1 to 0.5; start beside the narrowest",
    dim=2,
    tags=frozenset({"2d", "multimodal", "exact", "sifg"}),
    citation="Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.1",
    metrics=(*DENSITY_METRICS, "modes_found", "mode_weight_tv"),
    facts=_GMM5.facts(with_modes=True),
    mixture=_GMM5,
    start_mean=(3.0, 0.0),
    start_sd=0.5,
)

MULTIMODAL = MixtureTask(
    name="multimodal",
    summary="two unit Gaussians four apart",
    dim=2,
    tags=frozenset({"2d", "multimodal", "exact", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Table 4",
    metrics=(*DENSITY_METRICS, "modes_found", "mode_weight_tv"),
    facts=_PAIR.facts(with_modes=True),
    mixture=_PAIR,
)

X_SHAPED = MixtureTask(
    name="x-shaped",
    summary="two crossed, strongly correlated Gaussians",
    dim=2,
    tags=frozenset({"2d", "correlated", "exact", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Table 4",
    facts=_CROSS.facts(with_modes=False),
    mixture=_CROSS,
)
