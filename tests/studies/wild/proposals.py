"""Ports of bugs in moves without gradients: JuliaBUGS 531, pints 1325, pymc PR 5816, GaussianProcesses.jl PR 180."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

import parvibench as pb

from .common import Port, Stepped, below

#: Standard deviation of the base: the law of independent proposals, and the Gaussian factor of elliptical slices.
BASE = 2.0


class Chains(NamedTuple):
    """Positions and log densities."""

    x: Tensor  # (R, N, D)
    log_density: Tensor  # (R, N)


class Plain(Port):
    """A port that needs log densities alone."""

    needs: ClassVar[frozenset[str]] = frozenset({"full-batch", "score"})

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Chains:
        x = problem.init()
        return Chains(x, problem.log_density(x))


def _moved(accept: Tensor, new: Chains, old: Chains) -> Chains:
    return Chains(
        torch.where(accept.unsqueeze(-1), new.x, old.x), torch.where(accept, new.log_density, old.log_density)
    )


class Independent(Plain):
    """Independent proposals N(0, s^2) for one coordinate after the other, there and back.

    ``uncorrected``: the ratio of the proposal's densities is missing (JuliaBUGS 531).
    """

    name = "wild-independent"
    exact = True

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        dim = state.x.shape[-1]
        noise = streams.normal("noise", (2, *state.x.shape[1:]))
        uniform = streams.uniform("algorithm", (2, *state.x.shape[1:]))
        for way, order in enumerate((range(dim), range(dim - 1, -1, -1))):
            for k in order:
                y = state.x.clone()
                y[..., k] = BASE * noise[:, way, :, k]
                proposed = Chains(y, problem.log_density(y))
                log_ratio = proposed.log_density - state.log_density
                if not self.bug:
                    log_ratio = log_ratio + (y[..., k].square() - state.x[..., k].square()) / (2 * BASE**2)
                state = _moved(below(uniform[:, way, :, k], log_ratio), proposed, state)
        return state


class Slice(Plain):
    """Slice sampling of one coordinate after the other, there and back: an interval of width w that steps out, shrinks.

    ``lopsided``: the interval begins as (x - u w, x + w) in place of (x - u w, x + (1 - u) w) (pymc PR 5816).
    """

    name = "wild-slice"
    exact = True
    width, outs, shrinks = 1.5, 8, 25

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        dim = state.x.shape[-1]
        for way, order in enumerate((range(dim), range(dim - 1, -1, -1))):
            uniform = streams.uniform("algorithm", (self.shrinks + 2, *state.x.shape[1:]), index=way)
            for k in order:
                state = self._coordinate(problem, state, k, uniform[..., k])
        return state

    def _coordinate(self, problem: pb.Problem, state: Chains, k: int, uniform: Tensor) -> Chains:
        level = state.log_density + uniform[:, 0].log()
        x = state.x[..., k]
        low = x - self.width * uniform[:, 1]
        high = x + self.width * (1.0 if self.bug else 1 - uniform[:, 1])
        low = self._out(problem, state.x, k, low, -self.width, level)
        high = self._out(problem, state.x, k, high, self.width, level)
        done = torch.zeros_like(level, dtype=torch.bool)
        for u in uniform[:, 2:].unbind(1):
            value = low + (high - low) * u
            y = _with(state.x, k, value)
            log_density = problem.log_density(y)
            hit = (log_density > level) & ~done
            state = _moved(hit, Chains(y, log_density), state)
            done = done | hit
            if done.all():
                break
            low, high = torch.where(value < x, value, low), torch.where(value < x, high, value)
        return state

    def _out(self, problem: pb.Problem, x: Tensor, k: int, end: Tensor, width: float, level: Tensor) -> Tensor:
        outside = torch.zeros_like(level, dtype=torch.bool)
        for _ in range(self.outs):
            outside = outside | ~(problem.log_density(_with(x, k, end)) > level)
            if outside.all():
                break
            end = torch.where(outside, end, end + width)
        return end


def _with(x: Tensor, k: int, value: Tensor) -> Tensor:
    """The points with another coordinate k."""
    y = x.clone()
    y[..., k] = value
    return y


class Elliptical(Plain):
    """Elliptical slice sampling with the factor N(0, s^2 I); the likelihood is the density without it.

    ``joint``: slices are cut from the density with the factor in it, which then counts twice (GaussianProcesses 180).
    """

    name = "wild-elliptical"
    exact = True

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Chains:
        x = problem.init()
        return Chains(x, self._likelihood(problem, x))

    def _likelihood(self, problem: pb.Problem, x: Tensor) -> Tensor:
        log_density = problem.log_density(x)
        return log_density if self.bug else log_density + x.square().sum(-1) / (2 * BASE**2)

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        other = BASE * streams.normal("noise", state.x.shape[1:])
        uniform = streams.uniform("algorithm", (40, state.x.shape[1]))
        level = state.log_density + uniform[:, 0].log()
        angle = 2 * math.pi * uniform[:, 1]
        low, high = angle - 2 * math.pi, angle
        done, start = torch.zeros_like(level, dtype=torch.bool), state.x
        for u in uniform[:, 2:].unbind(1):
            y = start * angle.cos().unsqueeze(-1) + other * angle.sin().unsqueeze(-1)
            likelihood = self._likelihood(problem, y)
            hit = (likelihood > level) & ~done
            state, done = _moved(hit, Chains(y, likelihood), state), done | hit
            if done.all():
                break
            low, high = torch.where(angle < 0, angle, low), torch.where(angle < 0, high, angle)
            angle = low + (high - low) * u
        return state


class Stretch(Plain):
    """Affine-invariant stretch moves of two halves of the walkers (Goodman and Weare 2010).

    ``walkers``: the power of z in the acceptance ratio is the number of walkers less one, not of dimensions (pints
    1325).
    """

    name, kind = "wild-stretch", "particles"

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        n, dim = state.x.shape[1:]
        half = n // 2
        for turn, (moving, fixed) in enumerate(((slice(0, half), slice(half, n)), (slice(half, n), slice(0, half)))):
            old = Chains(state.x[:, moving], state.log_density[:, moving])
            uniform = streams.uniform("algorithm", (3, old.x.shape[1]), index=turn)
            partners = state.x[:, fixed]
            index = (uniform[:, 0] * partners.shape[1]).long().clamp(max=partners.shape[1] - 1)
            partner = partners.gather(1, index.unsqueeze(-1).expand(-1, -1, dim))
            z = (1 + uniform[:, 1]).square() / 2  # law proportional to z^(-1/2) on [1/2, 2]
            y = partner + z.unsqueeze(-1) * (old.x - partner)
            proposed = Chains(y, problem.log_density(y))
            power = (n if self.bug else dim) - 1
            log_ratio = power * z.log() + proposed.log_density - old.log_density
            new = _moved(below(uniform[:, 2], log_ratio), proposed, old)
            state = Chains(*(_put(t, moving, v) for t, v in zip(state, new, strict=True)))
        return state


def _put(whole: Tensor, where: slice, value: Tensor) -> Tensor:
    copy = whole.clone()
    copy[:, where] = value
    return copy
