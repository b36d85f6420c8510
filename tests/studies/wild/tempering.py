"""Ports of bugs in tempering: netket PR 2254, pints PR 1246, flowMC 06b97a6, mlcg PR 70; blackjax 914 (SMC)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

import parvibench as pb

from .common import Port, Stepped, below, eps

#: Inverse temperatures of the ladder, the target's first.
LADDER = (1.0, 0.6, 0.35)


class Ladder(NamedTuple):
    """Chains at the target, and all temperatures: replicas (R, K, N, ...)."""

    x: Tensor  # (R, N, D)
    points: Tensor  # (R, K, N, D)
    log_density: Tensor  # (R, K, N), untempered
    score: Tensor
    velocity: Tensor
    count: int


def _scored(problem: pb.Problem, points: Tensor) -> tuple[Tensor, Tensor]:
    """Log density and score of all replicas."""
    r, k, n, d = points.shape
    log_density, score = problem.log_density_and_score(points.reshape(r, k * n, d))
    return log_density.view(r, k, n), score.view(r, k, n, d)


class Tempering(Port):
    """Replica exchange of MALA chains at three temperatures, neighbours in even and odd turns.

    ``tempered-correction``: the temperature also scales the ratio of the proposal's densities (netket PR 2254).
    ``copied``: an accepted exchange puts the hotter point into both replicas (pints PR 1246).
    ``flipped``: an accepted exchange also reverses the order of the coordinates (flowMC 06b97a6).
    """

    name: ClassVar[str] = "wild-tempering"
    exact = "adapted"  # a claim that was added afterwards: hotter replicas reach their laws in half of a run

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Ladder:
        x = problem.init()
        points = x.unsqueeze(1).expand(-1, len(LADDER), -1, -1).contiguous()
        velocity = streams.normal("noise", points.shape[1:], index=9) / _betas(points).sqrt()
        return Ladder(x, points, *_scored(problem, points), velocity, 0)

    def step(self, problem: pb.Problem, settings: Stepped, state: Ladder, streams: pb.Streams) -> Ladder:
        state = self._move(problem, settings, state, streams)
        state = self._exchange(problem, state, streams)
        return state._replace(x=state.points[:, 0], count=state.count + 1)

    def _move(self, problem: pb.Problem, settings: Stepped, state: Ladder, streams: pb.Streams) -> Ladder:
        beta = _betas(state.points)
        eta = settings.step_size / beta  # hotter replicas take longer steps
        noise = streams.normal("noise", state.points.shape[1:])
        y = state.points + eta * beta * state.score + (2 * eta).sqrt() * noise
        log_density, score = _scored(problem, y)
        back = (state.points - y - eta * beta * score).square() / (4 * eta)
        correction = (noise.square() / 2 - back).sum(-1)
        beta = beta[..., 0]
        log_ratio = beta * (log_density - state.log_density) + (beta if self.bug == "tempered-correction" else 1) * (
            correction
        )
        accept = below(streams.uniform("algorithm", log_ratio.shape[1:]), log_ratio)
        new = state._replace(points=y, log_density=log_density, score=score)
        return _where(accept, new, state)

    def _exchange(self, problem: pb.Problem, state: Ladder, streams: pb.Streams) -> Ladder:
        uniform = streams.uniform("algorithm", (len(LADDER), state.x.shape[1]), index=1)
        for k in range(state.count % 2, len(LADDER) - 1, 2):
            cold, hot = state.log_density[:, k], state.log_density[:, k + 1]
            accept = below(uniform[:, k], (LADDER[k] - LADDER[k + 1]) * (hot - cold))
            state = self._exchanged(problem, state, k, accept)
        return state

    def _exchanged(self, problem: pb.Problem, state: Ladder, k: int, accept: Tensor) -> Ladder:
        order = list(range(len(LADDER)))
        order[k], order[k + 1] = k + 1, (k + 1 if self.bug == "copied" else k)
        swapped = state._replace(**{f: getattr(state, f)[:, order] for f in ("points", "log_density", "score")})
        if self.bug == "flipped":
            points = swapped.points.clone()
            points[:, k : k + 2] = points[:, k : k + 2].flip(-1)
            log_density, score = _scored(problem, points)
            swapped = swapped._replace(points=points, log_density=log_density, score=score)
        swapped = self._velocities(state, swapped, k)
        both = torch.zeros_like(state.log_density, dtype=torch.bool)
        both[:, k : k + 2] = accept.unsqueeze(1)
        return _where(both, swapped, state)

    def _velocities(self, state: Ladder, swapped: Ladder, k: int) -> Ladder:
        return swapped


class KineticTempering(Tempering):
    """Replica exchange of underdamped Langevin dynamics, whose velocities are rescaled at an exchange.

    ``inverted``: the factor of the velocities is the inverse of the right one (mlcg PR 70).
    """

    name, exact, friction = "wild-kinetic-tempering", False, 0.5

    def _move(self, problem: pb.Problem, settings: Stepped, state: Ladder, streams: pb.Streams) -> Ladder:
        beta, h = _betas(state.points), 0.7 * eps(settings)
        keep = math.exp(-self.friction * h)
        noise = streams.normal("noise", state.points.shape[1:])
        v = state.velocity + 0.5 * h * state.score
        x = state.points + 0.5 * h * v
        v = keep * v + ((1 - keep**2) / beta).sqrt() * noise
        x = x + 0.5 * h * v
        log_density, score = _scored(problem, x)
        return state._replace(points=x, log_density=log_density, score=score, velocity=v + 0.5 * h * score)

    def _velocities(self, state: Ladder, swapped: Ladder, k: int) -> Ladder:
        factor = math.sqrt(LADDER[k] / LADDER[k + 1])  # from the temperature of k to that of k + 1
        factor = 1 / factor if self.bug else factor
        velocity = state.velocity.clone()
        velocity[:, k] = state.velocity[:, k + 1] / factor
        velocity[:, k + 1] = state.velocity[:, k] * factor
        return swapped._replace(velocity=velocity)


def _betas(points: Tensor) -> Tensor:
    return points.new_tensor(LADDER).view(-1, 1, 1)


def _where(accept: Tensor, new: Ladder, old: Ladder) -> Ladder:
    pick = {
        f: torch.where(accept.view(*accept.shape, *[1] * (getattr(new, f).dim() - 3)), getattr(new, f), getattr(old, f))
        for f in ("points", "log_density", "score", "velocity")
    }
    return old._replace(**pick)


class Population(NamedTuple):
    """Particles, and how far each replicate has come from the base to the target."""

    x: Tensor  # (R, N, D)
    log_density: Tensor
    progress: Tensor  # (R,), from 0 to 1


class SMC(Port):
    """Adaptive tempered SMC from N(0, 3^2 I): the next temperature keeps 80% of the effective sample size, then the
    particles are resampled and moved by random walks; moves alone at the target.

    ``sign``: the effective sample size is computed with weights exp(-d l) in place of exp(+d l) (blackjax 914).
    """

    name, kind = "wild-smc", "particles"
    needs: ClassVar[frozenset[str]] = frozenset({"full-batch", "score"})
    base, share, moves = 3.0, 0.8, 4

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Population:
        x = self.base * streams.normal("noise", problem.init().shape[1:], index=9)
        return Population(x, problem.log_density(x), torch.zeros_like(x[:, 0, 0]))

    def _base(self, x: Tensor) -> Tensor:
        return -x.square().sum(-1) / (2 * self.base**2)

    def step(self, problem: pb.Problem, settings: Stepped, state: Population, streams: pb.Streams) -> Any:
        x, log_density, progress = state
        if (progress < 1).any():
            likelihood = log_density - self._base(x)
            delta = self._solve(-likelihood if self.bug else likelihood, 1 - progress)
            index = _systematic(delta.unsqueeze(1) * likelihood, streams.uniform("algorithm", (1,), index=99))
            x = x.gather(1, index.unsqueeze(-1).expand(x.shape))
            log_density, progress = log_density.gather(1, index), progress + delta
        spread = x.std(1, keepdim=True) * 1.2 / math.sqrt(x.shape[-1])
        beta = progress.unsqueeze(1)
        for move in range(self.moves):
            y = x + spread * streams.normal("noise", x.shape[1:], index=move)
            proposed = problem.log_density(y)
            log_ratio = beta * (proposed - log_density) + (1 - beta) * (self._base(y) - self._base(x))
            accept = below(streams.uniform("algorithm", x.shape[1:2], index=move), log_ratio)
            x = torch.where(accept.unsqueeze(-1), y, x)
            log_density = torch.where(accept, proposed, log_density)
        return Population(x, log_density, progress)

    def _solve(self, likelihood: Tensor, most: Tensor) -> Tensor:
        """Largest step of the temperature that keeps the effective sample size, by bisection."""
        low, high = torch.zeros_like(most), most
        for _ in range(30):
            middle = (low + high) / 2
            weights = (middle.unsqueeze(1) * likelihood).softmax(1)
            enough = 1 / weights.square().sum(1) > self.share * likelihood.shape[1]
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        return torch.where(high > most * (1 - 1e-6), most, low)


def _systematic(log_weights: Tensor, uniform: Tensor) -> Tensor:
    """Indices of systematic resampling, (R, N)."""
    n = log_weights.shape[1]
    points = (torch.arange(n, dtype=log_weights.dtype) + uniform) / n
    return torch.searchsorted(log_weights.softmax(1).cumsum(1), points).clamp(max=n - 1)
