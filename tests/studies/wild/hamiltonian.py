"""Ports of bugs in Hamiltonian Monte Carlo: blackjax 46, hamiltorch 5, flowMC PR 90, walnutpie 27."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import parvibench as pb

from .common import Known, Port, Stepped, below, choose, eps, half_square, leapfrog

STEPS = 5


class HMC(Port):
    """Five leapfrog steps and an accept-reject step.

    ``position``: the energy at the start is U(x) + |x|^2/2, the position in place of the momentum (blackjax 46).
    ``retry``: a rejected proposal is tried again with a fresh momentum, and the repeated point is not recorded
    (hamiltorch 5).
    """

    name = "wild-hmc"
    exact = True

    def step(self, problem: pb.Problem, settings: Stepped, state: Known, streams: pb.Streams) -> Known:
        tries = 8 if self.bug == "retry" else 1
        settled = torch.zeros_like(state.log_density, dtype=torch.bool)
        start = state
        for index in range(tries):
            p = streams.normal("noise", state.x.shape[1:], index=index)
            end, q = leapfrog(problem, start, p, eps(settings), STEPS)
            kinetic = half_square(start.x if self.bug == "position" else p)
            log_ratio = end.log_density - start.log_density + kinetic - half_square(q)
            accept = below(streams.uniform("algorithm", p.shape[1:2], index=index), log_ratio) & ~settled
            state, settled = choose(accept, end, state), settled | accept
        return state


class Energetic(NamedTuple):
    """Chains that also keep the energy at which they ended."""

    x: Tensor
    log_density: Tensor
    score: Tensor
    energy: Tensor  # (R, N)


class KeptEnergy(Port):
    """HMC whose state has the energy; ``stale``: the next step compares with the energy of the step before, whose
    momentum is gone (flowMC PR 90).
    """

    name = "wild-kept-energy"
    exact = True

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Energetic:
        known = super().init(problem, settings, streams, horizon)
        p = streams.normal("noise", known.x.shape[1:], index=7)
        return Energetic(*known, half_square(p) - known.log_density)

    def step(self, problem: pb.Problem, settings: Stepped, state: Energetic, streams: pb.Streams) -> Energetic:
        p = streams.normal("noise", state.x.shape[1:])
        end, q = leapfrog(problem, Known(*state[:3]), p, eps(settings), STEPS)
        energy = state.energy if self.bug == "stale" else half_square(p) - state.log_density
        proposed = Energetic(*end, half_square(q) - end.log_density)
        accept = below(streams.uniform("algorithm", p.shape[1:2]), energy - proposed.energy)
        return choose(accept, proposed, state._replace(energy=energy))


class Adapting(NamedTuple):
    """Chains, and the dual averaging of each replicate's step."""

    x: Tensor
    log_density: Tensor
    score: Tensor
    log_step: Tensor  # (R,)
    mean: Tensor  # (R,), log of the step that stays after the warm-up
    error: Tensor  # (R,)
    count: int


class DualAveraging(Port):
    """HMC whose step follows dual averaging for 150 steps and stays at the averaged one.

    ``last``: the average mixes the newest step with the one before in place of the running average (walnutpie 27).
    """

    name = "wild-dual-averaging"
    exact = "adapted"  # a claim that was added afterwards
    warmup, target, gamma, shift, decay = 150, 0.8, 0.05, 10.0, 0.75

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Adapting:
        known = super().init(problem, settings, streams, horizon)
        log_step = known.x.new_full((known.x.shape[0],), eps(settings)).log()
        return Adapting(*known, log_step, log_step, torch.zeros_like(log_step), 0)

    def step(self, problem: pb.Problem, settings: Stepped, state: Adapting, streams: pb.Streams) -> Any:
        p = streams.normal("noise", state.x.shape[1:])
        step = state.log_step.exp().view(-1, 1, 1)
        end, q = leapfrog(problem, Known(*state[:3]), p, step, STEPS)
        log_ratio = end.log_density - state.log_density + half_square(p) - half_square(q)
        accept = below(streams.uniform("algorithm", p.shape[1:2]), log_ratio)
        known = choose(accept, end, Known(*state[:3]))
        adapted = self._adapt(state, eps(settings), log_ratio.clamp(max=0).exp().nan_to_num(0.0).mean(1))
        return Adapting(*known, *adapted)

    def _adapt(self, state: Adapting, first: float, acceptance: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        count = state.count + 1
        if count > self.warmup:
            return state.mean, state.mean, state.error, count
        share = 1 / (count + self.shift)
        error = (1 - share) * state.error + share * (self.target - acceptance)
        centre = torch.full_like(error, 10 * first).log()
        log_step = centre - count**0.5 / self.gamma * error
        weight = count**-self.decay
        before = state.log_step if self.bug == "last" else state.mean
        return log_step, weight * log_step + (1 - weight) * before, error, count
