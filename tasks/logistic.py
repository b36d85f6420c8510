"""Bayesian logistic regression.

    log p(b) = -(m/2) ||b||^2 + sum_i [ y_i b.x_i - log(1 + exp(b.x_i)) ],  y_i in {0, 1}

with m = 0.01, the model of Cheng et al. (2024), arXiv:2405.18997, Section 6.2; x_i starts with a 1 for the
intercept. Full-batch scores. Start N(0, I), our choice.

- ``blr-waveform``: the paper's data, 400 training rows of UCI "Waveform" with 21 features, taken as they are in
  the file (standardised there over all 5000 rows). The likelihood has no factor: any rows-over-batch factor other
  than 1 would temper it.
- ``blr-breast-cancer``: the breast cancer set that comes with scikit-learn (569 rows, UCI "Breast Cancer Wisconsin
  (Diagnostic)"), its 30 features standardised by mean and population standard deviation over all rows, since the
  posterior itself is the target and nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from parvibench.core.target import Target
from parvibench.core.task import Task
from parvibench.data.loaders import load
from parvibench.data.splits import moments


class LogisticTarget(Target):
    """The unnormalised posterior of the coefficients, intercept first.

    Args:
        signed: (n, D) rows x_i, negated where y_i = 0: the log likelihood is sum_i log sigmoid(b . row_i).
        prior_precision: m.
    """

    def __init__(self, signed: Tensor, prior_precision: float) -> None:
        self.rows, self.dim = signed.shape
        self.prior_precision: float = prior_precision
        self._signed = signed

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        signed, scale = self._data(batch)
        return self._log_density(x, x @ signed.mT, scale)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        signed, scale = self._data(batch)
        return self._score(x, x @ signed.mT, signed, scale)

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one product with the data."""
        signed, scale = self._data(batch)
        logits = x @ signed.mT
        return self._log_density(x, logits, scale), self._score(x, logits, signed, scale)

    def _data(self, batch: Tensor | None) -> tuple[Tensor, float]:
        """Rows (n, D) or (R, B, D), and the factor n/B on their likelihood."""
        if batch is None:
            return self._signed, 1.0
        return self._signed[batch], len(self._signed) / batch.shape[-1]

    def _log_density(self, x: Tensor, logits: Tensor, scale: float) -> Tensor:
        return scale * logsigmoid(logits).sum(-1) - 0.5 * self.prior_precision * (x**2).sum(-1)

    def _score(self, x: Tensor, logits: Tensor, signed: Tensor, scale: float) -> Tensor:
        return scale * (torch.sigmoid(-logits) @ signed) - self.prior_precision * x


@dataclass(frozen=True, kw_only=True)
class LogisticTask(Task):
    """Logistic regression on all rows of a table.

    Attributes:
        table: name of the data set, with 0/1 responses.
        standardise: the features, by their moments over all rows.
        prior_precision: m.
    """

    table: str
    standardise: bool = True
    prior_precision: float = 0.01

    def target(
        self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype
    ) -> LogisticTarget:
        """The posterior given all rows, the same for all replicates."""
        return LogisticTarget(
            _signed_rows(self.table, self.standardise).to(device, dtype), self.prior_precision
        )

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
