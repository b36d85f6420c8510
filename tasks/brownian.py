"""Brownian motion observed through noise with a gap in the middle, both scales unknown.

``brownian-32``: the Inference Gym's "Brownian Motion Unknown Scales Missing Middle Observations" (Sountsov et al. 2020,
TensorFlow Probability), also in Blessing et al. (2024), arXiv:2406.07423:

    x_1 ~ N(0, s),  x_t ~ N(x_{t-1}, s),  y_t ~ N(x_t, o) for t = 1 ... 10 and 21 ... 30,  s, o ~ LogNormal(0, 2)

with the gym's observations. Coordinates log s, log o, x_1, ..., x_30; the gym's own have softplus in place of exp.
log_density is the log of the joint density in these coordinates, constants included: Z is the evidence p(y). A small s
pins all x together, a small o pins them to the observations: two funnels. Start: Stan's, uniform on (-2, 2).

Exact: given the scales, y is a Gaussian whose density a Kalman filter yields and x | y follows backwards from it. What
remains is a density of two numbers: log Z = 1.18775 is its trapezoidal sum over a grid, and draws are by rejection from
a step function over the cells of a grid twice as fine, whose height is the largest value at a cell's corners and centre
and a tenth more.
"""

import math
from functools import cache

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from parvibench.core.exact import FormulaTask
from parvibench.core.task import LEAN_METRICS, LOG_Z_METRICS, Facts

from ._posterior import Uniform

_PRIOR_SD = 2.0
_STEPS, _SEEN = 30, (*range(10), *range(20, 30))
# fmt: off
_Y = (
    0.21592641, 0.118771404, -0.07945447, 0.037677474, -0.27885845, -0.1484156, -0.3250906, -0.22957903, -0.44110894,
    -0.09830782, -0.8786016, -0.83736074, -0.7384849, -0.8939254, -0.7774566, -0.70238715, -0.87771565, -0.51853573,
    -0.6948214, -0.6202789,
)
# fmt: on
#: Grid over (log s, log o): beyond it there is less than 1e-9 of the mass.
_BOX = ((-6.0, 2.0), (-14.0, 1.0))
_SPACING, _CELL = 0.2, 0.1
_LOG_2PI = math.log(2 * math.pi)


def _constants() -> tuple[Tensor, ...]:
    """Observations, 0 where there is none; which there are; and the numbers of steps and of observations."""
    y, seen = torch.zeros(2, _STEPS, dtype=torch.float64)
    y[list(_SEEN)], seen[list(_SEEN)] = torch.tensor(_Y, dtype=torch.float64), 1.0
    return y, seen, torch.tensor((_STEPS, len(_Y)), dtype=torch.float64)


def _density(x: Tensor, y: Tensor, seen: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the joint density of log scales, path and observations, and score."""
    logs, path = x[..., :2], x[..., 2:]
    steps = path - pad(path[..., :-1], (1, 0))
    precision = (-2 * logs).exp()
    pull, fit = precision[..., :1] * steps, precision[..., 1:] * seen * (y - path)
    squares = torch.stack([(pull * steps).sum(-1), (fit * (y - path)).sum(-1)], -1)
    density = -0.5 * (squares + (logs / _PRIOR_SD) ** 2) - sizes * logs
    constant = -0.5 * _LOG_2PI * (_STEPS + 2 + len(_Y)) - 2 * math.log(_PRIOR_SD)
    by_path = fit - pull + pad(pull[..., 1:], (0, 1))
    return density.sum(-1) + constant, torch.cat([squares - sizes - logs / _PRIOR_SD**2, by_path], -1)


def filtered(logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p(y, log s, log o), (n,), and means and variances of x_t given y_1 ... y_t, (n, 30), for scales (n, 2)."""
    step, noise = (2 * logs).exp().unbind(-1)
    log_p = -(0.5 * (logs / _PRIOR_SD) ** 2 + 0.5 * _LOG_2PI + math.log(_PRIOR_SD)).sum(-1)
    mean, variance = torch.zeros_like(step), torch.zeros_like(step)
    means, variances = [], []
    observations = dict(zip(_SEEN, _Y, strict=True))
    for t in range(_STEPS):
        variance = variance + step
        if t in observations:
            total, error = variance + noise, observations[t] - mean
            log_p = log_p - 0.5 * (error**2 / total + total.log() + _LOG_2PI)
            mean, variance = mean + variance / total * error, variance * noise / total
        means.append(mean)
        variances.append(variance)
    return log_p, torch.stack(means, -1), torch.stack(variances, -1)


class ScalesLaw:
    """The law of (log s, log o) given y, on a grid."""

    def __init__(self, spacing: float) -> None:
        axes = [torch.arange(low, high + spacing / 2, spacing, dtype=torch.float64) for low, high in _BOX]
        points = torch.cartesian_prod(*axes)
        shape = [len(axis) for axis in axes]
        corners = filtered(points)[0].view(shape)
        self.points, self.weights = points, corners.flatten().softmax(0)
        self.log_z = float(corners.flatten().logsumexp(0) + 2 * math.log(spacing))
        lows = points.view(*shape, 2)[:-1, :-1].flatten(0, 1)
        centres = filtered(lows + spacing / 2)[0]
        ends = torch.stack([corners[a : shape[0] - 1 + a, b : shape[1] - 1 + b] for a in (0, 1) for b in (0, 1)])
        self._spacing, self._lows = spacing, lows
        self._bounds = torch.maximum(ends.amax(0).flatten(), centres) + math.log(1.1)

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Draws, (n, 2)."""
        found = torch.empty(0, 2, dtype=torch.float64)
        while len(found) < n:
            cells = torch.multinomial(self._bounds.softmax(0), n, replacement=True, generator=generator)
            u = torch.rand(n, 3, generator=generator, dtype=torch.float64)
            x = self._lows[cells] + self._spacing * u[:, :2]
            found = torch.cat([found, x[u[:, 2].log() < filtered(x)[0] - self._bounds[cells]]])
        return found[:n]


_scales = cache(ScalesLaw)


def _draws(n: int, generator: Generator) -> Tensor:
    """Scales first, then the path backwards."""
    logs = _scales(_CELL).sample(n, generator)
    _, means, variances = filtered(logs)
    step = (2 * logs[:, 0]).exp()
    z = torch.randn(_STEPS, n, generator=generator, dtype=torch.float64)
    path = [means[:, -1] + variances[:, -1].sqrt() * z[-1]]
    for t in reversed(range(_STEPS - 1)):
        gain = variances[:, t] / (variances[:, t] + step)
        path.append(means[:, t] + gain * (path[-1] - means[:, t]) + ((1 - gain) * variances[:, t]).sqrt() * z[t])
    return torch.cat([logs, torch.stack(path[::-1], -1)], -1)


def _moments(law: ScalesLaw) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of all coordinates, (D,) each: sums over the grid of those given the scales."""
    logs, weights = law.points, law.weights[:, None]
    _, means, variances = filtered(logs)
    step = (2 * logs[:, 0]).exp()
    mean, variance = means[:, -1], variances[:, -1]
    first, second = [mean], [variance + mean**2]
    for t in reversed(range(_STEPS - 1)):
        gain = variances[:, t] / (variances[:, t] + step)
        mean = means[:, t] + gain * (mean - means[:, t])
        variance = (1 - gain) * variances[:, t] + gain**2 * variance
        first.append(mean)
        second.append(variance + mean**2)
    means = torch.cat([logs, torch.stack(first[::-1], -1)], -1)
    squares = torch.cat([logs**2, torch.stack(second[::-1], -1)], -1)
    centre = (weights * means).sum(0)
    return centre, ((weights * squares).sum(0) - centre**2).sqrt()


def _facts() -> Facts:
    law = ScalesLaw(_SPACING)
    mean, sd = _moments(law)
    return Facts(mean=mean, sd=sd, log_z=law.log_z)


BROWNIAN_32 = FormulaTask(
    name="brownian-32",
    summary="Brownian motion with a gap and two unknown scales",
    dim=_STEPS + 2,
    tags=frozenset({"exact", "hierarchical", "funnel", "time series"}),
    citation="Sountsov et al. (2020), Inference Gym; Blessing et al. (2024), arXiv:2406.07423",
    metrics=(*LEAN_METRICS, *LOG_Z_METRICS),
    start=Uniform(),
    facts=_facts(),
    formula=_density,
    constants=_constants,
    draws=_draws,
)
