"""Eight schools: effects of coaching on a test, and how much they vary between schools.

    y_j ~ N(theta_j, sigma_j),  theta_j ~ N(mu, tau),  mu ~ N(0, 5),  tau ~ half Cauchy(5)

Rubin (1981), Estimation in parallel randomized experiments, Journal of Educational Statistics 6; models and priors of
posteriordb's eight_schools-eight_schools_centered and -eight_schools_noncentered. The data are Rubin's table.

- ``eight-schools-centered``: coordinates theta_j, mu, log tau. A funnel: as tau falls to 0 all theta_j are pinned to
  mu, and half of the posterior's mass has tau below 3. Chains with one step size do not enter its neck.
- ``eight-schools-noncentered``: theta_j = mu + tau z_j, coordinates z_j, mu, log tau. Hardly any curvature is left.
"""

import numpy as np
import torch
from torch import Tensor

from parvibench.core.target import Formula

from ._posterior import PosteriorTask, by_formula, half_student, posterior
from ._transforms import POSITIVE, Parameter, layout

_EFFECTS = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)
_ERRORS = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)
_SCHOOLS = len(_EFFECTS)
_MU_SD, _TAU_SCALE = 5.0, 5.0


def _centred(x: Tensor, y: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of (theta, mu, log tau), unnormalised, and score."""
    theta, mu, log_tau = x[..., :_SCHOOLS], x[..., -2:-1], x[..., -1:]
    misfit, apart, shrink = y - theta, theta - mu, (-2 * log_tau).exp()
    fit, pull = precision * misfit, shrink * apart
    spread = (pull * apart).sum(-1, keepdim=True)
    density = -0.5 * ((fit * misfit).sum(-1) + spread.squeeze(-1)) - _SCHOOLS * log_tau.squeeze(-1)
    return _with_prior(density, fit - pull, pull.sum(-1, keepdim=True), spread - _SCHOOLS, mu, log_tau)


def _noncentred(x: Tensor, y: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of (z, mu, log tau), unnormalised, and score."""
    z, mu, log_tau = x[..., :_SCHOOLS], x[..., -2:-1], x[..., -1:]
    tau = log_tau.exp()
    misfit = y - mu - tau * z
    fit = precision * misfit
    density = -0.5 * ((fit * misfit) + z**2).sum(-1)
    along = tau * fit
    return _with_prior(density, along - z, fit.sum(-1, keepdim=True), (along * z).sum(-1, keepdim=True), mu, log_tau)


def _with_prior(
    density: Tensor, by_first: Tensor, by_mu: Tensor, by_tau: Tensor, mu: Tensor, log_tau: Tensor
) -> tuple[Tensor, Tensor]:
    """Log density and score with those of the prior of mu and log tau."""
    prior, slope = half_student(log_tau, 1, _TAU_SCALE)
    log_p = density + (prior + log_tau - 0.5 * (mu / _MU_SD) ** 2).squeeze(-1)
    return log_p, torch.cat([by_first, by_mu - mu / _MU_SD**2, by_tau + slope + 1], -1)


def _task(name: str, summary: str, tags: str, effects: str, formula: Formula) -> PosteriorTask:
    data = np.array(_EFFECTS), np.array(_ERRORS)
    return posterior(
        f"eight-schools-{name}",
        summary,
        tags,
        "Rubin (1981), Journal of Educational Statistics 6; posteriordb eight_schools",
        layout(Parameter(effects, _SCHOOLS), Parameter("mu"), Parameter("tau", None, POSITIVE)),
        by_formula(lambda table: (table["y"], table["sigma"] ** -2), formula),
        data=(),
        table=lambda: dict(zip(("y", "sigma"), data, strict=True)),
    )


EIGHT_SCHOOLS_CENTERED = _task(
    "centered", "effects of eight schools and how much they vary: a funnel", "hierarchical, funnel", "theta", _centred
)
EIGHT_SCHOOLS_NONCENTERED = _task(
    "noncentered", "effects of eight schools in standardised coordinates", "hierarchical", "theta_trans", _noncentred
)
