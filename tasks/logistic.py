"""Bayesian logistic regression.

    log p(b) = -(m/2) ||b||^2 + sum_i [ y_i b.x_i - log(1 + exp(b.x_i)) ],  y_i in {0, 1}

with m = 0.01, the model of Cheng et al. (2024), arXiv:2405.18997, Section 6.2; x_i starts with a 1 for the intercept.
Full-batch scores. Start N(0, I), our choice.

- ``blr-waveform``: the paper's data, 400 training rows of UCI "Waveform" with 21 features, taken as they are in the
  file (standardised there over all 5000 rows).
- ``blr-breast-cancer``: the breast cancer set that comes with scikit-learn (569 rows, UCI "Breast Cancer Wisconsin
  (Diagnostic)"), its 30 features standardised by mean and population standard deviation over all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from parvibench.core.target import Linearised, Target, score_with_product
from parvibench.core.task import Task
from parvibench.data.loaders import load
from parvibench.data.splits import moments


class LogisticTarget(Target):
    """The unnormalised posterior of the coefficients, intercept first; a ``prior_precision`` m of None is a flat prior.

    ``signed`` are the rows x_i, (n, D), negated where y_i = 0: the log likelihood is sum_i log sigmoid(b . row_i).
    Arrays end in the points, since products with few columns are slow.
    """

    def __init__(self, signed: Tensor, prior_precision: float | None = None) -> None:
        self.rows, self.dim = signed.shape
        self.prior_precision = prior_precision
        self._signed = signed

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        signed, scale = self._data(batch)
        logits = signed @ x.mT
        if x.requires_grad and torch.is_grad_enabled():
            return self._log_density(x, logsigmoid(logits).sum(-2), scale)
        return self._log_density(x, sum_of_logsigmoids(logits, logits.sigmoid()), scale)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        signed, scale = self._data(batch)
        if x.requires_grad and torch.is_grad_enabled():
            return score_with_product(x, lambda at: self._linearise(at, signed, scale))
        return self._score(x, (-signed @ x.mT).sigmoid_(), signed, scale)

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one product with the data and one sigmoid."""
        signed, scale = self._data(batch)
        logits = signed @ x.mT
        p = logits.sigmoid()
        log_density = self._log_density(x, sum_of_logsigmoids(logits, p), scale)
        return log_density, self._score(x, 1 - p, signed, scale)

    def _linearise(self, x: Tensor, signed: Tensor, scale: float) -> Linearised:
        """The score and the product with its Hessian, -scale A' diag(p (1 - p)) A - m I."""
        misses = (-signed @ x.mT).sigmoid_()

        def product(v: Tensor) -> Tensor:
            weights = torch.addcmul(misses, misses, misses, value=-1)
            return self._score(v, weights.mul_(signed @ v.mT), signed, -scale)

        return self._score(x, misses, signed, scale), product

    def _data(self, batch: Tensor | None) -> tuple[Tensor, float]:
        """Rows (n, D) or (R, B, D), and the factor n/B on their likelihood."""
        if batch is None:
            return self._signed, 1.0
        return self._signed[batch], len(self._signed) / batch.shape[-1]

    def _log_density(self, x: Tensor, likelihood: Tensor, scale: float) -> Tensor:
        fit = scale * likelihood
        return fit if self.prior_precision is None else fit - 0.5 * self.prior_precision * x.square().sum(-1)

    def _score(self, x: Tensor, misses: Tensor, signed: Tensor, scale: float) -> Tensor:
        """Scale A' u - m x, for u the probabilities (R, n, N) of the other response."""
        pull = (signed.mT @ misses).mT
        pull = pull if scale == 1 else scale * pull
        return pull if self.prior_precision is None else torch.add(pull, x, alpha=-self.prior_precision)


def sum_of_logsigmoids(logits: Tensor, p: Tensor) -> Tensor:
    """Sum of log sigmoid over the rows, (R, n, N) -> (R, N), given p = sigmoid(logits) and without a logarithm each.

    log sigmoid(l) = min(l, 0) + log sigmoid(|l|), and sigmoid(|l|) = 1/2 + |p - 1/2| is at least 1/2: the product of
    a hundred of them is far from underflow, and its logarithm is their sum. Exact to rounding; the derivatives
    at l = 0 are not. (On a GPU logarithms cost nothing, and each operation some microseconds.)
    """
    if logits.device.type != "cpu":
        return logsigmoid(logits).sum(-2)
    total = logits.clamp(max=0).sum(-2)
    for factors in torch.split((p - 0.5).abs_().add_(0.5), 100, -2):
        total += factors.prod(-2).log_()
    return total


@dataclass(frozen=True, kw_only=True)
class LogisticTask(Task):
    """Logistic regression on all rows of a table."""

    table: str  #: name of the data set, with 0/1 responses
    standardise: bool = True  #: the features, by their moments over all rows
    prior_precision: float = 0.01  #: m

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> LogisticTarget:
        """The posterior given all rows, the same for all replicates."""
        return LogisticTarget(_signed_rows(self.table, self.standardise).to(device, dtype), self.prior_precision)

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from N(0, I), (R, n, D) float64."""
        return torch.stack([torch.randn(n, self.dim, generator=g, dtype=torch.float64) for g in generators])


@cache
def _signed_rows(table: str, standardise: bool) -> Tensor:
    """Rows with an intercept first, negated where y = 0: (n, D) float64."""
    X, y = load(table)
    mean, sd = moments(X) if standardise else (0.0, 1.0)
    design = np.column_stack([np.ones(len(y)), (X - mean) / sd])
    return torch.from_numpy((2 * y - 1)[:, None] * design)


BREAST_CANCER = LogisticTask(
    name="blr-breast-cancer",
    summary="Bayesian logistic regression, 569 rows",
    dim=31,
    tags=frozenset({"classification", "log-concave", "bundled"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Section 6.2 (model); scikit-learn (data)",
    rows=569,
    table="sklearn-breast-cancer",
)

WAVEFORM = LogisticTask(
    name="blr-waveform",
    summary="Bayesian logistic regression, 400 rows",
    dim=22,
    tags=frozenset({"classification", "log-concave", "ksivi"}),
    citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Section 6.2",
    rows=400,
    data=("waveform",),
    table="waveform",
    standardise=False,
)
