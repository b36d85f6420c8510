"""Adaptation in warm-up: a leapfrog length by dual averaging, and scales from the chains' positions.

Everything is per replicate and pooled over its chains.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from parvibench.nn.masks import where

#: Constants of dual averaging: Hoffman & Gelman (2014), Section 3.2.1, as in Stan.
GAMMA, DELAY, KAPPA = 0.05, 10.0, 0.75
#: Stan's weight, in positions, of its prior variance of 1e-3.
PRIOR_POSITIONS, PRIOR_VARIANCE = 5.0, 1e-3
#: Nats below the median, and mean acceptance of its last trajectory, at which a chain in warm-up is given up.
LOST, STUCK = 1000.0, 0.01


class DualAveraging(NamedTuple):
    """A leapfrog length on its way to a mean acceptance; Hoffman & Gelman (2014), Equation 6. All (R,)."""

    log_step: Tensor  # of the next trajectories
    mean_log_step: Tensor  # weighted mean so far: the final value
    anchor: Tensor  # towards which log_step shrinks
    error: Tensor  # mean of target - acceptance
    updates: Tensor

    @classmethod
    def start(cls, step: Tensor) -> Self:
        """Anchored at the length ``step`` itself; the paper, which searches for it by one chain, at ten times it."""
        log_step = step.log()
        return cls(log_step, log_step.clone(), log_step.clone(), torch.zeros_like(step), torch.zeros_like(step))

    def update(self, acceptance: Tensor, target: float, seen: Tensor | None = None) -> Self:
        """Learn from a mean acceptance, (R,), of the replicates ``seen``, (R,) bool."""
        t = self.updates + 1
        error = self.error + (target - acceptance - self.error) / (t + DELAY)
        log_step = self.anchor - t.sqrt() / GAMMA * error
        mean = self.mean_log_step + (log_step - self.mean_log_step) * t**-KAPPA
        new = type(self)(log_step, mean, self.anchor, error, t)
        return new if seen is None else where(seen, new, self)


class Moments(NamedTuple):
    """Sums over positions of a window of warm-up."""

    number: Tensor  # (R,) of positions
    shift: Tensor  # (R, D) about which the sums are taken
    sums: Tensor  # (R, D)
    squares: Tensor  # (R, D), or products (R, D, D)

    @classmethod
    def start(cls, x: Tensor, dense: bool) -> Self:
        """Sums over no positions, about the mean of ``x`` (R, N, D)."""
        shift = x.mean(1)
        squares = shift.new_zeros((*shift.shape, shift.shape[1])) if dense else torch.zeros_like(shift)
        return cls(shift.new_zeros(len(shift)), shift, torch.zeros_like(shift), squares)

    def add(self, x: Tensor) -> Self:
        """The sums with the positions x, (R, N, D), added."""
        z = x - self.shift.unsqueeze(1)
        squares = z.mT @ z if self.squares.dim() == 3 else z.square().sum(1)
        return self._replace(number=self.number + x.shape[1], sums=self.sums + z.sum(1), squares=self.squares + squares)

    def scale(self) -> Tensor:
        """Standard deviations (R, D), or the Cholesky factor (R, D, D) of the covariance; regularised as in Stan."""
        n = self.number[:, None]
        mean, weight = self.sums / n, n / (n + PRIOR_POSITIONS)
        floor = PRIOR_VARIANCE * (1 - weight)
        if self.squares.dim() == 2:
            variance = (self.squares / n - mean.square()).clamp(min=0) * (n / (n - 1))
            return (weight * variance + floor).sqrt()
        products = self.squares / n[..., None] - mean[:, :, None] * mean[:, None]
        covariance = (weight * n / (n - 1))[..., None] * products + torch.diag_embed(floor.expand_as(mean))
        factor, failed = torch.linalg.cholesky_ex(covariance)
        spread = torch.diag_embed(covariance.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt())
        return torch.where(failed[:, None, None] > 0, spread, factor)


def to_momentum(vector: Tensor, scale: Tensor) -> Tensor:
    """Scores (R, N, D) in the coordinates in which the scale is one: L^T s."""
    return vector * scale.unsqueeze(1) if scale.dim() == 2 else vector @ scale


def catching_up(density: Tensor, acceptance: Tensor) -> tuple[Tensor, Tensor]:
    """Whose place each chain takes in warm-up, (R, N) int64, and which replicates have such a change, (R,) bool.

    A chain that is far below the others in log density, or accepts nothing, (R, N) both, does not come back by a step
    that suits these. The worst takes the place of the best, the next that of the next.
    """
    lost = (density < density.quantile(0.5, dim=1, keepdim=True) - LOST) | (acceptance < STUCK)
    order = density.argsort(1)
    order = order.gather(1, lost.gather(1, order).to(torch.uint8).argsort(dim=1, descending=True, stable=True))
    place = torch.where(lost.gather(1, order), order.flip(1), order)
    return torch.empty_like(order).scatter_(1, order, place), lost.any(1)


def reasonable_step(score: Tensor, scale: Tensor) -> Tensor:
    """A leapfrog length to begin with, (R,): D^(-1/4) over the root mean square of the scaled scores (R, N, D).

    That square is the mean eigenvalue of the precision at a Gaussian; the chains' median, as one far out has any score.
    """
    rms = to_momentum(score, scale).square().mean(2).quantile(0.5, dim=1).sqrt()
    step = score.shape[-1] ** -0.25 / rms
    return torch.where(rms.isfinite() & (rms > 0), step, torch.ones_like(step)).clamp(1e-8, 1e8)
