"""Planted errors in samplers without gradients."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

import parvibench as pb

from .common import Stepped, below, eps
from .proposals import BASE, Chains, Plain, _moved


class RWM(Plain):
    """Random walk Metropolis."""

    name, exact = "planted-rwm", True
    BUGS = ("drift", "lenient")

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        noise = streams.normal("noise", state.x.shape[1:])
        y = state.x + 1.5 * eps(settings) * (noise + (0.1 if self.bug == "drift" else 0))
        new = Chains(y, problem.log_density(y))
        log_ratio = new.log_density - state.log_density + (0.1 if self.bug == "lenient" else 0)
        return _moved(below(streams.uniform("algorithm", noise.shape[1:2]), log_ratio), new, state)


class PCN(Plain):
    """Preconditioned Crank-Nicolson with the factor N(0, s^2 I) (Cotter, Roberts, Stuart and White 2013)."""

    name, exact, beta = "planted-pcn", True, 0.4
    BUGS = ("whole-density", "linear-keep")

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        keep = 1 - self.beta if self.bug == "linear-keep" else math.sqrt(1 - self.beta**2)
        y = keep * state.x + self.beta * BASE * streams.normal("noise", state.x.shape[1:])
        new = Chains(y, problem.log_density(y))
        log_ratio = new.log_density - state.log_density
        if self.bug != "whole-density":
            log_ratio = log_ratio + (y.square() - state.x.square()).sum(-1) / (2 * BASE**2)
        return _moved(below(streams.uniform("algorithm", y.shape[1:2]), log_ratio), new, state)


class Scaling(Plain):
    """Random walks, and moves x exp(s z) of the whole vector with their Jacobian exp(D s z)."""

    name, exact = "planted-scaling", True
    BUGS = ("no-jacobian", "one-dimension")

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        noise, dim = streams.normal("noise", state.x.shape[1:]), state.x.shape[-1]
        uniform = streams.uniform("algorithm", (2, state.x.shape[1]))
        scales = uniform[:, 0] < 0.5
        log_scale = 0.5 * noise[..., 0]
        walked = state.x + 1.2 * eps(settings) * noise
        y = torch.where(scales.unsqueeze(-1), state.x * log_scale.exp().unsqueeze(-1), walked)
        new = Chains(y, problem.log_density(y))
        power = {"no-jacobian": 0, "one-dimension": 1}.get(self.bug, dim)
        log_ratio = new.log_density - state.log_density + torch.where(scales, power * log_scale, 0.0)
        return _moved(below(uniform[:, 1], log_ratio), new, state)


class MultipleTry(Plain):
    """Multiple-try Metropolis with weights pi (Liu, Liang and Wong 2000): four tries, and three around the chosen one."""

    name, exact, tries = "planted-multiple-try", True, 4
    BUGS = ("without-start", "around-start")

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        (r, n, d), k, scale = state.x.shape, self.tries, 2 * eps(settings)
        noise = streams.normal("noise", (2, k, n, d))
        uniform = streams.uniform("algorithm", (2, n))
        y = state.x.unsqueeze(1) + scale * noise[:, 0]
        weights = problem.log_density(y.reshape(r, k * n, d)).view(r, k, n)
        shares = weights.softmax(1).cumsum(1)
        index = (shares < uniform[:, :1]).sum(1, keepdim=True).clamp(max=k - 1)
        chosen = Chains(y.gather(1, index.unsqueeze(-1).expand(-1, -1, -1, d))[:, 0], weights.gather(1, index)[:, 0])
        centre = state.x if self.bug == "around-start" else chosen.x
        z = centre.unsqueeze(1) + scale * noise[:, 1]
        others = problem.log_density(z.reshape(r, k * n, d)).view(r, k, n)
        if self.bug != "without-start":
            others = torch.cat([others[:, 1:], state.log_density.unsqueeze(1)], 1)
        return _moved(below(uniform[:, 1], weights.logsumexp(1) - others.logsumexp(1)), chosen, state)


class Delayed(Plain):
    """Delayed rejection with a second, shorter random walk (Tierney and Mira 1999)."""

    name, exact = "planted-delayed", True
    BUGS = ("no-rejection-ratio", "no-proposal-ratio")

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        noise = streams.normal("noise", (2, *state.x.shape[1:]))
        uniform = streams.uniform("algorithm", (2, state.x.shape[1]))
        wide = 4 * eps(settings)
        y = state.x + wide * noise[:, 0]
        first = Chains(y, problem.log_density(y))
        z = state.x + 0.2 * wide * noise[:, 1]
        second = Chains(z, problem.log_density(z))
        taken = below(uniform[:, 0], first.log_density - state.log_density)
        log_ratio = second.log_density - state.log_density
        if self.bug != "no-proposal-ratio":
            log_ratio = log_ratio + ((y - state.x).square() - (y - z).square()).sum(-1) / (2 * wide**2)
        if self.bug != "no-rejection-ratio":
            reject = lambda a: torch.log1p(-(first.log_density - a.log_density).clamp(max=0).exp())  # noqa: E731
            log_ratio = log_ratio + reject(second) - reject(state)
        return _moved(taken, first, _moved(below(uniform[:, 1], log_ratio), second, state))


class Evolution(Plain):
    """Differential evolution (ter Braak 2006) of two halves, along differences of walkers of the other half."""

    name, kind = "planted-evolution", "particles"
    BUGS = ("uphill",)

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        n, dim = state.x.shape[1:]
        half = n // 2
        parts = [Chains(state.x[:, part], state.log_density[:, part]) for part in (slice(half), slice(half, n))]
        for i in range(2):
            old, other = parts[i], parts[1 - i]
            uniform = streams.uniform("algorithm", (3, old.x.shape[1]), index=i)
            index = (uniform[:, :2] * other.x.shape[1]).long().clamp(max=other.x.shape[1] - 1)
            a, b = (other.x.gather(1, index[:, j].unsqueeze(-1).expand(-1, -1, dim)) for j in range(2))
            difference = a - b
            if self.bug:
                gain = other.log_density.gather(1, index[:, 0]) - other.log_density.gather(1, index[:, 1])
                difference = difference * gain.sign().unsqueeze(-1)
            noise = 0.05 * streams.normal("noise", old.x.shape[1:], index=i)
            y = old.x + 1.7 / math.sqrt(2 * dim) * difference + noise
            new = Chains(y, problem.log_density(y))
            parts[i] = _moved(below(uniform[:, 2], new.log_density - old.log_density), new, old)
        return Chains(*(torch.cat(t, 1) for t in zip(*parts, strict=True)))


class Learning(NamedTuple):
    """Chains with the running moments of each."""

    x: Tensor
    log_density: Tensor
    mean: Tensor
    variance: Tensor
    count: int


class Adaptive(Plain):
    """Adaptive Metropolis (Haario, Saksman and Tamminen 2001), diagonal; moments with weights 1/t."""

    name = "planted-adaptive"
    BUGS = ("short-memory",)

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Learning:
        start = super().init(problem, settings, streams, horizon)
        return Learning(*start, start.x, torch.ones_like(start.x), 1)

    def step(self, problem: pb.Problem, settings: Stepped, state: Learning, streams: pb.Streams) -> Learning:
        noise = streams.normal("noise", state.x.shape[1:])
        scale = 2.38 / math.sqrt(state.x.shape[-1])
        y = state.x + scale * (state.variance + 0.01).sqrt() * noise
        new = Chains(y, problem.log_density(y))
        accept = below(streams.uniform("algorithm", noise.shape[1:2]), new.log_density - state.log_density)
        kept = _moved(accept, new, Chains(state.x, state.log_density))
        weight = 0.3 if self.bug else 1 / (state.count + 5)
        off = kept.x - state.mean
        variance = (1 - weight) * (state.variance + weight * off.square())
        return Learning(*kept, state.mean + weight * off, variance, state.count + 1)


class HitAndRun(Plain):
    """Slice sampling along a random direction, in an interval of fixed width that shrinks (Neal 2003)."""

    name, exact, width, tries = "planted-hit-and-run", True, 2.0, 25
    BUGS = ("flat-level", "long-interval")

    def step(self, problem: pb.Problem, settings: Stepped, state: Chains, streams: pb.Streams) -> Chains:
        direction = streams.normal("noise", state.x.shape[1:])
        direction = direction / direction.norm(dim=-1, keepdim=True)
        uniform = streams.uniform("algorithm", (self.tries + 2, state.x.shape[1]))
        level = state.log_density + (-uniform[:, 0] if self.bug == "flat-level" else uniform[:, 0].log())
        low = -self.width * uniform[:, 1]
        high = low + self.width * (1.3 if self.bug == "long-interval" else 1)
        done, start = torch.zeros_like(level, dtype=torch.bool), state.x
        for u in uniform[:, 2:].unbind(1):
            value = low + (high - low) * u
            y = start + value.unsqueeze(-1) * direction
            new = Chains(y, problem.log_density(y))
            hit = (new.log_density > level) & ~done
            state, done = _moved(hit, new, state), done | hit
            if done.all():
                break
            low, high = torch.where(value < 0, value, low), torch.where(value < 0, high, value)
        return state
