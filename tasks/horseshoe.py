"""A logistic regression on genes with a regularised horseshoe prior.

``prostate`` (posteriordb prostate-logistic_regression_rhs): 102 tissues, 5,966 genes, 11,935 dimensions,

    beta_j = z_j tau lambda_j / sqrt(1 + tau^2 lambda_j^2 / c^2),  c^2 = 4 caux,
    z ~ N(0, 1),  lambda ~ half t_1(1),  tau ~ half t_1(2 scale_global),  caux ~ InvGamma(50, 50),  beta0 ~ N(0, 5)

Piironen & Vehtari (2017), Sparsity information and regularization in the horseshoe and other shrinkage priors,
Electronic Journal of Statistics 11. A stress test: tau and each of the lambda_j make a funnel with Cauchy tails, and
many sets of genes explain the data equally well. No method certifies a reference; none is to be expected.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from parvibench.core.target import JointTarget

from ._posterior import Place, Variables, half_student, posterior
from ._transforms import POSITIVE, Layout, Parameter, layout

_GENES = 5966


class HorseshoeTarget(JointTarget):
    """The unnormalised posterior of (beta0, z, log tau, log lambda, log caux)."""

    def __init__(self, parameters: Layout, data: Variables, place: Place) -> None:
        self.dim = parameters.dim
        self._x = place(data["x"])
        self._signs = place(2 * data["y"] - 1)
        self._df = float(data["nu_global"]), float(data["nu_local"])
        self._width, self._slab = 2 * float(data["scale_global"]), float(data["slab_scale"]) ** 2
        self._shape, self._icept_precision = float(data["slab_df"]) / 2, float(data["scale_icept"]) ** -2

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once; d log s / d log tau = 1 / (1 + r) for s = tau lambda / sqrt(1 + r), r = tau^2 lambda^2 / c^2."""
        beta0, z, log_tau, log_lambda, log_caux = torch.split(x, [1, _GENES, 1, _GENES, 1], -1)
        log_scale = log_tau + log_lambda
        ratio = (2 * log_scale - log_caux).exp() / self._slab
        scale = log_scale.exp() / (1 + ratio).sqrt()
        beta = z * scale
        signed = self._signs * (beta0 + beta @ self._x.T)
        miss = self._signs * (-signed).sigmoid()
        pull = miss @ self._x
        prior_tau, slope_tau = half_student(log_tau, self._df[0], self._width)
        prior_lambda, slope_lambda = half_student(log_lambda, self._df[1], 1)
        rate = self._shape * (-log_caux).exp()
        single = prior_tau + log_tau - self._shape * log_caux - rate - 0.5 * self._icept_precision * beta0**2
        each = prior_lambda + log_lambda - 0.5 * z**2
        log_p = logsigmoid(signed).sum(-1) + single.squeeze(-1) + each.sum(-1)
        by_log_scale = pull * beta / (1 + ratio)
        by_tau = by_log_scale.sum(-1, keepdim=True) + slope_tau + 1
        by_caux = 0.5 * (by_log_scale * ratio).sum(-1, keepdim=True) + rate - self._shape
        by_beta0 = miss.sum(-1, keepdim=True) - self._icept_precision * beta0
        by_lambda = by_log_scale + slope_lambda + 1
        return log_p, torch.cat([by_beta0, pull * scale - z, by_tau, by_lambda, by_caux], -1)


PROSTATE = posterior(
    "prostate",
    "102 tissues on 5,966 genes with a horseshoe prior: a stress test",
    "hierarchical, funnel, heavy-tailed, classification, stress",
    "Piironen & Vehtari (2017), Electronic Journal of Statistics 11; posteriordb prostate-logistic_regression_rhs",
    layout(
        Parameter("beta0"),
        Parameter("z", _GENES),
        Parameter("tau", None, POSITIVE),
        Parameter("lambda", _GENES, POSITIVE),
        Parameter("caux", None, POSITIVE),
    ),
    HorseshoeTarget,
)
