"""Posterior predictions, in original units: their fit to held-out data, and agreement with certified ones.

Samples are parameters: of networks they are not comparable, what these predict is.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.core.reference import Certified
from parvibench.core.task import PredictiveData

from .common import given, row_blocks
from .transport import sliced_distance

#: Of predictive intervals: their level, and halvings of the bracket of a quantile.
_LEVEL, _HALVINGS = 0.95, 30


@metric("lower", "y", "predictive", "root mean square error of the predictive mean")
def rmse(samples: Tensor, context: Context) -> Tensor:
    """Root mean square error of the predictive mean, ``sqrt mean_t (y_t - mean_m f_m(x_t))^2``.

    (R,) in units of y; lower is better. One prediction per sample, in blocks.

    >>> rmse(weights, held_out)
    tensor([84.3701], dtype=torch.float64)
    """
    data, y = _held_rows(samples, context)
    total = sum(means.sum(1) for means, _ in _predictions(samples, data, y))
    return (y - total / samples.shape[1]).square().mean(1).sqrt()


@metric("lower", "nats", "predictive", "negative log likelihood of the predictive mixture per test row")
def nll(samples: Tensor, context: Context) -> Tensor:
    """Negative log likelihood of the predictive mixture per test row.

    ``-mean_t log (1/n) sum_m N(y_t; f_m(x_t), sigma_m^2)``.

    (R,) in nats per row for y in its original units; lower is better. One prediction per sample.

    >>> nll(weights, held_out)
    tensor([5.8654], dtype=torch.float64)
    """
    data, y = _held_rows(samples, context)
    return math.log(samples.shape[1]) - _log_sums(samples, data, y).mean(1)


def _log_sums(samples: Tensor, data: PredictiveData, y: Tensor) -> Tensor:
    """Logarithms of the sums of the n samples' densities at the responses y (R, T), (R, T)."""
    log_sum = torch.full_like(y, -math.inf)
    for means, sds in _predictions(samples, data, y):
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
    data, y = _held_rows(samples, context)
    means, sds = _all_predictions(samples, data, y)
    values = []
    for r, rows in enumerate(y):
        columns = row_blocks(len(rows), samples.shape[1])
        values.append(sum(float(_crps_sum(rows[t], means[r, :, t], sds[r, :, None])) for t in columns))
    return torch.tensor(values, dtype=samples.dtype) / y.shape[1]


@metric("neutral", "1", "predictive", "share of test rows inside the central 95% predictive interval", when="last")
def coverage(samples: Tensor, context: Context) -> Tensor:
    """Share of test rows inside the central 95% interval of the predictive mixture.

    y is inside exactly when the mixture's distribution function ``mean_i Phi((y - f_i) / s_i)`` is between
    0.025 and 0.975 there: no quantile is computed.

    (R,), a share; 0.95 when the predictions are calibrated, so neither direction is better. One prediction per
    sample, in blocks.

    >>> coverage(weights, held_out)
    tensor([0.9545], dtype=torch.float64)
    """
    data, y = _held_rows(samples, context)
    total = torch.zeros_like(y)
    for means, sds in _predictions(samples, data, y):
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


def _held_rows(samples: Tensor, context: Context) -> tuple[PredictiveData, Tensor]:
    """The held-out data and their responses (R, T); ``NotApplicable`` without any."""
    data = given(context.predictive, "the task has no held-out data")
    y = data.y.to(samples)
    if y.shape[1] == 0:
        raise NotApplicable(f"the test set is empty: responses of shape {tuple(y.shape)}")
    return data, y


def _predictions(samples: Tensor, data: PredictiveData, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Means (R, b, T) and noise sds (R, b) of consecutive samples, few enough at a time."""
    for block in row_blocks(samples.shape[1], y.numel()):
        means, sds = data.predict(samples[:, block])
        yield means.to(samples), sds.to(samples)


def _all_predictions(samples: Tensor, data: PredictiveData, y: Tensor) -> tuple[Tensor, Tensor]:
    """Means (R, n, T) and noise sds (R, n)."""
    means, sds = zip(*_predictions(samples, data, y), strict=True)
    return torch.cat(means, 1), torch.cat(sds, 1)


@metric("lower", "sd", "predictive", "sliced W2 of predictions to the certified posterior's", floor_ratio=True)
def predictive_w2(samples: Tensor, context: Context) -> Tensor:
    """Distance between the laws of the predictions f(x_1), ..., f(x_T), in units of the certified sds.

    As ``sliced_w2``, of ``(f(x_t) - M_t) / S_t`` against draws of the certified posterior: dependence between points
    counts. A shift of all points by c sds is a distance of c.

    (R,) in posterior sds; lower is better. One prediction per sample. Needs certified draws.

    >>> predictive_w2(weights, certified)
    tensor([0.1521], dtype=torch.float64)
    """
    f, _, known = _predicted(samples, context)
    draws = _stored(known.draws)
    scaled = (f - known.mean[:, None]) / known.sd[:, None]
    return torch.stack([sliced_distance(x, rows) for x, rows in zip(scaled, draws, strict=True)])


@metric("lower", "sd", "predictive", "RMS error of the predictive mean against the certified posterior's, in its sd")
def predictive_mean_error(samples: Tensor, context: Context) -> Tensor:
    """Distance of the predictive mean from that of the exact posterior.

    ``sqrt mean_t ((m_t - M_t) / S_t)^2`` for the samples' mean m of f(x_t) and the certified posterior mean M and
    standard deviation S of f(x_t): n independent exact draws have about 1 / sqrt(n).

    (R,) in posterior sds; lower is better. One prediction per sample.

    >>> predictive_mean_error(weights, held_out)
    tensor([4.0824], dtype=torch.float64)
    """
    return _errors(samples, context)[0]


@metric("lower", "1", "predictive", "RMS relative error of the predictions' spread against the certified posterior's")
def predictive_sd_error(samples: Tensor, context: Context) -> Tensor:
    """Error of the spread of predictions, against that of the exact posterior.

    ``sqrt mean_t (s_t / S_t - 1)^2`` for the standard deviations s of f(x_t) over the samples and the certified S,
    without the noise of the responses: 1 when all samples agree, about 1 / sqrt(2n) for n independent exact draws.

    (R,), relative; lower is better. One prediction per sample.

    >>> predictive_sd_error(weights, held_out)
    tensor([1.], dtype=torch.float64)
    """
    return _errors(samples, context)[1]


@metric("lower", "nats", "predictive", "mean absolute error of log predictive densities at test rows", floor_ratio=True)
def predictive_nll_error(samples: Tensor, context: Context) -> Tensor:
    """Distance of held-out log likelihoods, ``mean_t |log p(y_t) - log P(y_t)|``.

    p is the samples' predictive mixture and P that of the certified posterior. Unlike ``nll`` it does not reward
    predictions that are better than the posterior's.

    (R,) in nats per row; lower is better. One prediction per sample. Needs certified densities.

    >>> predictive_nll_error(weights, certified)
    tensor([0.4801], dtype=torch.float64)
    """
    data, y = _held_rows(samples, context)
    log_p = _stored(_certified(samples, data).log_p)
    return (_log_sums(samples, data, y) - math.log(samples.shape[1]) - log_p).abs().mean(1)


@metric("lower", "1", "predictive", "error of the certified level of 95% intervals", when="last", floor_ratio=True)
def predictive_coverage_error(samples: Tensor, context: Context) -> Tensor:
    """Calibration against the certified posterior, ``mean_t |P(l_t < y < u_t) - 0.95|``.

    l and u are the 2.5% and 97.5% quantiles of the samples' predictive mixture at a test point (by bisection), and P is
    the certified predictive distribution there, a mixture over the stored draws.

    (R,), a probability; lower is better. O(60 n T) for T test rows. Needs certified draws.

    >>> predictive_coverage_error(weights, certified)
    tensor([0.0170], dtype=torch.float64)
    """
    f, sds, known = _predicted(samples, context)
    true = known.mean[:, None] + known.sd[:, None] * _stored(known.draws), _stored(known.noise)
    below = [_distribution(_quantile(level, f, sds), *true) for level in ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2)]
    return (below[1] - below[0] - _LEVEL).abs().mean(1)


def _distribution(y: Tensor, means: Tensor, sds: Tensor) -> Tensor:
    """Distribution functions of mixtures of n normals, means (R, n, T) and sds (R, n), at y (R, T)."""
    return torch.special.ndtr((y[:, None] - means) / sds[..., None]).mean(1)


def _quantile(level: float, means: Tensor, sds: Tensor) -> Tensor:
    """Quantiles of the same mixtures, (R, T)."""
    low, high = (means - 8 * sds[..., None]).amin(1), (means + 8 * sds[..., None]).amax(1)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        short = _distribution(middle, means, sds) < level
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return (low + high) / 2


def _errors(samples: Tensor, context: Context) -> tuple[Tensor, Tensor]:
    """Root mean square over points of the errors of means, in certified sds, and of sds, relative; (R,) each."""
    f, _, known = _predicted(samples, context)
    of_means, of_sds = (f.mean(1) - known.mean) / known.sd, f.std(1) / known.sd - 1
    return of_means.square().mean(-1).sqrt(), of_sds.square().mean(-1).sqrt()


def _predicted(samples: Tensor, context: Context) -> tuple[Tensor, Tensor, Certified]:
    """Predictions (R, n, T), noise sds (R, n), and what they are compared with."""
    data, y = _held_rows(samples, context)
    known = _certified(samples, data)
    return *_all_predictions(samples, data, y), known


def _certified(samples: Tensor, data: PredictiveData) -> Certified:
    mean, sd, *more = given(data.certified, "there are no certified predictions for these data splits")
    return Certified(mean.to(samples), sd.to(samples), *(None if a is None else a.to(samples) for a in more))


def _stored(values: Tensor | None) -> Tensor:
    return given(values, "of the certified predictions only means and sds are stored")
