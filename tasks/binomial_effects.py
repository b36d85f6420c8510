"""Counts with random effects: binomial and Poisson regressions of few groups.

- ``seeds`` (posteriordb seeds_data-seeds_model): germination on 21 plates, logit p = alpha.(1, x1, x1 x2, x2) + b_i,
  b ~ N(0, tau^-1/2), alpha ~ N(0, 1000), tau ~ Gamma(0.001, 0.001). The prior of tau is nearly improper: log tau has
  a tail to the right along which all effects vanish, a funnel upside down.
- ``surgical`` (surgical_data-surgical_model): deaths in 12 hospitals, logit p = b_i, b ~ N(mu, sigma),
  mu ~ N(0, 1000), sigma^2 ~ InvGamma(0.001, 0.001).
- ``glmm-poisson`` (GLMM_Poisson_data-GLMM_Poisson_model): counts of 40 years, a cubic in the year and effects
  eps ~ N(0, sigma); uniform priors on alpha in (-20, 20), beta1 and beta3 in (-10, 10), sigma in (0, 5). beta2 is
  declared on (-10, 20) with a prior on (-10, 10), so that its density is cut above 10, far from all mass. The density is
  unbounded as sigma falls to 0: a funnel, as in every centred model here.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ._posterior import Array, Variables, by_formula, by_model, posterior
from ._transforms import POSITIVE, Parameter, between, layout

_VAGUE = 1e-3  # shape and rate of priors on precisions
_FLAT = 1e-6  # precision of priors N(0, 1000)


def _seeds(x: Tensor, design: Tensor, counts: Tensor, trials: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of (alpha, log tau, b), unnormalised, and score."""
    alpha, log_tau, b = x[..., :4], x[..., 4:5], x[..., 5:]
    tau, groups = log_tau.exp(), b.shape[-1]
    logits = alpha @ design.T + b
    misses = counts - trials * logits.sigmoid()
    squares = tau * b.square().sum(-1, keepdim=True)
    prior = (groups / 2 + _VAGUE) * log_tau - _VAGUE * tau - 0.5 * squares
    likelihood = (counts * logits + trials * logsigmoid(-logits)).sum(-1)
    log_p = likelihood + prior.squeeze(-1) - 0.5 * _FLAT * alpha.square().sum(-1)
    by_tau = groups / 2 + _VAGUE - _VAGUE * tau - 0.5 * squares
    return log_p, torch.cat([misses @ design - _FLAT * alpha, by_tau, misses - tau * b], -1)


def _plates(data: Variables) -> tuple[Array, ...]:
    x1, x2 = data["x1"], data["x2"]
    return np.column_stack([np.ones_like(x1), x1, x1 * x2, x2]), data["n"], data["N"]


def _surgical(x: Tensor, counts: Tensor, trials: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of (mu, log sigma^2, b), unnormalised, and score."""
    mu, log_variance, b = x[..., :1], x[..., 1:2], x[..., 2:]
    precision, groups = (-log_variance).exp(), b.shape[-1]
    apart = b - mu
    pull = precision * apart
    squares = (pull * apart).sum(-1, keepdim=True)
    prior = -(groups / 2 + _VAGUE) * log_variance - _VAGUE * precision - 0.5 * (squares + _FLAT * mu**2)
    log_p = (counts * b + trials * logsigmoid(-b)).sum(-1) + prior.squeeze(-1)
    by_variance = 0.5 * squares + _VAGUE * precision - groups / 2 - _VAGUE
    by_b = counts - trials * b.sigmoid() - pull
    return log_p, torch.cat([pull.sum(-1, keepdim=True) - _FLAT * mu, by_variance, by_b], -1)


def _years(data: Variables) -> tuple[object, ...]:
    """Powers of the year, and the counts."""
    return np.stack([data["year"] ** k for k in range(4)]), data["C"]


def _cubic(powers: Tensor, counts: Tensor, eps: Tensor, sigma: Tensor, **of: Tensor) -> Tensor:
    """Log joint density of a cubic in the year with an effect a year; the uniform priors are constants."""
    log_rate = torch.stack([of[name] for name in ("alpha", "beta1", "beta2", "beta3")], -1) @ powers + eps
    prior = -0.5 * (eps / sigma.unsqueeze(-1)).square().sum(-1) - eps.shape[-1] * sigma.log()
    inside = torch.where(of["beta2"] <= 10, prior, -torch.inf)
    return (counts * log_rate - log_rate.exp()).sum(-1) + inside


SEEDS = posterior(
    "seeds",
    "germination on 21 plates with an effect each",
    "hierarchical, funnel",
    "Crowder (1978), Applied Statistics 27; posteriordb seeds_data-seeds_model",
    layout(
        *(Parameter(name) for name in ("alpha0", "alpha1", "alpha12", "alpha2")),
        Parameter("tau", None, POSITIVE),
        Parameter("b", 21),
    ),
    by_formula(_plates, _seeds),
)

SURGICAL = posterior(
    "surgical",
    "deaths after heart surgery in 12 hospitals",
    "hierarchical",
    "Spiegelhalter et al. (1996), BUGS examples I; posteriordb surgical_data-surgical_model",
    layout(Parameter("mu"), Parameter("sigmasq", None, POSITIVE), Parameter("b", 12)),
    by_formula(lambda data: (data["r"], data["n"]), _surgical),
)

GLMM_POISSON = posterior(
    "glmm-poisson",
    "counts of 40 years on a cubic trend with an effect a year",
    "hierarchical, funnel",
    "Kery & Schaub (2012), Bayesian Population Analysis; posteriordb GLMM_Poisson_data-GLMM_Poisson_model",
    layout(
        Parameter("alpha", None, between(-20, 20)),
        Parameter("beta1", None, between(-10, 10)),
        Parameter("beta2", None, between(-10, 20)),
        Parameter("beta3", None, between(-10, 10)),
        Parameter("eps", 40),
        Parameter("sigma", None, between(0, 5)),
    ),
    by_model(_years, _cubic),
)
