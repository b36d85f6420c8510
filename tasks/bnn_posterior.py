"""Posteriors of network regressions, and their predictions on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from parvibench.core.reference import Certified
from parvibench.core.target import Target

from .bnn_network import RATE, Model


class BNNTarget(Target):
    """The posterior of each replicate's network given its training rows X (R, n, p) and y (R, n).

    ``development``: features (R, V, p) and responses (R, V) of rows held back, standardised as the others; or None.
    """

    def __init__(self, X: Tensor, y: Tensor, model: Model, development: tuple[Tensor, Tensor] | None = None) -> None:
        self.rows: int = X.shape[1]
        self.model, self.dim = model, model.dim
        if model.log_gamma is not None and model.log_lambda is not None:
            self.prior_precision = math.exp(model.log_lambda)
        self._X, self._y = with_ones(X), y
        if development is not None:
            self.development_rows = development[0].shape[1]
            self._development = with_ones(development[0]), development[1]

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        return self._assemble(x, self.squares(x, batch), self._scale(batch))

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient, written out by hand: (R, N, D) -> (R, N, D); differentiable once more by autograd."""
        return self._score(x, *self._squares_and_gradient(x, batch), self._scale(batch))

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one forward pass."""
        squares, gradient = self._squares_and_gradient(x, batch)
        scale = self._scale(batch)
        return self._assemble(x, squares, scale), self._score(x, squares, gradient, scale)

    def fit_gradient(self, x: Tensor, batch: Tensor | None = None, development: bool = False) -> Tensor:
        """With r = y - mean_i f(x_i) the gradient in x_i is -2 / (N V) times the sum of r df(x_i)/dx_i over V rows."""
        X, y = self._development if development else self._data(batch)
        gradient = torch.zeros_like(x)
        for rows in self.model.network.blocks(x, X.shape[1]):
            f, active = self.model.network.forward(x, X[:, rows])
            error = (y[:, rows] - f.mean(1)).unsqueeze(1).expand_as(f)
            by_weights = self.model.network.pull_back(x, error, active, X[:, rows])
            gradient[..., : by_weights.shape[2]] += by_weights
        return gradient.mul_(-2 / (x.shape[1] * X.shape[1]))

    def squares(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """S = sum of (y - f)^2 over the rows or the batch, (R, N)."""
        blocks = [residual.square().sum(-1) for residual, _, _ in self._residuals(x, batch)]
        return torch.stack(blocks).sum(0)

    def with_noise(self, x: Tensor, log_gamma: Callable[[Tensor], Tensor], batch: Tensor | None = None) -> Tensor:
        """States (R, N, D) whose gamma is a function of their own fit, as far as it is a coordinate.

        ``log_gamma`` maps S to it, (R, N) -> (R, N); S sums over the rows ``batch``, (R, B), or all.
        """
        x = x.to(self._X)
        batch = None if batch is None else batch.to(self._X.device)
        weights, _, log_lambda = self.model.split(x)
        return self.model.joined(weights, log_gamma(self.squares(x, batch)), log_lambda)

    def _assemble(self, x: Tensor, squares: Tensor, scale: float) -> Tensor:
        """The log density from S, (R, N)."""
        weights, log_gamma, log_lambda = self.model.split(x)
        (gamma, _), (lam, _) = self.model.precision(log_gamma), self.model.precision(log_lambda)
        fit = 0.5 * self.rows * log_gamma - 0.5 * scale * gamma * squares
        prior = 0.5 * self.model.network.weights * log_lambda - 0.5 * lam * weights.square().sum(-1)
        log_density = fit + prior
        for log_value, value in self.model.coordinates((log_gamma, gamma), (log_lambda, lam)):
            log_density = log_density + log_value - RATE * value
        return log_density

    def _score(self, x: Tensor, squares: Tensor, gradient: Tensor, scale: float) -> Tensor:
        """The score from S and the gradient of -S/2 in the weights."""
        weights, log_gamma, log_lambda = self.model.split(x)
        (gamma, slope_gamma), (lam, slope_lambda) = map(self.model.precision, (log_gamma, log_lambda))
        by_weights = (scale * gamma).unsqueeze(-1) * gradient - lam.unsqueeze(-1) * weights
        by_gamma = 0.5 * self.rows + 1 - (0.5 * scale * squares + RATE) * slope_gamma
        half_norm = 0.5 * weights.square().sum(-1)
        by_lambda = 0.5 * self.model.network.weights + 1 - (half_norm + RATE) * slope_lambda
        return self.model.joined(by_weights, by_gamma, by_lambda)

    def _squares_and_gradient(self, x: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor]:
        """S (R, N) and the gradient of -S/2 in the weights (R, N, D_w)."""
        blocks = [
            (residual.square().sum(-1), self.model.network.pull_back(x, residual, active, X))
            for residual, active, X in self._residuals(x, batch)
        ]
        squares, gradient = blocks[0]
        for more, further in blocks[1:]:
            squares, gradient = squares + more, gradient + further
        return squares, gradient

    def _residuals(self, x: Tensor, batch: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Per block of rows: y - f (R, N, B), activations (R, N, H, B) and inputs (R, B, p+1)."""
        X, y = self._data(batch)
        for rows in self.model.network.blocks(x, X.shape[1]):
            f, active = self.model.network.forward(x, X[:, rows])
            yield y[:, None, rows] - f, active, X[:, rows]

    def _data(self, batch: Tensor | None) -> tuple[Tensor, Tensor]:
        if batch is None:
            return self._X, self._y
        first = torch.arange(len(batch), device=batch.device).unsqueeze(-1) * self.rows
        rows = (batch + first).flatten()  # half the time of indexing by two arrays
        chosen = self._X.flatten(0, 1).index_select(0, rows), self._y.flatten().index_select(0, rows)
        return chosen[0].view(*batch.shape, -1), chosen[1].view(batch.shape)

    def _scale(self, batch: Tensor | None) -> float:
        """n/B."""
        return 1.0 if batch is None else self.rows / batch.shape[-1]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Held-out rows of each replicate and the networks' predictions on them."""

    y: Tensor  #: (R, T) responses in original units
    X: Tensor  #: (R, T, p+1) features scaled as for training, and a column of ones
    y_mean: Tensor  #: (R, 1, 1) what was subtracted from the training responses, original units
    y_sd: Tensor  #: (R, 1, 1) what they were divided by, original units
    noise_unit: Tensor  #: (R, 1) unit of the noise deviation 1/sqrt(gamma), original units
    model: Model  #: of the states
    certified: Certified | None = None  #: posterior predictions to compare with; None if unknown

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Means f s_y + m_y (R, n, T) and noise standard deviations (R, n) of states (R, n, D), in original units."""
        x = samples.to(self.X)
        return self.means(x), self.noise_sd(x)

    def of_rows(self, rows: Tensor) -> HeldOut:
        """The same of these held-out rows alone."""
        return replace(self, y=self.y[:, rows], X=self.X[:, rows], certified=None)

    def means(self, x: Tensor) -> Tensor:
        """The networks' outputs in original units, (R, n, T)."""
        return self.model.network.outputs(x, self.X) * self.y_sd + self.y_mean

    def noise_sd(self, x: Tensor) -> Tensor:
        """Noise standard deviations in original units, (R, n)."""
        return self.model.noise_sd(x) * self.noise_unit


@dataclass(frozen=True, kw_only=True)
class RefittedNoise(HeldOut):
    """Predictions whose noise is each network's root mean square error on other rows."""

    X_dev: Tensor  #: (R, V, p+1) features of those rows
    y_dev: Tensor  #: (R, V) responses, original units

    def noise_sd(self, x: Tensor) -> Tensor:
        """(R, n), in original units."""
        found = replace(self, X=self.X_dev).means(x)
        return (self.y_dev.unsqueeze(1) - found).square().mean(-1).sqrt()


def with_ones(X: Tensor) -> Tensor:
    """Inputs with a last column of ones, (..., p) -> (..., p+1)."""
    return torch.cat([X, torch.ones_like(X[..., :1])], dim=-1)


def stacked(arrays: list[np.ndarray], like: Tensor) -> Tensor:
    """One array per replicate as a tensor, (R, ...)."""
    return torch.from_numpy(np.stack(arrays)).to(like)
