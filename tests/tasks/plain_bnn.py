"""Networks of one hidden layer and their model, written with distributions, one state at a time."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Gamma, Normal


def unpack(state: Tensor, p: int, hidden: int = 50) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W1 (p, H), b1, W2 and whatever follows, in the documented order."""
    W1, b1, W2, rest = state.split([p * hidden, hidden, hidden, len(state) - (p + 2) * hidden])
    return W1.view(p, hidden), b1, W2, rest


def network(state: Tensor, X: Tensor, hidden: int = 50, activate: Callable[[Tensor], Tensor] = torch.relu) -> Tensor:
    """Outputs on the rows of X; a state that ends after log gamma has no output bias."""
    W1, b1, W2, rest = unpack(state, X.shape[1], hidden)
    return activate(X @ W1 + b1) @ W2 + (rest[0] if activate is torch.relu else 0.0)


def normal_log_prob(values: Tensor, precision: Tensor | float) -> Tensor:
    """Of independent values around zero, their sum."""
    return Normal(0.0, torch.as_tensor(precision, dtype=torch.float64) ** -0.5).log_prob(values).sum()


def log_gamma_prior(log_value: Tensor) -> Tensor:
    """Log density of log gamma when gamma ~ Gamma(1, rate 0.1)."""
    rate = torch.tensor(0.1, dtype=torch.float64)
    return Gamma(torch.ones_like(rate), rate).log_prob(log_value.exp()) + log_value


def log_joint(state: Tensor, X: Tensor, y: Tensor, hidden: int = 50, scale: float = 1.0) -> Tensor:
    """Of Liu & Wang's model (arXiv:1608.04471, Section 5); the state ends with log gamma and log lambda."""
    log_gamma, log_lambda = state[-2:]
    fit = scale * normal_log_prob(y - network(state, X, hidden), log_gamma.exp())
    prior = normal_log_prob(state[:-2], log_lambda.exp())
    return fit + prior + log_gamma_prior(log_gamma) + log_gamma_prior(log_lambda)
