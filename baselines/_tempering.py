"""A path from a base to the target, and MALA along it.

pi_b is proportional to base^(1 - b) pi^b, b the inverse temperature, from 0 (the base) to 1 (the target). The base is
N(m, diag(s^2)), normalised, so that constants of pi come out relative to one. With l(x) = log pi(x) - log base(x),

    log pi_b = log base + b l + const,   s_b(x) = b s(x) - (1 - b) (x - m) / s^2,

and MALA takes steps in units of s: x' = x + eta s^2 s_b(x) + sqrt(2 eta) s noise.

What the base must be: broad enough to cover the target, and known as a density. Where ``base_sd`` is given, it is N(0, base_sd^2 I);
where the target declares a Gaussian prior, that prior, and the path tempers the likelihood. Elsewhere it is fitted: points, half
of them the task's initial points and half draws from N(0, 9 I), move by MALA at b = 1; m is their mean, s their standard
deviation in each coordinate times 1 + D^(-1/4): room for tails, at a cost in nats that grows with sqrt(D) only. Points
whose density is out of all proportion to the best (by more than 10 + 2 D nats) do not count.

Traps: a mode that no point reached in the warm-up may be missed. Along this path a mode of width w in D dimensions has a mass in
proportion to w^(D (1 - b)). Where modes differ in width, the narrow ones are empty until b is close to 1, and then no step of the
ladder fills them (Woodard, Schmidler & Huber 2009, Electron. J. Probab. 14:780-804): ``gmm5-10d`` and ``phase-transition-20d`` are such
targets, whatever the number of temperatures.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from parvibench.core.task import Problem
from parvibench.nn.masks import where

from ._chains import Points, acceptance

#: Of MALA where the dimension is large (Roberts & Rosenthal 1998, J. R. Stat. Soc. B 60:255-268).
TARGET_ACCEPTANCE = 0.574
#: Standard deviation of the draws that take part in a warm-up.
DEFAULT_SD = 3.0


class Base(NamedTuple):
    """A normal law with independent coordinates."""

    mean: Tensor  # (R, 1, D)
    sd: Tensor  # (R, 1, D)

    def log_density(self, x: Tensor) -> Tensor:
        """Normalised: (R, M, D) -> (R, M)."""
        constant = self.sd.log().sum(-1) + 0.5 * x.shape[-1] * math.log(2 * math.pi)
        return -0.5 * ((x - self.mean) / self.sd).square().sum(-1) - constant

    def ratio(self, points: Points) -> Tensor:
        """l = log pi - log base, (R, M)."""
        return points.log_density - self.log_density(points.x)


def known_base(problem: Problem, given: float | None) -> Base | None:
    """The base of the setting, else that of the declared prior, else None: it is to be fitted."""
    if given is None and problem.prior_precision is None:
        return None
    sd = problem.prior_precision**-0.5 if given is None and problem.prior_precision else given
    zero = torch.zeros(problem.replicates, 1, problem.dim, device=problem.device, dtype=problem.dtype)
    return Base(zero, torch.full_like(zero, float(sd or 1.0)))


def fitted_base(points: Points) -> Base:
    """A base about the points, wider than they are by the factor 1 + D^(-1/4)."""
    x, log_density = points.x, points.log_density.nan_to_num(nan=-math.inf)
    least = log_density.amax(1, keepdim=True) - (10 + 2 * x.shape[-1])
    part = (log_density >= least).to(x).unsqueeze(-1)
    total = part.sum(1, keepdim=True).clamp_min(1)
    mean = torch.where(part > 0, x, 0.0).sum(1, keepdim=True) / total
    sd = (torch.where(part > 0, x - mean, 0.0).square().sum(1, keepdim=True) / total).sqrt()
    sound = (sd > 0) & sd.isfinite() & mean.isfinite()
    return Base(torch.where(sound, mean, 0.0), torch.where(sound, (1 + x.shape[-1] ** -0.25) * sd, DEFAULT_SD))


def scattered(start: Tensor, noise: Tensor) -> Tensor:
    """Points of a warm-up, (R, M, D): the initial points, every second one replaced by a draw from N(0, ``DEFAULT_SD``^2 I)."""
    odd = (torch.arange(noise.shape[1], device=noise.device) % 2 == 1).view(1, -1, 1)
    return torch.where(odd, DEFAULT_SD * noise, start)


def first_step(dim: int) -> float:
    """MALA's best eta on the base itself, in units of s^2: (1.65^2 / 2) D^(-1/3)."""
    return 1.36 * dim ** (-1 / 3)


def moved(
    problem: Problem,
    points: Points,
    b: Tensor,
    log_eta: Tensor,
    base: Base,
    noise: Tensor,
    uniform: Tensor,
    drawn: int = 0,
) -> tuple[Points, Tensor]:
    """One MALA step of every point at its own temperature: the points after it, and acceptance probabilities, (R, M).

    ``b`` and ``log_eta``, log step sizes in units of the base's s^2, are broadcastable to (R, M), ``noise`` is (R, M,
    D), ``uniform`` (R, M). The first ``drawn`` points are fresh draws from the base, of their noise.
    """
    eta = log_eta.exp().unsqueeze(-1)
    step = eta * _scaled_score(points, b, base) + (2 * eta).sqrt() * noise
    y = points.x + base.sd * step
    if drawn:
        y = torch.cat((base.mean + base.sd * noise[:, :drawn], y[:, drawn:]), 1)
    there = Points.at(y, problem)
    backward = step + eta * _scaled_score(there, b, base)
    # log q(x | y) - log q(y | x) in units of s, with y - x = eta s(x) + sqrt(2 eta) xi
    log_ratio = _log_density(there, b, base) - _log_density(points, b, base)
    log_ratio = log_ratio + 0.5 * noise.square().sum(-1) - backward.square().sum(-1) / (4 * eta.squeeze(-1))
    if drawn:
        log_ratio = torch.cat((torch.zeros_like(log_ratio[:, :drawn]), log_ratio[:, drawn:]), 1)
    accept = uniform.log() < log_ratio
    return where(accept, there, points), acceptance(log_ratio)


def _scaled_score(points: Points, b: Tensor, base: Base) -> Tensor:
    wide = b.unsqueeze(-1)
    return wide * base.sd * points.score - (1 - wide) * (points.x - base.mean) / base.sd


def _log_density(points: Points, b: Tensor, base: Base) -> Tensor:
    return b * points.log_density + (1 - b) * base.log_density(points.x)
