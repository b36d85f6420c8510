"""Log densities as one writes them from a paper: one replicate, (n, D) -> (n,), broadcasting, no gradient by hand."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

LogDensity = Callable[[Tensor], Tensor]
#: Rows of the next mini-batch.
NextRows = Callable[[], Tensor]


def mixture(means: Tensor, sds: Tensor) -> LogDensity:
    """Isotropic Gaussians of equal weight: centres (K, D), deviations (K,)."""

    def log_density(x: Tensor) -> Tensor:
        z = (x[:, None, :] - means) / sds[:, None]
        per_component = -0.5 * (z**2).sum(-1) - means.shape[1] * torch.log(sds * math.sqrt(2 * math.pi))
        return torch.logsumexp(per_component - math.log(len(means)), dim=1)

    return log_density


def banana(correlation: float = 0.9) -> LogDensity:
    """KSIVI's banana (arXiv:2405.18997, Table 4)."""
    covariance = torch.tensor([[1.0, correlation], [correlation, 1.0]])

    def log_density(x: Tensor) -> Tensor:
        v = torch.stack([x[:, 0], x[:, 1] - x[:, 0] ** 2 - 1], dim=1)
        return -0.5 * (v @ torch.linalg.inv(covariance.to(x)) * v).sum(1)

    return log_density


def diffusion(y: Tensor) -> LogDensity:
    """KSIVI's conditioned diffusion (Section 6.3) observed at every fifth step."""
    dt = 1 / (5 * len(y))

    def log_density(x: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        drift = 10 * before * (1 - before**2)
        prior = -0.5 * ((x - before - drift * dt) ** 2).sum(1) / dt
        return prior - 0.5 * ((x[:, 4::5] - y) ** 2).sum(1) / 0.1**2

    return log_density


def logistic(X: Tensor, y: Tensor, precision: float = 0.01) -> LogDensity:
    """Logistic regression on rows X (n, D), y in {0, 1}, with a prior N(0, I / precision)."""

    def log_density(x: Tensor) -> Tensor:
        logits = x @ X.T
        return (y * logits - softplus(logits)).sum(1) - 0.5 * precision * (x**2).sum(1)

    return log_density


def network_regression(X: Tensor, y: Tensor, next_rows: NextRows, hidden: int = 50) -> LogDensity:
    """A ReLU network of one hidden layer for each particle, Gamma(1, 0.1) priors on both precisions.

    Liu & Wang (2016), arXiv:1608.04471, Section 5; mini-batches scaled to all rows.
    """
    features = X.shape[1]

    def log_density(x: Tensor) -> Tensor:
        rows = next_rows()
        parts = torch.split(x, [features * hidden, hidden, hidden, 1, 1, 1], dim=1)
        W1, b1, W2, b2, log_gamma, log_lambda = parts
        W1 = W1.reshape(-1, features, hidden)
        active = torch.relu(torch.einsum("bp,nph->nbh", X[rows], W1) + b1[:, None])
        f = torch.einsum("nbh,nh->nb", active, W2) + b2
        gamma, lam = log_gamma[:, 0].exp(), log_lambda[:, 0].exp()
        squares = ((y[rows] - f) ** 2).mean(1) * len(X)
        weights = x[:, :-2]
        fit = 0.5 * len(X) * log_gamma[:, 0] - 0.5 * gamma * squares
        prior = 0.5 * weights.shape[1] * log_lambda[:, 0] - 0.5 * lam * (weights**2).sum(1)
        return fit + prior + log_gamma[:, 0] - 0.1 * gamma + log_lambda[:, 0] - 0.1 * lam

    return log_density
