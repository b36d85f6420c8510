"""Posteriors of time series models.

- ``arma11`` (posteriordb arma-arma11): y_t = mu + phi y_{t-1} + theta e_{t-1} + e_t, e ~ N(0, sigma), 200 steps; mu ~
  N(0, 10), phi, theta ~ N(0, 2), sigma ~ half Cauchy(2.5). Errors grow as theta^t where |theta| > 1: density and score
  overflow far from the posterior, and starts are drawn again there. Close to Gaussian, condition number 29.
- ``garch11`` (garch-garch11): y_t ~ N(mu, s_t), s_t^2 = alpha0 + alpha1 (y_{t-1} - mu)^2 + beta1 s_{t-1}^2, flat priors
  on alpha0 > 0, alpha1 in (0, 1), beta1 in (0, 1 - alpha1). Skewed, with mass against the bounds.
- ``uk-drivers`` (uk_drivers-state_space_stochastic_level_stochastic_seasonal): monthly deaths and injuries on roads, a
  level that walks and a seasonal pattern of sum N(0, sigma_1) over 12 months, with regressions on the price of petrol
  and on the seat belt law; sigma ordered, ~ t_4. 389 dimensions, strongly correlated: level and regressions trade, and
  the sum of the level and the twelve seasons is known far better than each. The first 11 seasons have no prior.

Both recursions are linear: 200 steps are eight rounds of doubling, e_t + a e_{t-1} first, then steps of 2, 4, 8, ...
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ._posterior import ModelTarget, Place, Variables, by_model, posterior
from ._transforms import POSITIVE, POSITIVE_ORDERED, Constraint, Layout, Parameter, between, layout

_SEASONS = 12


def recursion(a: Tensor, c: Tensor) -> Tensor:
    """e_t = c_t + a e_{t-1} from e_{-1} = 0: factors (...) and (..., T) -> (..., T)."""
    step, factor = 1, a.unsqueeze(-1)
    while step < c.shape[-1]:
        c = c + factor * pad(c[..., :-step], (step, 0))
        step, factor = 2 * step, factor**2
    return c


def half_cauchy(x: Tensor, scale: float) -> Tensor:
    """Log density up to a constant."""
    return -(x / scale).square().log1p()


def _arma(y: Tensor, mu: Tensor, phi: Tensor, theta: Tensor, sigma: Tensor) -> Tensor:
    """Log joint density; before the first step lie the mean and no error."""
    before = torch.cat([mu.unsqueeze(-1), y[:-1].expand(*mu.shape, -1)], -1)
    errors = recursion(-theta, y - mu.unsqueeze(-1) - phi.unsqueeze(-1) * before)
    prior = half_cauchy(sigma, 2.5) - 0.5 * ((mu / 10) ** 2 + (phi / 2) ** 2 + (theta / 2) ** 2)
    return prior - 0.5 * (errors / sigma.unsqueeze(-1)).square().sum(-1) - errors.shape[-1] * sigma.log()


def _garch(y: Tensor, first: Tensor, mu: Tensor, alpha0: Tensor, alpha1: Tensor, beta1: Tensor) -> Tensor:
    """Log likelihood, given the first variance."""
    square = (y - mu.unsqueeze(-1)) ** 2
    inputs = alpha0.unsqueeze(-1) + alpha1.unsqueeze(-1) * square[..., :-1]
    variance = recursion(beta1, torch.cat([first.expand(*mu.shape, 1), inputs], -1))
    return -0.5 * (square / variance + variance.log()).sum(-1)


def _in_bounds(_: Layout, data: Variables, place: Place) -> ModelTarget:
    """The density with the bounds of the level that the data give."""
    centre, spread = data["y"].mean(), 3 * data["y"].std(ddof=1)
    low, high = place(centre - spread), place(centre + spread)
    series = [place(data[name]) for name in ("y", "x", "w")]
    return ModelTarget(_drivers(between(lambda _: low, lambda _: high)), _log_joint_of_drivers, series)


def _log_joint_of_drivers(
    y: Tensor, x: Tensor, w: Tensor, mu: Tensor, seasonal: Tensor, beta: Tensor, sigma: Tensor, **others: Tensor
) -> Tensor:
    """Log joint density of levels, seasons, two regressions and three scales."""
    lambda_ = others["lambda"]  # a word of Python's
    sums = seasonal.unfold(-1, _SEASONS, 1).sum(-1)
    fitted = mu + beta.unsqueeze(-1) * x + lambda_.unsqueeze(-1) * w + seasonal
    parts = (sums, mu.diff(dim=-1), y - fitted)
    prior = -2.5 * (sigma.square() / 4).log1p().sum(-1)
    return prior + sum(
        (-0.5 * (part / scale).square().sum(-1) - part.shape[-1] * scale.log().squeeze(-1))
        for part, scale in zip(parts, torch.split(sigma, 1, -1), strict=True)
    )


def _drivers(level: Constraint) -> Layout:
    return layout(
        Parameter("mu", 192, level),
        Parameter("seasonal", 192),
        Parameter("beta"),
        Parameter("lambda"),
        Parameter("sigma", 3, POSITIVE_ORDERED),
    )


#: The bounds are the data's.
_DRIVERS = _drivers(between(0, 1))

ARMA11 = posterior(
    "arma11",
    "an autoregressive moving average of orders one",
    "time series",
    "posteriordb arma-arma11",
    layout(Parameter("mu"), Parameter("phi"), Parameter("theta"), Parameter("sigma", None, POSITIVE)),
    by_model(lambda data: (data["y"],), _arma),
)

GARCH11 = posterior(
    "garch11",
    "a series whose variance depends on its past",
    "time series, correlated",
    "Bollerslev (1986), Journal of Econometrics 31; posteriordb garch-garch11",
    layout(
        Parameter("mu"),
        Parameter("alpha0", None, POSITIVE),
        Parameter("alpha1", None, between(0, 1)),
        Parameter("beta1", None, between(0, lambda before: 1 - before["alpha1"])),
    ),
    by_model(lambda data: (data["y"], data["sigma1"] ** 2), _garch),
)

UK_DRIVERS = posterior(
    "uk-drivers",
    "deaths and injuries on roads: a walking level, seasons and a law",
    "time series, correlated, funnel",
    "Harvey & Durbin (1986), JRSS A 149; posteriordb uk_drivers-state_space_stochastic_level_stochastic_seasonal",
    _DRIVERS,
    _in_bounds,
)
