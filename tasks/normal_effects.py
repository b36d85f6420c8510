"""Gaussian responses of groups whose intercepts and slopes vary.

- ``rats`` (posteriordb rats_data-rats_model): weights of 30 rats in five weeks,
  y ~ N(alpha_r + beta_r (x - 22), sigma_y), alpha ~ N(mu_alpha, sigma_alpha), beta ~ N(mu_beta, sigma_beta),
  mu ~ N(0, 100), scales flat. 65 dimensions. Intercepts of 240 and slopes of 6: the start is far off.
- ``radon-centered``, ``radon-noncentered`` (radon_mn-radon_variable_intercept_slope_centered, -noncentered): log radon
  in 919 houses on the floor, varying by 85 counties, scales ~ half N(1), mu ~ N(0, 10). 175 dimensions. Many counties
  have few houses, so that the centred form is a funnel in sigma_beta; the other one, alpha = mu + sigma raw, pays
  where counties have many.
- ``pilots`` (pilots-pilots): recoveries of pilots, y ~ N(a_group + b_scenario, sigma_y), a ~ N(10 mu_a, sigma_a),
  b ~ N(10 mu_b, sigma_b), mu ~ N(0, 1), scales uniform on (0, 100). Only the sum of the two means is known: a ridge,
  and funnels where a scale is small.

Rows of one group with the same x are one cell of the likelihood: their number, mean and sum of squares say all.
"""

import math

import numpy as np
import torch
from torch import Tensor

from parvibench.core.target import JointTarget

from ._posterior import Array, Place, Variables, by_model, half_student, posterior
from ._transforms import POSITIVE, Layout, Parameter, between, layout


class VaryingTarget(JointTarget):
    """The unnormalised posterior of intercepts and slopes by group, their means and scales.

    ``parameters`` are alpha, beta (or alpha_raw, beta_raw), mu_* and sigma_* in any order; ``rows`` group (n,), counted
    from 0, feature and response of every row; ``scale_sd`` is of the half Gaussian priors of the three scales, or inf
    for flat ones, ``mean_sd`` of the Gaussian priors of the two means.
    """

    def __init__(
        self, parameters: Layout, rows: tuple[Array, Array, Array], place: Place, scale_sd: float, mean_sd: float
    ) -> None:
        self.dim = parameters.dim
        self._centred = "alpha" in parameters.places
        suffix = "" if self._centred else "_raw"
        order = (f"alpha{suffix}", f"beta{suffix}", "mu_alpha", "mu_beta", "sigma_y", "sigma_alpha", "sigma_beta")
        self._places = [parameters.places[name] for name in order]
        self._scale_sd, self._mean_precision = scale_sd, mean_sd**-2
        # A tensor of the device: a list would be copied to it at every call.
        self._order = place(np.argsort(np.concatenate([np.arange(self.dim)[p] for p in self._places]))).long()
        group, feature, y = rows
        cells, cell = np.unique(np.stack([group, feature]), axis=1, return_inverse=True)
        count = np.bincount(cell.ravel()).astype(float)
        mean = np.bincount(cell.ravel(), y) / count
        groups = self._places[0].stop - self._places[0].start
        belongs = cells[0][:, None] == np.arange(groups)
        self._within = float(np.sum((y - mean[cell.ravel()]) ** 2))
        self._rows, self._groups = len(y), groups
        self._count, self._mean = place(count), place(mean)
        self._belongs, self._slopes = place(belongs), place(belongs * cells[1][:, None])

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""
        alpha, beta, mu_a, mu_b, log_y, log_a, log_b = (x[..., p] for p in self._places)
        logs = torch.cat([log_y, log_a, log_b], -1)
        flat = self._scale_sd == math.inf
        prior, slope = (0 * logs, 0 * logs) if flat else half_student(logs, math.inf, self._scale_sd)
        means = torch.cat([mu_a, mu_b], -1)
        log_p = (prior + logs).sum(-1) - 0.5 * self._mean_precision * means.square().sum(-1)
        first, second = _Effects(alpha, mu_a, log_a, self._centred), _Effects(beta, mu_b, log_b, self._centred)
        apart = self._mean - first.values @ self._belongs.T - second.values @ self._slopes.T
        precision = (-2 * log_y).exp()
        fit = precision * self._count * apart
        squares = precision * self._within + (fit * apart).sum(-1, keepdim=True)
        log_p = log_p + first.prior + second.prior - (0.5 * squares + self._rows * log_y).squeeze(-1)
        by_alpha, by_mu_a, by_log_a = first.pull_back(fit @ self._belongs)
        by_beta, by_mu_b, by_log_b = second.pull_back(fit @ self._slopes)
        by_means = torch.cat([by_mu_a, by_mu_b], -1) - self._mean_precision * means
        by_logs = torch.cat([squares - self._rows, by_log_a, by_log_b], -1) + slope + 1
        return log_p, torch.cat([by_alpha, by_beta, by_means, by_logs], -1)[..., self._order]


class _Effects:
    """Effects of groups, (R, N, J), given as they are or in units of their scale from their mean."""

    def __init__(self, x: Tensor, mean: Tensor, log_scale: Tensor, centred: bool) -> None:
        self._x, self._centred, self._log_scale = x, centred, log_scale
        scale = log_scale.exp()
        self._scale = scale
        self._z = (x - mean) / scale if centred else x
        self.values = x if centred else mean + scale * x
        self._squares = self._z.square().sum(-1, keepdim=True)
        spread = x.shape[-1] * log_scale if centred else 0.0
        self.prior = (-0.5 * self._squares - spread).squeeze(-1)

    def pull_back(self, by_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Derivatives by the coordinates, the mean and log scale, prior included, from those by the values."""
        if not self._centred:
            along = self._scale * by_values
            return along - self._z, by_values.sum(-1, keepdim=True), (along * self._z).sum(-1, keepdim=True)
        pull = self._z / self._scale
        return by_values - pull, pull.sum(-1, keepdim=True), self._squares - self._x.shape[-1]


def _flights(data: Variables) -> tuple[object, ...]:
    """Responses, and which group and scenario a row belongs to."""
    pairs = (("group_id", "n_groups"), ("scenario_id", "n_scenarios"))
    return data["y"], *(data[i][:, None] == np.arange(1, int(data[n]) + 1) for i, n in pairs)


def _pilots(y: Tensor, group: Tensor, scenario: Tensor, **of: Tensor) -> Tensor:
    """Log joint density of effects of groups and scenarios; the uniform priors are constants."""
    groups = _normal(of["a"], 10 * of["mu_a"], of["sigma_a"]) + _normal(of["b"], 10 * of["mu_b"], of["sigma_b"])
    fitted = of["a"] @ group.T + of["b"] @ scenario.T
    return groups + _normal(y - fitted, 0 * of["mu_a"], of["sigma_y"]) - 0.5 * (of["mu_a"] ** 2 + of["mu_b"] ** 2)


def _normal(x: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    """Log density of independent N(mean, sd), up to a constant: (R, N, k) -> (R, N)."""
    return -0.5 * ((x - mean[..., None]) / sd[..., None]).square().sum(-1) - x.shape[-1] * sd.log()


def _rats(parameters: Layout, data: Variables, place: Place) -> VaryingTarget:
    rows = (data["rat"] - 1, data["x"] - data["xbar"], data["y"])
    return VaryingTarget(parameters, rows, place, math.inf, 100)


def _radon(parameters: Layout, data: Variables, place: Place) -> VaryingTarget:
    rows = (data["county_idx"] - 1, data["floor_measure"], data["log_radon"])
    return VaryingTarget(parameters, rows, place, 1, 10)


_MEANS = (Parameter("mu_alpha"), Parameter("mu_beta"))
_SCALES = tuple(Parameter(f"sigma_{name}", None, POSITIVE) for name in ("y", "alpha", "beta"))


_PRICE = "Price, Nero & Gelman (1996), Health Physics 71; posteriordb radon_mn-radon_variable_intercept_slope_"
# fmt: off
RATS = posterior(
    "rats", "growth of 30 rats, a line each", "hierarchical, badly scaled",
    "Gelfand et al. (1990), JASA 85; posteriordb rats_data-rats_model",
    layout(Parameter("alpha", 30), Parameter("beta", 30), *_MEANS, *_SCALES), _rats,
)
RADON_CENTERED = posterior(
    "radon-centered", "radon in 85 counties, a line each: centred", "hierarchical, funnel", _PRICE + "centered",
    layout(*_SCALES, Parameter("alpha", 85), Parameter("beta", 85), *_MEANS), _radon,
)
RADON_NONCENTERED = posterior(
    "radon-noncentered", "radon in 85 counties, a line each: in standardised coordinates", "hierarchical",
    _PRICE + "noncentered", layout(*_SCALES, Parameter("alpha_raw", 85), Parameter("beta_raw", 85), *_MEANS), _radon,
)
PILOTS = posterior(
    "pilots", "recoveries of pilots by group and scenario", "hierarchical, funnel, correlated",
    "Gelman & Hill (2006), Section 13.5; posteriordb pilots-pilots",
    layout(
        Parameter("a", 5), Parameter("b", 8), Parameter("mu_a"), Parameter("mu_b"),
        *(Parameter(f"sigma_{name}", None, between(0, 100)) for name in ("a", "b", "y")),
    ),
    by_model(_flights, _pilots),
)
# fmt: on
