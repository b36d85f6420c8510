"""Eight schools: effects of coaching on a test, and how much they vary between schools.

    y_j ~ N(theta_j, sigma_j),  theta_j ~ N(mu, tau),  mu ~ N(0, 5),  tau ~ half Cauchy(5)

Rubin (1981), Estimation in parallel randomized experiments, Journal of Educational Statistics 6; models and priors of
posteriordb's eight_schools-eight_schools_centered and -eight_schools_noncentered. The data are Rubin's table.

- ``eight-schools-centered``: coordinates theta_j, mu, log tau. A funnel: as tau falls to 0 all theta_j are pinned to
  mu, and half of the posterior's mass has tau below 3. Chains with one step size do not enter its neck.
- ``eight-schools-noncentered``: theta_j = mu + tau z_j, coordinates z_j, mu, log tau. Hardly any curvature is left.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from parvibench.core.target import InJax, JointTarget

from ._posterior import Place, PosteriorTask, Variables, half_student
from ._transforms import POSITIVE, Layout, Parameter, layout

_EFFECTS = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)
_ERRORS = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)
_SCHOOLS = len(_EFFECTS)
_MU_SD, _TAU_SCALE = 5.0, 5.0
_CITATION = "Rubin (1981), Journal of Educational Statistics 6; posteriordb eight_schools"


class SchoolsTarget(JointTarget):
    """The unnormalised posterior of (theta, mu, log tau), or of (z, mu, log tau)."""

    def __init__(self, parameters: Layout, data: Variables, place: Place) -> None:
        self.dim, self.centred = parameters.dim, "theta" in parameters.places
        self._y, self._precision = place(data["y"]), place(data["sigma"] ** -2)

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""
        first, mu, log_tau = x[..., :_SCHOOLS], x[..., -2:-1], x[..., -1:]
        prior, prior_slope = half_student(log_tau, 1, _TAU_SCALE)
        density, by_first, by_mu, by_tau = (self._centred if self.centred else self._noncentred)(first, mu, log_tau)
        log_p = density + (prior + log_tau - 0.5 * (mu / _MU_SD) ** 2).squeeze(-1)
        return log_p, torch.cat([by_first, by_mu - mu / _MU_SD**2, by_tau + prior_slope + 1], -1)

    def _centred(self, theta: Tensor, mu: Tensor, log_tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Likelihood times p(theta | mu, tau), and its derivatives."""
        misfit, apart, shrink = self._y - theta, theta - mu, (-2 * log_tau).exp()
        fit, pull = self._precision * misfit, shrink * apart
        spread = (pull * apart).sum(-1, keepdim=True)
        density = -0.5 * ((fit * misfit).sum(-1) + spread.squeeze(-1)) - _SCHOOLS * log_tau.squeeze(-1)
        return density, fit - pull, pull.sum(-1, keepdim=True), spread - _SCHOOLS

    def _noncentred(self, z: Tensor, mu: Tensor, log_tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Likelihood times p(z), and its derivatives."""
        tau = log_tau.exp()
        misfit = self._y - mu - tau * z
        fit = self._precision * misfit
        density = -0.5 * ((fit * misfit) + z**2).sum(-1)
        along = tau * fit
        return density, along - z, fit.sum(-1, keepdim=True), (along * z).sum(-1, keepdim=True)

    def in_jax(self) -> InJax:
        """The same, up to a constant."""
        return InJax(_centred_in_jax if self.centred else _noncentred_in_jax, (np.array(_EFFECTS), np.array(_ERRORS)))


def _centred_in_jax(data: Any, x: Any) -> Any:
    import jax.numpy as jnp

    tau = jnp.exp(x[-1])
    spread = -0.5 * (((x[:-2] - x[-2]) / tau) ** 2).sum() - _SCHOOLS * x[-1]
    return spread + _rest_in_jax(data, x[:-2], x[-2], tau) + x[-1]


def _noncentred_in_jax(data: Any, x: Any) -> Any:
    import jax.numpy as jnp

    z, mu, tau = x[:-2], x[-2], jnp.exp(x[-1])
    return -0.5 * (z @ z) + _rest_in_jax(data, mu + tau * z, mu, tau) + x[-1]


def _rest_in_jax(data: Any, theta: Any, mu: Any, tau: Any) -> Any:
    """Likelihood, and the priors of mu and tau."""
    import jax.numpy as jnp

    effects, errors = data
    fit = ((effects - theta) / errors) ** 2
    return -0.5 * fit.sum() - 0.5 * (mu / _MU_SD) ** 2 - jnp.log1p((tau / _TAU_SCALE) ** 2)


def _table() -> Variables:
    return {"y": np.array(_EFFECTS), "sigma": np.array(_ERRORS)}


def _layout(effects: str) -> Layout:
    return layout(Parameter(effects, _SCHOOLS), Parameter("mu"), Parameter("tau", None, POSITIVE))


EIGHT_SCHOOLS_CENTERED = PosteriorTask(
    name="eight-schools-centered",
    summary="effects of eight schools and how much they vary: a funnel",
    dim=10,
    tags=frozenset({"posterior", "hierarchical", "funnel"}),
    citation=_CITATION,
    layout=_layout("theta"),
    make=SchoolsTarget,
    table=_table,
)

EIGHT_SCHOOLS_NONCENTERED = PosteriorTask(
    name="eight-schools-noncentered",
    summary="effects of eight schools in standardised coordinates",
    dim=10,
    tags=frozenset({"posterior", "hierarchical"}),
    citation=_CITATION,
    layout=_layout("theta_trans"),
    make=SchoolsTarget,
    table=_table,
)
