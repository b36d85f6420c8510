"""A small posterior on which every option of every algorithm acts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from parvibench.core.target import Target

from .noise import normal_numbers


class Response(Target):
    """A posterior of a curved regression on ten rows with a Gaussian prior; four more rows for development."""

    dim, rows, development_rows, prior_precision = 3, 10, 4, 0.8

    def __init__(self) -> None:
        table = torch.from_numpy(normal_numbers(11, 14, 4))
        self._rows, self._development = table[:10], table[10:]

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        rows = self._taken(x, batch)
        residual = rows[..., -1].unsqueeze(1) - self._mean(x, rows)
        fit = (len(self._rows) / rows.shape[1]) * residual.square().sum(-1)
        return -0.5 * (fit + self.prior_precision * x.square().sum(-1))

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient, by hand where nothing differentiates it further: (R, N, D) -> (R, N, D)."""
        if x.requires_grad and torch.is_grad_enabled():
            return super().score(x, batch)
        rows = self._taken(x, batch)
        pull = (len(self._rows) / rows.shape[1]) * (rows[..., -1].unsqueeze(1) - self._mean(x, rows))
        slope = 1 + 0.6 * (2 * (x @ rows[..., :3].mT)).cos()
        by_x = (pull * slope) @ rows[..., :3] - self.prior_precision * x
        return torch.cat((by_x[..., :1] + 0.4 * x[..., :1] * pull.sum(-1, keepdim=True), by_x[..., 1:]), -1)

    def fit_gradient(self, x: Tensor, batch: Tensor | None = None, development: bool = False) -> Tensor:
        """Gradient of the mean squared error of the mean prediction: (R, N, D) -> (R, N, D)."""
        rows = self._development.expand(len(x), -1, -1) if development else self._taken(x, batch)
        with torch.inference_mode(False), torch.enable_grad():
            leaf, rows = x.detach().clone().requires_grad_(), rows.clone()
            error = (rows[..., -1] - self._mean(leaf, rows).mean(1)).square().mean(1)
            return torch.autograd.grad(error.sum(), leaf)[0]

    def _taken(self, x: Tensor, batch: Tensor | None) -> Tensor:
        """Rows (R, B, 4): features and response."""
        return self._rows.expand(len(x), -1, -1) if batch is None else self._rows[batch]

    def _mean(self, x: Tensor, rows: Tensor) -> Tensor:
        """Predictions (R, N, B)."""
        linear = x @ rows[..., :3].mT
        return linear + 0.3 * (2 * linear).sin() + 0.2 * x[..., :1].square()


def start(target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
    """Standard normal points, (R, n, D)."""
    return torch.stack([torch.randn(n, target.dim, generator=g, dtype=torch.float64) for g in generators])
