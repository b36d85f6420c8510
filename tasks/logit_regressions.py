"""Logistic regressions that users of probabilistic programs know.

- ``wells`` (posteriordb wells_data-wells_dist): whether a household changes its well, on the distance in metres, flat
  prior. Two coefficients whose scales differ by 60, correlated at -0.79; condition number 10,000, 8.5 once scaled.
- ``wells-dae`` (wells_data-wells_dae_model): on distance in 100 m, arsenic and education / 4, flat priors.
- ``dogs`` (dogs-dogs): whether a dog is shocked, on its avoidances and shocks so far, beta ~ N(0, 100).
- ``german-credit``: UCI's German credit data in numeric form, 24 features standardised by mean and population standard
  deviation and a column of ones, last; beta ~ N(0, 1). As in Hoffman et al. (2019), arXiv:1903.03704, and TensorFlow
  Probability's Inference Gym. Condition number 15.
- ``german-credit-sparse``: coefficients tau lambda_j beta_j with beta_j ~ N(0, 1), lambda_j, tau ~ Gamma(1/2, 1/2),
  ibid. Coordinates log tau, log lambda_j, beta_j. The signs of beta_j with small coefficients are not known, and
  tau trades against all lambda_j: funnels, heavy left tails of the logarithms, two modes in some marginals.
"""

import numpy as np
import torch
from torch import Tensor

from parvibench.data.loaders import load
from parvibench.data.splits import moments

from ._posterior import Array, Place, Variables, by_formula, posterior
from ._transforms import POSITIVE, Layout, Parameter, layout
from .logistic import LogisticTarget, sum_of_logsigmoids

_SHAPE = _RATE = 0.5  # of the sparse model's Gamma priors
_FEATURES = 25


def _signed(X: Array, y: Array) -> Array:
    """Rows, negated where y = 0."""
    return (2 * y - 1)[:, None] * X


def _wells(parameters: Layout, data: Variables, place: Place) -> LogisticTarget:
    design = np.column_stack([np.ones_like(data["dist"]), data["dist"]])
    return LogisticTarget(place(_signed(design, data["switched"])))


def _wells_dae(parameters: Layout, data: Variables, place: Place) -> LogisticTarget:
    columns = (np.ones_like(data["dist"]), data["dist"] / 100, data["arsenic"], data["educ"] / 4)
    return LogisticTarget(place(_signed(np.column_stack(columns), data["switched"])))


def _dogs(parameters: Layout, data: Variables, place: Place) -> LogisticTarget:
    y = data["y"]
    shocks = y.cumsum(1) - y
    avoidances = np.arange(y.shape[1]) - shocks
    design = np.stack([np.ones_like(y), avoidances, shocks], -1).reshape(-1, 3)
    return LogisticTarget(place(_signed(design, y.ravel())), 1e-4)


def _german(parameters: Layout, data: Variables, place: Place) -> LogisticTarget:
    return LogisticTarget(place(_signed(data["X"], data["y"])), 1.0)


def _sparse(x: Tensor, signed: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of (log tau, log lambda, beta), unnormalised, and score, by coefficients w = tau lambda beta."""
    logs, beta = x[..., : _FEATURES + 1], x[..., _FEATURES + 1 :]
    scales = logs.exp()
    factor = scales[..., :1] * scales[..., 1:]
    w = factor * beta
    logits = signed @ w.mT
    if x.requires_grad and torch.is_grad_enabled():
        likelihood = torch.nn.functional.logsigmoid(logits).sum(-2)
    else:
        likelihood = sum_of_logsigmoids(logits, logits.sigmoid())
    pull = (signed.mT @ (-logits).sigmoid()).mT  # of w
    log_p = likelihood + (_SHAPE * logs - _RATE * scales).sum(-1) - 0.5 * beta.square().sum(-1)
    by_log = pull * w
    total = torch.cat([by_log.sum(-1, keepdim=True), by_log], -1)
    return log_p, torch.cat([total + _SHAPE - _RATE * scales, pull * factor - beta], -1)


def _customers() -> Variables:
    """Standardised features and a column of ones, X, and y = 1 for good customers."""
    X, y = load("german-credit")
    mean, sd = moments(X)
    return {"X": np.column_stack([(X - mean) / sd, np.ones(len(X))]), "y": 2.0 - y}


# fmt: off
WELLS = posterior(
    "wells", "whether households change wells, on the distance in metres", "classification, log-concave",
    "posteriordb wells_data-wells_dist; Gelman & Hill (2006)", layout(Parameter("beta", 2)), _wells, rows=3020,
)
WELLS_DAE = posterior(
    "wells-dae", "whether households change wells, on three features", "classification, log-concave",
    "posteriordb wells_data-wells_dae_model; Gelman & Hill (2006)",
    layout(Parameter("alpha"), Parameter("beta", 3)), _wells_dae, rows=3020,
)
DOGS = posterior(
    "dogs", "whether dogs learn from shocks and avoidances", "classification, log-concave",
    "posteriordb dogs-dogs; Gelman & Hill (2006)", layout(Parameter("beta", 3)), _dogs, rows=750,
)
_HOFFMAN = "Hoffman et al. (2019), arXiv:1903.03704; UCI Statlog (German Credit Data)"
_BETA = Parameter("beta", _FEATURES)
GERMAN_CREDIT = posterior(
    "german-credit", "logistic regression on the German credit data", "classification, log-concave", _HOFFMAN,
    layout(_BETA), _german, rows=1000, data=("german-credit",), table=_customers,
)
GERMAN_CREDIT_SPARSE = posterior(
    "german-credit-sparse", "logistic regression on the German credit data with shrinking scales",
    "classification, hierarchical, funnel, multimodal", _HOFFMAN,
    layout(Parameter("tau", None, POSITIVE), Parameter("lambda", _FEATURES, POSITIVE), _BETA),
    by_formula(lambda data: [_signed(data["X"], data["y"])], _sparse), data=("german-credit",), table=_customers,
)
# fmt: on
