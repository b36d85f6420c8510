"""Abilities of persons, and difficulty and discrimination of items, from right and wrong answers.

``irt-2pl`` (posteriordb irt_2pl-irt_2pl): 100 persons and 20 items, logit P(y_ij = 1) = a_i (theta_j - b_i),
theta ~ N(0, sigma_theta), a ~ LogNormal(0, sigma_a), b ~ N(mu_b, sigma_b), mu_b ~ N(0, 5), scales ~ half Cauchy(2).
144 dimensions. Only products are known well: all abilities and difficulties may grow while discriminations shrink.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ._posterior import by_formula, half_student, posterior
from ._transforms import POSITIVE, Parameter, layout

_ITEMS, _PERSONS = 20, 100
_SCALE, _MU_SD = 2.0, 5.0


def _density(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of (log sigma_theta, theta, log sigma_a, log a, mu_b, log sigma_b, b), unnormalised, and score."""
    sizes = [1, _PERSONS, 1, _ITEMS, 1, 1, _ITEMS]
    log_sd_theta, theta, log_sd_a, log_a, mu, log_sd_b, b = torch.split(x, sizes, -1)
    logs = torch.cat([log_sd_theta, log_sd_a, log_sd_b], -1)
    prior, slope = half_student(logs, 1, _SCALE)
    log_p = (prior + logs).sum(-1) - 0.5 * (mu / _MU_SD).square().squeeze(-1)
    effects = [_gaussian(theta, log_sd_theta), _gaussian(log_a, log_sd_a), _gaussian(b - mu, log_sd_b)]
    a = log_a.exp()
    apart = theta.unsqueeze(-2) - b.unsqueeze(-1)  # (R, N, items, persons)
    logits = a.unsqueeze(-1) * apart
    miss = y - logits.sigmoid()
    log_p = log_p + sum(e[0] for e in effects) + (y * logits + logsigmoid(-logits)).sum((-2, -1))
    by_theta = (a.unsqueeze(-2) @ miss).squeeze(-2) + effects[0][1]
    by_log_a = (miss * logits).sum(-1) + effects[1][1]
    by_b = -a * miss.sum(-1) + effects[2][1]
    by_mu = -effects[2][1].sum(-1, keepdim=True) - mu / _MU_SD**2
    by_logs = torch.cat([e[2] for e in effects], -1) + slope + 1
    t, d, s = torch.split(by_logs, 1, -1)
    return log_p, torch.cat([t, by_theta, d, by_log_a, by_mu, s, by_b], -1)


def _gaussian(z: Tensor, log_sd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log density of N(0, sd) up to a constant, (R, N), and its derivatives by z and log sd."""
    pull = -(-2 * log_sd).exp() * z
    squares, n = -(pull * z).sum(-1, keepdim=True), z.shape[-1]
    return (-0.5 * squares - n * log_sd).squeeze(-1), pull, squares - n


IRT_2PL = posterior(
    "irt-2pl",
    "abilities of 100 persons and properties of 20 items",
    "hierarchical, classification",
    "posteriordb irt_2pl-irt_2pl",
    layout(
        Parameter("sigma_theta", None, POSITIVE),
        Parameter("theta", _PERSONS),
        Parameter("sigma_a", None, POSITIVE),
        Parameter("a", _ITEMS, POSITIVE),
        Parameter("mu_b"),
        Parameter("sigma_b", None, POSITIVE),
        Parameter("b", _ITEMS),
    ),
    by_formula(lambda data: [data["y"]], _density),
)
