"""How well the posterior predictive distribution fits held-out data, in original units."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable
from parvibench.core.task import PredictiveData

from .pairwise import row_blocks


def rmse(samples: Tensor, context: Context) -> Tensor:
    """Root mean square error of the predictive mean, ``sqrt mean_t (y_t - mean_m f_m(x_t))^2``.

    Args:
        samples: (R, n, D) parameters.
        context: needs predictive data.

    Returns:
        (R,) in units of y; lower is better. One prediction per sample, in blocks.
    """
    data, y = _data(samples, context)
    total = sum(means.sum(1) for means, _ in _predictions(samples, data, y))
    return (y - total / samples.shape[1]).square().mean(1).sqrt()


def nll(samples: Tensor, context: Context) -> Tensor:
    """Negative log likelihood of the predictive mixture per test row.

    ``-mean_t log (1/n) sum_m N(y_t; f_m(x_t), sigma_m^2)``.

    Args:
        samples: (R, n, D) parameters.
        context: needs predictive data.

    Returns:
        (R,) in nats per row for y in its original units; lower is better. One prediction per sample.
    """
    data, y = _data(samples, context)
    log_sum = torch.full_like(y, -math.inf)
    for means, sds in _predictions(samples, data, y):
        z = (y[:, None, :] - means) / sds[..., None]
        log_components = -0.5 * z.square() - sds.log()[..., None] - 0.5 * math.log(2 * math.pi)
        log_sum = torch.logaddexp(log_sum, log_components.logsumexp(1))
    return math.log(samples.shape[1]) - log_sum.mean(1)


def _data(samples: Tensor, context: Context) -> tuple[PredictiveData, Tensor]:
    if context.predictive is None:
        raise NotApplicable("the task has no held-out data")
    y = context.predictive.y.to(samples)
    if y.shape[1] == 0:
        raise NotApplicable("the test set is empty")
    return context.predictive, y


def _predictions(samples: Tensor, data: PredictiveData, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Means (R, b, T) and noise sds (R, b) of consecutive samples, few enough at a time."""
    for block in row_blocks(samples.shape[1], y.numel()):
        means, sds = data.predict(samples[:, block])
        yield means.to(samples), sds.to(samples)
