"""A path from a base to the target, and MALA along it.

pi_b is proportional to base^(1 - b) pi^b, b the inverse temperature, from 0 (the base) to 1 (the target). The base is
N(0, s^2 I), normalised, so that constants of pi come out relative to one. With l(x) = log pi(x) - log base(x),

    log pi_b = log base + b l + const,   s_b(x) = b s(x) - (1 - b) x / s^2.

What the base must be: broad enough to cover the target, and known as a density. A task's initial points are neither: a
sampler sees them as points only, and several start off the target on purpose. Where the target declares a Gaussian
prior, the base is that prior, and the path tempers the likelihood; elsewhere s is a setting, in units of x, and with it
comes knowledge of the target's size that samplers without a base do not have.

Trap: along this path a mode of width w in D dimensions has a mass in proportion to w^(D (1 - b)). Where modes differ in
width, the narrow ones are empty until b is close to 1, and then no step of the ladder fills them (Woodard, Schmidler &
Huber 2009, Electron. J. Probab. 14:780-804): ``gmm5-10d`` is such a target, whatever the number of temperatures.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from parvibench.core.task import Problem

#: Of MALA where the dimension is large (Roberts & Rosenthal 1998, J. R. Stat. Soc. B 60:255-268).
TARGET_ACCEPTANCE = 0.574
#: s where nothing else is known.
DEFAULT_SD = 3.0


class Points(NamedTuple):
    """Points with what is known of the target there."""

    x: Tensor  # (R, M, D)
    log_density: Tensor  # (R, M)
    score: Tensor  # (R, M, D)

    def take(self, index: Tensor) -> Points:
        """The points of an index, (R, M'): a gather."""
        wide = index.unsqueeze(-1).expand(-1, -1, self.x.shape[-1])
        return Points(self.x.gather(1, wide), self.log_density.gather(1, index), self.score.gather(1, wide))

    def where(self, mask: Tensor, other: Points) -> Points:
        """These points where a mask, (R, M) or (R, 1), is true, the others elsewhere."""
        wide = mask.unsqueeze(-1)
        return Points(*(torch.where(mask if a.dim() == 2 else wide, a, b) for a, b in zip(self, other, strict=True)))


def base_sd(problem: Problem, given: float | None) -> float:
    """s: the setting, else that of the declared prior, else ``DEFAULT_SD``."""
    if given is not None:
        return given
    return DEFAULT_SD if problem.prior_precision is None else problem.prior_precision**-0.5


def first_step(sd: float, dim: int) -> float:
    """MALA's best eta on the base itself, eta = (1.65^2 / 2) s^2 D^(-1/3)."""
    return 1.36 * sd**2 * dim ** (-1 / 3)


def log_base(x: Tensor, sd: float) -> Tensor:
    """Log density of N(0, s^2 I), normalised: (R, M, D) -> (R, M)."""
    return -0.5 * (x.square().sum(-1) / sd**2 + x.shape[-1] * math.log(2 * math.pi * sd**2))


def log_ratio(points: Points, sd: float) -> Tensor:
    """l = log pi - log base, (R, M)."""
    return points.log_density - log_base(points.x, sd)


def moved(
    problem: Problem,
    points: Points,
    b: Tensor,
    log_eta: Tensor,
    sd: float,
    noise: Tensor,
    uniform: Tensor,
    drawn: int = 0,
) -> tuple[Points, Tensor]:
    """One MALA step of every point at its own temperature.

    Args:
        problem: scores M points.
        points: where they are.
        b: inverse temperatures, broadcastable to (R, M).
        log_eta: log step sizes, broadcastable to (R, M).
        sd: s of the base.
        noise: standard normal, (R, M, D).
        uniform: (R, M).
        drawn: the first so many points are fresh draws from the base instead, s times their noise.

    Returns:
        The points after it, and the acceptance probabilities, (R, M); 1 for those drawn.
    """
    eta = log_eta.exp().unsqueeze(-1)
    step = eta * _score(points, b, sd) + (2 * eta).sqrt() * noise
    y = points.x + step
    if drawn:
        y = torch.cat((sd * noise[:, :drawn], y[:, drawn:]), 1)
    there = Points(y, *problem.log_density_and_score(y))
    backward = step + eta * _score(there, b, sd)
    # log q(x | y) - log q(y | x), with y - x = eta s(x) + sqrt(2 eta) xi
    log_ratio = _log_density(there, b, sd) - _log_density(points, b, sd)
    log_ratio = log_ratio + 0.5 * noise.square().sum(-1) - backward.square().sum(-1) / (4 * eta.squeeze(-1))
    if drawn:
        log_ratio = torch.cat((torch.zeros_like(log_ratio[:, :drawn]), log_ratio[:, drawn:]), 1)
    accept = uniform.log() < log_ratio
    return there.where(accept, points), log_ratio.clamp(max=0).exp().nan_to_num(nan=0.0)


def _score(points: Points, b: Tensor, sd: float) -> Tensor:
    wide = b.unsqueeze(-1)
    return wide * points.score - ((1 - wide) / sd**2) * points.x


def _log_density(points: Points, b: Tensor, sd: float) -> Tensor:
    return b * points.log_density + (1 - b) * log_base(points.x, sd)
