"""Hidden Markov models of two states, the states summed out.

- ``hmm-example`` (posteriordb hmm_example-hmm_example): 100 steps of N(mu_k, 1), mu_1 ~ N(3, 1), mu_2 ~ N(10, 1),
  mu positive and increasing, rows of the transition matrix uniform on the simplex. Close to Gaussian.
- ``hmm-drive`` (bball_drive_event_0-hmm_drive_0): whether a basketball player drives, in 416 moments: inverse speed
  ~ Exp(phi_k) and distance ~ Exp(lambda_k), phi_1, lambda_1 ~ N(0, 1), phi_2, lambda_2 ~ N(3, 1), both positive and
  increasing, rows ~ Dirichlet(alpha_k). The two orders need not agree: besides the mode with all of the mass there is
  one 63 nats below, where half of all ascents from the start end and short chains remain.

The likelihood is a product of T matrices, multiplied in pairs: log2(T) rounds instead of T steps. States start with
weights of 1, not with probabilities: a constant.
"""

import torch
from torch import Tensor

from ._posterior import by_model, log_add, posterior
from ._transforms import POSITIVE_ORDERED, SIMPLEX, Parameter, layout

_STATES = 2


def log_product(a: Tensor) -> Tensor:
    """Logarithm of the product of matrices given by logarithms, (2, 2, ..., T) -> (2, 2, ...), T > 0."""
    while (length := a.shape[-1]) > 1:
        even = length - length % 2
        first, second, rest = a[..., 0:even:2], a[..., 1:even:2], a[..., even:]
        a = torch.cat([log_add(first[:, :1] + second[:1], first[:, 1:] + second[1:]), rest], -1)
    return a.squeeze(-1)


def _likelihood(emissions: Tensor, theta1: Tensor, theta2: Tensor) -> Tensor:
    """Log likelihood of log densities of emissions, (2, R, N, T), and rows of transitions, (R, N, 2)."""
    transitions = torch.stack([theta1, theta2]).log().movedim(-1, 1)
    paths = emissions[:, None, ..., 0] + log_product(transitions.unsqueeze(-1) + emissions[..., 1:])
    return log_add(log_add(paths[0, 0], paths[0, 1]), log_add(paths[1, 0], paths[1, 1]))


def _example(y: Tensor, centres: Tensor, theta1: Tensor, theta2: Tensor, mu: Tensor) -> Tensor:
    """Log joint density, of Gaussian emissions of variance 1 and the means of the prior."""
    emissions = -0.5 * (y - _leading(mu)) ** 2
    prior = -0.5 * (mu - centres).square().sum(-1)
    return prior + _likelihood(emissions, theta1, theta2)


def _drive(u: Tensor, v: Tensor, centres: Tensor, weights: Tensor, **of: Tensor) -> Tensor:
    """Log joint density, of exponential emissions, two a step; weights of the Dirichlet priors are less 1."""
    theta1, theta2, rates = of["theta1"], of["theta2"], (of["phi"], of["lambda"])
    constant = _leading(rates[0].log() + rates[1].log())
    emissions = constant - u * _leading(rates[0]) - v * _leading(rates[1])
    prior = sum(-0.5 * (rate - centres).square().sum(-1) for rate in rates)
    rows = (weights[0] * theta1.log() + weights[1] * theta2.log()).sum(-1)
    return prior + rows + _likelihood(emissions, theta1, theta2)


def _leading(x: Tensor) -> Tensor:
    """States first, and room for time: (R, N, 2) -> (2, R, N, 1)."""
    return x.movedim(-1, 0).unsqueeze(-1)


_ROWS = tuple(Parameter(name, _STATES, SIMPLEX) for name in ("theta1", "theta2"))

HMM_EXAMPLE = posterior(
    "hmm-example",
    "a hidden Markov model of two Gaussian states",
    "time series",
    "posteriordb hmm_example-hmm_example",
    layout(*_ROWS, Parameter("mu", _STATES, POSITIVE_ORDERED)),
    by_model(lambda data: (data["y"], (3, 10)), _example),
)

HMM_DRIVE = posterior(
    "hmm-drive",
    "whether a basketball player drives: a hidden Markov model with two modes",
    "time series, multimodal",
    "posteriordb bball_drive_event_0-hmm_drive_0",
    layout(*_ROWS, *(Parameter(name, _STATES, POSITIVE_ORDERED) for name in ("phi", "lambda"))),
    by_model(lambda data: (data["u"], data["v"], (0, 3), data["alpha"] - 1), _drive),
)
