"""Bayesian linear regression with known noise: a posterior with data, mini-batches and closed forms.

    log p(w) = -(m/2) ||w||^2 - sum_i (y_i - w.x_i)^2 / (2 sigma^2),  m = 1, sigma = 1/2

whose posterior is N(P^-1 X^T y / sigma^2, P^-1) with P = X^T X / sigma^2 + m I. Ours: what mini-batch noise, a
prior counted once per batch or a missing factor n/B do to a sampler can be worked out here exactly.

``linear-regression``: 60 rows of an intercept and two correlated features, batches of 12. Inputs and noise are
the fractional parts of multiples of irrational numbers, put through the normal quantile function: numbers by
formula, the same everywhere. Start N(0, I), the prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor

from parvibench.core.exact import ExactTask
from parvibench.core.target import Target
from parvibench.core.task import Facts

_ROWS, _BATCH = 60, 12
_NOISE_SD = 0.5
_WEIGHTS = (0.5, 1.0, -1.0)
#: sqrt(2), sqrt(3), sqrt(5): one sequence of quasi-random normal numbers each.
_IRRATIONAL = (2**0.5, 3**0.5, 5**0.5)


@dataclass(frozen=True)
class LinearModel:
    """Rows, noise and prior, with the posterior in closed form; float64."""

    X: Tensor  #: (n, D)
    y: Tensor  #: (n,)
    noise_sd: float  #: sigma
    prior_precision: float  #: m

    @cached_property
    def precision(self) -> Tensor:
        """P, (D, D)."""
        eye = torch.eye(self.X.shape[1], dtype=torch.float64)
        return self.X.T @ self.X / self.noise_sd**2 + self.prior_precision * eye

    @cached_property
    def covariance(self) -> Tensor:
        """P^-1, (D, D)."""
        return torch.linalg.inv(self.precision)

    @cached_property
    def mean(self) -> Tensor:
        """The posterior's mean, (D,)."""
        return self.covariance @ self.X.T @ self.y / self.noise_sd**2

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Independent draws of the posterior, (n, D) float64."""
        z = torch.randn(n, len(self.mean), generator=generator, dtype=torch.float64)
        return self.mean + z @ torch.linalg.cholesky(self.covariance).T


class LinearTarget(Target):
    """The unnormalised posterior of the weights."""

    def __init__(self, model: LinearModel, device: torch.device | str, dtype: torch.dtype) -> None:
        self.rows, self.dim = model.X.shape
        self.prior_precision: float = model.prior_precision
        self._noise_precision = model.noise_sd**-2
        self._X, self._y = model.X.to(device, dtype), model.y.to(device, dtype)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        _, residual, weight = self._residual(x, batch)
        return -0.5 * (weight * (residual**2).sum(-1) + self.prior_precision * (x**2).sum(-1))

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        X, residual, weight = self._residual(x, batch)
        return weight * (residual @ X) - self.prior_precision * x

    def _residual(self, x: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor, float]:
        """Rows, y - X w (R, N, B), and the precision of a row's noise times n/B."""
        if batch is None:
            return self._X, self._y - x @ self._X.mT, self._noise_precision
        X, y = self._X[batch], self._y[batch].unsqueeze(1)
        return X, y - x @ X.mT, self._noise_precision * len(self._X) / batch.shape[-1]


@dataclass(frozen=True, kw_only=True)
class LinearTask(ExactTask):
    """Linear regression on all rows of a table made by formula."""

    model: LinearModel

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> LinearTarget:
        """The posterior given all rows, the same for all replicates."""
        return LinearTarget(self.model, device, dtype)

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64."""
        return self.model.sample(n, generator)


def _model() -> LinearModel:
    i = torch.arange(1, _ROWS + 1, dtype=torch.float64)
    first, second, noise = (torch.special.ndtri((i * a) % 1) for a in _IRRATIONAL)
    X = torch.stack([torch.ones_like(i), first, 0.8 * first + 0.6 * second], dim=1)
    y = X @ torch.tensor(_WEIGHTS, dtype=torch.float64) + _NOISE_SD * noise
    return LinearModel(X, y, _NOISE_SD, prior_precision=1.0)


_MODEL = _model()
LINEAR_REGRESSION = LinearTask(
    name="linear-regression",
    summary="Bayesian linear regression, 60 rows in batches of 12, in closed form",
    dim=_MODEL.X.shape[1],
    tags=frozenset({"gaussian", "log-concave", "exact"}),
    citation="ours",
    batch_size=_BATCH,
    rows=_ROWS,
    facts=Facts(mean=_MODEL.mean, sd=_MODEL.covariance.diagonal().sqrt()),
    model=_MODEL,
)
