"""Fit of the posterior predictive distribution to held-out data, in original units; samples are parameters."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.core.task import PredictiveData

from .needs import given
from .pairwise import row_blocks


@metric("lower", "y", "predictive", "root mean square error of the predictive mean")
def rmse(samples: Tensor, context: Context) -> Tensor:
    """Root mean square error of the predictive mean, ``sqrt mean_t (y_t - mean_m f_m(x_t))^2``.

    (R,) in units of y; lower is better. One prediction per sample, in blocks.

    >>> rmse(weights, held_out)
    tensor([84.3701], dtype=torch.float64)
    """
    data, y = held_rows(samples, context)
    total = sum(means.sum(1) for means, _ in predictions(samples, data, y))
    return (y - total / samples.shape[1]).square().mean(1).sqrt()


@metric("lower", "nats", "predictive", "negative log likelihood of the predictive mixture per test row")
def nll(samples: Tensor, context: Context) -> Tensor:
    """Negative log likelihood of the predictive mixture per test row.

    ``-mean_t log (1/n) sum_m N(y_t; f_m(x_t), sigma_m^2)``.

    (R,) in nats per row for y in its original units; lower is better. One prediction per sample.

    >>> nll(weights, held_out)
    tensor([5.8654], dtype=torch.float64)
    """
    data, y = held_rows(samples, context)
    return math.log(samples.shape[1]) - log_sums(samples, data, y).mean(1)


def log_sums(samples: Tensor, data: PredictiveData, y: Tensor) -> Tensor:
    """Logarithms of the sums of the n samples' densities at the responses y (R, T), (R, T)."""
    log_sum = torch.full_like(y, -math.inf)
    for means, sds in predictions(samples, data, y):
        z = (y[:, None, :] - means) / sds[..., None]
        log_components = -0.5 * z.square() - sds.log()[..., None] - 0.5 * math.log(2 * math.pi)
        log_sum = torch.logaddexp(log_sum, log_components.logsumexp(1))
    return log_sum


@metric("lower", "y", "predictive", "continuous ranked probability score of the predictive mixture", when="last")
def crps(samples: Tensor, context: Context) -> Tensor:
    """Continuous ranked probability score of the predictive mixture, mean over test rows.

    ``E|Y - y| - E|Y - Y'| / 2`` with Y, Y' independent from the mixture; for normal components (Grimit et al.
    2006, QJRMS 132:2925-2942, Eq. 5)::

        mean_i A(y - f_i, s_i^2) - mean_ij A(f_i - f_j, s_i^2 + s_j^2) / 2,   A(d, v) = E|N(d, v)|

    (R,) in units of y; lower is better. O(n^2 T) for T test rows, in blocks: 1 s at n = 1000, T = 50.

    >>> crps(weights, held_out)
    tensor([49.6616], dtype=torch.float64)
    """
    data, y = held_rows(samples, context)
    means, sds = all_predictions(samples, data, y)
    values = []
    for r, rows in enumerate(y):
        columns = row_blocks(len(rows), samples.shape[1])
        values.append(sum(float(_crps_sum(rows[t], means[r, :, t], sds[r, :, None])) for t in columns))
    return torch.tensor(values, dtype=samples.dtype) / y.shape[1]


@metric("neutral", "1", "predictive", "share of test rows inside the central 95% predictive interval", when="last")
def coverage(samples: Tensor, context: Context) -> Tensor:
    """Share of test rows inside the central 95% interval of the predictive mixture.

    y lies inside exactly when the mixture's distribution function ``mean_i Phi((y - f_i) / s_i)`` is between
    0.025 and 0.975 there: no quantile is computed.

    (R,), a share; 0.95 when the predictions are calibrated, so neither direction is better. One prediction per
    sample, in blocks.

    >>> coverage(weights, held_out)
    tensor([0.9545], dtype=torch.float64)
    """
    data, y = held_rows(samples, context)
    total = torch.zeros_like(y)
    for means, sds in predictions(samples, data, y):
        total += torch.special.ndtr((y[:, None, :] - means) / sds[..., None]).sum(1)
    below = total / samples.shape[1]
    return ((below >= 0.025) & (below <= 0.975)).to(samples).mean(1)


def _crps_sum(y: Tensor, means: Tensor, sds: Tensor) -> Tensor:
    """Sum of scores over test rows: y (T,), means (n, T), sds (n, 1)."""
    n = len(means)
    spread = y.new_zeros(())
    for b in row_blocks(n, means.numel()):
        # Every pair once: those of the block with itself come twice, those with later rows count for both orders.
        later = slice(b.stop, n)
        for j, weight in ((b, 1), (later, 2)):
            sd = (sds[b, None].square() + sds[None, j].square()).sqrt()
            spread = spread + weight * _mean_absolute(means[b, None] - means[None, j], sd).sum()
    return _mean_absolute(y - means, sds).sum() / n - spread / (2 * n**2)


def _mean_absolute(d: Tensor, sd: Tensor) -> Tensor:
    """E|N(d, sd^2)| = sd (2 phi(z) + z erf(z / sqrt 2)), z = d / sd."""
    z = d / sd
    density = (-0.5 * z.square()).exp_().mul_(math.sqrt(2 / math.pi))
    return density.add_(z * (z * math.sqrt(0.5)).erf_()).mul_(sd)


def held_rows(samples: Tensor, context: Context) -> tuple[PredictiveData, Tensor]:
    """The held-out data and their responses (R, T); ``NotApplicable`` without any."""
    data = given(context.predictive, "the task has no held-out data")
    y = data.y.to(samples)
    if y.shape[1] == 0:
        raise NotApplicable(f"the test set is empty: responses of shape {tuple(y.shape)}")
    return data, y


def predictions(samples: Tensor, data: PredictiveData, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Means (R, b, T) and noise sds (R, b) of consecutive samples, few enough at a time."""
    for block in row_blocks(samples.shape[1], y.numel()):
        means, sds = data.predict(samples[:, block])
        yield means.to(samples), sds.to(samples)


def all_predictions(samples: Tensor, data: PredictiveData, y: Tensor) -> tuple[Tensor, Tensor]:
    """Means (R, n, T) and noise sds (R, n)."""
    means, sds = zip(*predictions(samples, data, y), strict=True)
    return torch.cat(means, 1), torch.cat(sds, 1)
