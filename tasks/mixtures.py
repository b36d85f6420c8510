"""Gaussians and mixtures of Gaussians, with exact draws.

SIFG: Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.1. Five isotropic components of equal weight,
standard deviations 0.1 ... 0.5. The text draws the means from N(0, I), the authors' code from N(0, 4 I) with a
fixed seed: the numbers below are the code's. The paper moves 1000 particles; here N is the suite's.

- ``gmm5-2d``: start N((3, 0), 0.25 I), next to the narrowest component.
- ``gmm5-10d``: start N(0, I).

KSIVI: Cheng et al. (2024), arXiv:2405.18997, Table 4. ``multimodal``, ``x-shaped``: start N(0, I).

SRLD: Ye, Ren & Liu (2020), arXiv:2002.09070. Start, from the authors' code: every coordinate from N(2, 1)
truncated to within two standard deviations.

- ``gmm2-2d`` (Appendix B.1): unit Gaussians at (1, 1) and (-1, -1).
- ``gmm2-20d`` (B.3): unit Gaussians at +-sqrt(2/d) (1, ..., 1), 2 sqrt(2) apart.
- ``gaussian-100d`` (B.2): N(0, I/2).
- ``biased-start-gaussian`` (Figure 1): a bivariate Gaussian whose past samples lie on its left half. The paper
  states no covariance; ours is I, and the start is the target's own left half, N(0, I) given x1 < 0. Chains keep
  no other past, so it is the start that carries the bias.

LAPD: Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183, Section 4.2, has no experiments; its example is a mixture of
K unit Gaussians with means within R of the origin, for which the iterations of LAPD do not grow with d.

- ``lapd-mixture-D``: K = 2, means +-R e1, R = 1.5, start N(0, I). The constants of the theory (``parvibench show
  task``), with U = f + ||x||^2 / 2 (m = 1): the Hessian of f is -R^2 / cosh^2(R x1) in its first entry and zero
  elsewhere, so L = R^2 and Tr(H) = R^4 at best; the paper's general bound is 16 K^4 R^4. The log-Sobolev constant
  a* (KL <= FI / (2 a*)) is at least exp(-R^2): the increasing map from N(0, 1) to the law of x1 has slope at most
  exp(R^2 / 2), attained at 0, and Lipschitz images and products with N(0, I) keep the inequality. None depends on d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from parvibench.core.exact import ExactTask, Normal, Start, TruncatedNormal
from parvibench.core.target import InJax, Target
from parvibench.core.task import DENSITY_METRICS, Facts, Modes
from parvibench.kernels.gram import log_sum_exp

#: Beyond, hardly any mass of a Gaussian lies near its centre and modes are not counted.
_MODES_COUNTED_UP_TO = 10


@dataclass(frozen=True)
class Mixture:
    """A mixture of Gaussians sum_k w_k N(m_k, C_k), float64; of one covariance v I in any dimension, at O(K D) a point."""

    means: Tensor  #: m, (K, D)
    weights: Tensor  #: w, (K,), summing to 1
    covariances: Tensor | None = None  #: C, (K, D, D); None: v I
    variance: float = 1.0  #: v

    @property
    def variances(self) -> Tensor:
        """Diagonals of C, (K, D), or v, (1, 1)."""
        if self.covariances is None:
            return torch.full((1, 1), self.variance, dtype=torch.float64)
        return self.covariances.diagonal(dim1=-2, dim2=-1)

    def facts(self, with_modes: bool) -> Facts:
        """Exact moments; the modes where the components are apart."""
        variances = self.variances.expand_as(self.means)
        mean = self.weights @ self.means
        second = self.weights @ (variances + self.means**2)
        modes = Modes(self.means, variances.mean(-1).sqrt(), self.weights) if with_modes else None
        return Facts(mean, (second - mean**2).sqrt(), modes)

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Independent draws, (n, D) float64."""
        k = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        z = torch.randn(n, self.means.shape[1], generator=generator, dtype=torch.float64)
        if self.covariances is None:
            return self.means[k] + math.sqrt(self.variance) * z
        return self.means[k] + (torch.linalg.cholesky(self.covariances)[k] @ z.unsqueeze(-1)).squeeze(-1)


class FullMixtureTarget(Target):
    """The normalised density of a mixture; arrays end in the points, as products with small matrices are fast so."""

    def __init__(self, mixture: Mixture, device: torch.device | str, dtype: torch.dtype) -> None:
        assert mixture.covariances is not None
        precisions = torch.linalg.inv(mixture.covariances)
        self.dim = mixture.means.shape[1]
        constants = mixture.weights.log() + 0.5 * (precisions / (2 * math.pi)).logdet()
        self._in_jax = constants.numpy(), mixture.means.numpy(), precisions.numpy()
        self._means = mixture.means.unsqueeze(-1).to(device, dtype)
        self._precisions = precisions.to(device, dtype)
        self._constants = constants.unsqueeze(-1).to(device, dtype)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log density in nats: (R, N, D) -> (R, N)."""
        return log_sum_exp(self._components(x)[0], -2)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        return self._score(*self._components(x))

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one pass: grad log p = -sum_k r_k(x) P_k (x - m_k), r the responsibilities."""
        log_p, pulls = self._components(x)
        return log_sum_exp(log_p, -2), self._score(log_p, pulls)

    @staticmethod
    def _score(log_p: Tensor, pulls: Tensor) -> Tensor:
        return -(log_p.softmax(-2).unsqueeze(-2) * pulls).sum(-3).mT

    def _components(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log of w_k N(x; m_k, C_k), (R, K, N), and P_k (x - m_k), (R, K, D, N)."""
        apart = x.mT.unsqueeze(-3) - self._means
        pulls = self._precisions @ apart
        return self._constants - 0.5 * (apart * pulls).sum(-2), pulls

    def in_jax(self) -> InJax:
        """The same."""
        return InJax(_full_in_jax, self._in_jax)


def _full_in_jax(data: Any, x: Any) -> Any:
    from jax.numpy import einsum
    from jax.scipy.special import logsumexp

    constants, means, precisions = data
    return logsumexp(constants - 0.5 * einsum("kd,kde,ke->k", x - means, precisions, x - means))


class SphericalMixtureTarget(Target):
    """Normalised, by log w_k N(x; m_k, v I) = (x.m_k - ||m_k||^2 / 2) / v + log w_k up to a term of x alone."""

    def __init__(self, mixture: Mixture, device: torch.device | str, dtype: torch.dtype) -> None:
        self.dim = mixture.means.shape[1]
        v = mixture.variance
        offsets = mixture.weights.log() - mixture.means.square().sum(-1) / (2 * v)
        self._means = mixture.means.to(device, dtype)
        self._offsets = offsets.to(device, dtype)
        self._variance = v
        self._constant = -0.5 * self.dim * math.log(2 * math.pi * v)
        self._in_jax = mixture.weights.log().numpy(), mixture.means.numpy(), v

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log density in nats: (R, N, D) -> (R, N)."""
        return self._log_density(x, self._logits(x))

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        return self._score(x, self._logits(x))

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one pass: grad log p = (sum_k r_k(x) m_k - x) / v, r the responsibilities."""
        logits = self._logits(x)
        return self._log_density(x, logits), self._score(x, logits)

    def _logits(self, x: Tensor) -> Tensor:
        """Logarithms of the responsibilities up to a term of x, (R, N, K)."""
        return x @ self._means.T / self._variance + self._offsets

    def _log_density(self, x: Tensor, logits: Tensor) -> Tensor:
        return log_sum_exp(logits, -1) - x.square().sum(-1) / (2 * self._variance) + self._constant

    def _score(self, x: Tensor, logits: Tensor) -> Tensor:
        return (logits.softmax(-1) @ self._means - x) / self._variance

    def in_jax(self) -> InJax:
        """The same, up to a constant."""
        return InJax(_spherical_in_jax, self._in_jax)


def _spherical_in_jax(data: Any, x: Any) -> Any:
    from jax.scipy.special import logsumexp

    log_weights, means, variance = data
    return logsumexp(log_weights - ((x - means) ** 2).sum(-1) / (2 * variance))


@dataclass(frozen=True)
class LeftHalf(Start):
    """N(0, I) given x1 < 0."""

    def sample(self, n: int, dim: int, generator: Generator) -> Tensor:
        """Independent draws, (n, dim) float64."""
        x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
        x[:, 0] = -x[:, 0].abs()
        return x


@dataclass(frozen=True, kw_only=True)
class MixtureTask(ExactTask):
    """A mixture of Gaussians."""

    mixture: Mixture

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """The density, the same for all replicates."""
        kind = SphericalMixtureTarget if self.mixture.covariances is None else FullMixtureTarget
        return kind(self.mixture, device, dtype)

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64."""
        return self.mixture.sample(n, generator)


def _means(*rows: Sequence[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def _equal(means: Tensor) -> Tensor:
    """Equal weights, (K,)."""
    return torch.full((len(means),), 1 / len(means), dtype=torch.float64)


def _full(means: Tensor, *covariances: Tensor) -> Mixture:
    return Mixture(means, _equal(means), torch.stack(covariances))


def _spherical(means: Tensor, variance: float = 1.0) -> Mixture:
    return Mixture(means, _equal(means), variance=variance)


def _five(means: Tensor) -> Mixture:
    """SIFG's five components of standard deviation 0.1 ... 0.5, in this order."""
    unit = torch.eye(means.shape[1], dtype=torch.float64)
    return _full(means, *(s * s * unit for s in (0.1, 0.2, 0.3, 0.4, 0.5)))


def _mode_metrics(dim: int) -> tuple[str, ...]:
    counted = ("modes_found",) if dim <= _MODES_COUNTED_UP_TO else ()
    return (*DENSITY_METRICS, *counted, "mode_weight_tv")


_SIFG = "Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.1"
_KSIVI = "Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Table 4"
_SRLD = "Ye, Ren & Liu (2020), arXiv:2002.09070"
_LAPD = "Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183, Section 4.2"

_GMM5_2D = _five(
    _means(
        (1.322704, 0.533848),
        (0.123355, 1.242635),
        (-0.903812, -0.332260),
        (-3.045537, 0.763368),
        (-2.055217, -1.126106),
    )
)
_GMM5_10D = _five(
    _means(
        (-3.051192, -1.500464, -1.307962, -3.218970, -0.200334, -1.218378, -1.959544, -3.218193, -1.424289, 0.607444),
        (-1.554629, -0.502910, -0.444541, 3.374227, 0.456850, 0.935271, -1.393945, -2.321523, 1.399085, 0.398163),
        (1.731385, 0.488808, -1.325823, 1.614616, 2.203361, -0.351872, -4.491116, -2.892916, 0.122311, -1.235489),
        (-1.596140, -0.263246, 3.758692, -0.144264, 0.132561, -0.874080, 1.525201, 0.883022, 2.330277, 4.030784),
        (0.430365, -1.048387, -0.372002, -1.289279, 3.078492, -1.739175, -6.662308, -1.495744, 2.234699, 0.596271),
    )
)  # fmt: skip
_PAIR = _full(_means((-2.0, 0.0), (2.0, 0.0)), *[torch.eye(2, dtype=torch.float64)] * 2)
_CROSS = _full(_means((0.0, 0.0), (0.0, 0.0)), _means((2.0, 1.8), (1.8, 2.0)), _means((2.0, -1.8), (-1.8, 2.0)))
_HALF = _spherical(torch.zeros(1, 100, dtype=torch.float64), 0.5)
_UNIT = _spherical(torch.zeros(1, 2, dtype=torch.float64))


def _gmm2(dim: int, offset: float) -> Mixture:
    """SRLD's pair of unit Gaussians at +-offset (1, ..., 1)."""
    return _spherical(_means([offset] * dim, [-offset] * dim))


def _task(
    name: str, summary: str, mixture: Mixture, tags: str, citation: str, start: Start | None = None
) -> MixtureTask:
    """A task of the family; where its tags say ``multimodal``, the components are modes."""
    dim, modes = mixture.means.shape[1], "multimodal" in tags
    return MixtureTask(
        name=name,
        summary=summary,
        dim=dim,
        tags=frozenset({"exact", *tags.split(), *(["2d"] if dim == 2 else [])}),
        citation=citation,
        metrics=_mode_metrics(dim) if modes else DENSITY_METRICS,
        facts=mixture.facts(with_modes=modes),
        mixture=mixture,
        start=start or Normal(),
    )


def _lapd_mixture(dim: int, radius: float = 1.5) -> MixtureTask:
    """LAPD's example in dimension D, with its constants (module docstring)."""
    means = torch.zeros(2, dim, dtype=torch.float64)
    means[:, 0] = torch.tensor([radius, -radius])
    summary = "two unit Gaussians three apart along the first axis"
    task = _task(f"lapd-mixture-{dim}", summary, _spherical(means), "multimodal lapd", _LAPD)
    constants = {"L": radius**2, "Tr(H)": radius**4, "log-Sobolev constant, at least": math.exp(-(radius**2))}
    return replace(task, facts=replace(task.facts, constants=constants))


# fmt: off
GMM5_2D = _task(
    "gmm5-2d", "five Gaussians of sd 0.1 to 0.5; start beside the narrowest", _GMM5_2D, "multimodal sifg", _SIFG,
    Normal((3.0, 0.0), 0.5),
)
GMM5_10D = _task(
    "gmm5-10d", "five Gaussians of sd 0.1 to 0.5, far apart; start in between", _GMM5_10D, "multimodal sifg", _SIFG
)
MULTIMODAL = _task("multimodal", "two unit Gaussians four apart", _PAIR, "multimodal ksivi", _KSIVI)
X_SHAPED = _task("x-shaped", "two crossed, strongly correlated Gaussians", _CROSS, "correlated ksivi", _KSIVI)
GMM2_2D = _task(
    "gmm2-2d", "two unit Gaussians at (1, 1) and (-1, -1); start beyond the former", _gmm2(2, 1.0), "multimodal srld",
    f"{_SRLD}, Appendix B.1", TruncatedNormal(),
)
GMM2_20D = _task(
    "gmm2-20d", "two unit Gaussians 2 sqrt(2) apart on the diagonal; start beyond one", _gmm2(20, math.sqrt(2 / 20)),
    "multimodal srld", f"{_SRLD}, Appendix B.3", TruncatedNormal(),
)
GAUSSIAN_100D = _task(
    "gaussian-100d", "a Gaussian of variance 1/2; start far out", _HALF, "gaussian log-concave srld",
    f"{_SRLD}, Appendix B.2", TruncatedNormal(),
)
BIASED_START_GAUSSIAN = _task(
    "biased-start-gaussian", "a unit Gaussian; start on its left half", _UNIT, "gaussian log-concave srld",
    f"{_SRLD}, Figure 1", LeftHalf(),
)
# fmt: on
LAPD_MIXTURE_2 = _lapd_mixture(2)
LAPD_MIXTURE_8 = _lapd_mixture(8)
LAPD_MIXTURE_32 = _lapd_mixture(32)
LAPD_MIXTURE_128 = _lapd_mixture(128)
LAPD_MIXTURE_512 = _lapd_mixture(512)
LAPD_MIXTURE_2048 = _lapd_mixture(2048)
