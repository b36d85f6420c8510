"""Agreement of posterior predictions with certified ones, in original units: networks have no comparable weights."""

import math

import torch
from torch import Tensor

from parvibench.core.metric import Context, metric
from parvibench.core.reference import Certified
from parvibench.core.task import PredictiveData

from .needs import given
from .predictive import all_predictions, held_rows, log_sums
from .transport import sliced_distance

#: Halvings of the bracket of a quantile.
_HALVINGS = 30
_LEVEL = 0.95


@metric(
    "lower",
    "sd",
    "predictive",
    "sliced 2-Wasserstein distance of predictions to the certified posterior's",
    floor_ratio=True,
)
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


@metric(
    "lower",
    "sd",
    "predictive",
    "root mean square error of the predictive mean against the certified posterior's, in its sd",
)
def predictive_mean_error(samples: Tensor, context: Context) -> Tensor:
    """Distance of the predictive mean from that of the exact posterior.

    ``sqrt mean_t ((m_t - M_t) / S_t)^2`` for the samples' mean m of f(x_t) and the certified posterior mean M and
    standard deviation S of f(x_t): n independent exact draws have about 1 / sqrt(n).

    (R,) in posterior sds; lower is better. One prediction per sample.

    >>> predictive_mean_error(weights, held_out)
    tensor([4.0824], dtype=torch.float64)
    """
    return _errors(samples, context)[0]


@metric(
    "lower",
    "1",
    "predictive",
    "root mean square relative error of the predictions' spread against the certified posterior's",
)
def predictive_sd_error(samples: Tensor, context: Context) -> Tensor:
    """Error of the spread of predictions, against that of the exact posterior.

    ``sqrt mean_t (s_t / S_t - 1)^2`` for the standard deviations s of f(x_t) over the samples and the certified S,
    without the noise of the responses: 1 when all samples agree, about 1 / sqrt(2n) for n independent exact draws.

    (R,), relative; lower is better. One prediction per sample.

    >>> predictive_sd_error(weights, held_out)
    tensor([1.], dtype=torch.float64)
    """
    return _errors(samples, context)[1]


@metric(
    "lower",
    "nats",
    "predictive",
    "mean absolute error of the log predictive densities of the test rows",
    floor_ratio=True,
)
def predictive_nll_error(samples: Tensor, context: Context) -> Tensor:
    """Distance of held-out log likelihoods, ``mean_t |log p(y_t) - log P(y_t)|``.

    p is the samples' predictive mixture and P that of the certified posterior. Unlike ``nll`` it does not reward
    predictions that are better than the posterior's.

    (R,) in nats per row; lower is better. One prediction per sample. Needs certified densities.

    >>> predictive_nll_error(weights, certified)
    tensor([0.4801], dtype=torch.float64)
    """
    data, y = held_rows(samples, context)
    log_p = _stored(_certified(samples, data).log_p)
    return (log_sums(samples, data, y) - math.log(samples.shape[1]) - log_p).abs().mean(1)


@metric(
    "lower",
    "1",
    "predictive",
    "error of the certified probability of the 95% predictive intervals",
    when="last",
    floor_ratio=True,
)
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


def relative_errors(mean: Tensor, sd: Tensor, true_mean: Tensor, true_sd: Tensor) -> tuple[Tensor, Tensor]:
    """Root mean square over points of the errors of means, in true sds, and of sds, relative; (..., T) each."""
    return (((mean - true_mean) / true_sd).square().mean(-1).sqrt(), (sd / true_sd - 1).square().mean(-1).sqrt())


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
    f, _, known = _predicted(samples, context)
    return relative_errors(f.mean(1), f.std(1), known.mean, known.sd)


def _predicted(samples: Tensor, context: Context) -> tuple[Tensor, Tensor, Certified]:
    """Predictions (R, n, T), noise sds (R, n), and what they are compared with."""
    data, y = held_rows(samples, context)
    known = _certified(samples, data)
    return *all_predictions(samples, data, y), known


def _certified(samples: Tensor, data: PredictiveData) -> Certified:
    mean, sd, *more = given(data.certified, "there are no certified predictions for these data splits")
    return Certified(mean.to(samples), sd.to(samples), *(None if a is None else a.to(samples) for a in more))


def _stored(values: Tensor | None) -> Tensor:
    return given(values, "of the certified predictions only means and sds are stored")
