"""Thirty errors planted into samplers from the literature, before the questions of check were read.

A hash of the names puts half of them aside, for a measurement after the questions were extended. Errors with gradients
are in this file, the others in ``planted_moves.py``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

import parvibench as pb

from .common import Known, Port, Stepped, below, choose, eps, half_square, leapfrog, with_bug
from .langevin import Points, Small


class MALA(Port):
    """Metropolis-adjusted Langevin algorithm (Roberts and Tweedie 1996)."""

    name = "planted-mala"
    exact = True
    BUGS = ("halved-return", "stale-score", "wide-return", "shared-noise")

    def step(self, problem: pb.Problem, settings: Stepped, state: Known, streams: pb.Streams) -> Known:
        eta, shape = settings.step_size, state.x.shape
        noise = streams.normal("noise", shape[1:])
        if self.bug == "shared-noise":
            noise = noise[:, :1].expand(shape)
        y = state.x + eta * state.score + math.sqrt(2 * eta) * noise
        new = Known(y, *problem.log_density_and_score(y))
        drift = eta * new.score * (0.5 if self.bug == "halved-return" else 1)
        back = (state.x - y - drift).square().sum(-1) / ((4.4 if self.bug == "wide-return" else 4) * eta)
        log_ratio = new.log_density - state.log_density + half_square(noise) - back
        kept = choose(below(streams.uniform("algorithm", shape[1:2]), log_ratio), new, state)
        return kept._replace(score=new.score) if self.bug == "stale-score" else kept


class Barker(Port):
    """Barker proposal (Livingstone and Zanella 2022): steps keep their sign with probability 1 / (1 + exp(-s z))."""

    name = "planted-barker"
    exact = True
    BUGS = ("no-return", "first-only", "mismatch")

    def step(self, problem: pb.Problem, settings: Stepped, state: Known, streams: pb.Streams) -> Known:
        z = 1.5 * eps(settings) * streams.normal("noise", state.x.shape[1:])
        uniform = streams.uniform("algorithm", state.x.shape[1:])
        z = torch.where(uniform < (state.score * z).sigmoid(), z, -z)
        y = state.x + z
        new = Known(y, *problem.log_density_and_score(y))
        factor = 0.8 if self.bug == "mismatch" else 1.0
        there, back = (factor * state.score * z).neg(), factor * new.score * z
        terms = torch.nn.functional.softplus(there) - torch.nn.functional.softplus(back)
        if self.bug == "no-return":
            terms = torch.nn.functional.softplus(there) - math.log(2)
        correction = terms[..., 0] if self.bug == "first-only" else terms.sum(-1)
        log_ratio = new.log_density - state.log_density + correction
        return choose(below(streams.uniform("algorithm", z.shape[1:2], index=1), log_ratio), new, state)


class Moving(NamedTuple):
    """Chains with momenta."""

    x: Tensor
    log_density: Tensor
    score: Tensor
    p: Tensor


class GHMC(Port):
    """Generalised HMC (Horowitz 1991): momenta are partially refreshed, and turned round at a rejection."""

    name, keep = "planted-ghmc", 0.7
    exact = "invariant"  # a claim that was added afterwards
    BUGS = ("no-flip", "short-refresh", "early-energy")

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Moving:
        known = super().init(problem, settings, streams, horizon)
        return Moving(*known, streams.normal("noise", known.x.shape[1:], index=9))

    def step(self, problem: pb.Problem, settings: Stepped, state: Moving, streams: pb.Streams) -> Moving:
        rest = 1 - self.keep if self.bug == "short-refresh" else math.sqrt(1 - self.keep**2)
        p = self.keep * state.p + rest * streams.normal("noise", state.x.shape[1:])
        end, q = leapfrog(problem, Known(*state[:3]), p, eps(settings), 2)
        kinetic = half_square(state.p if self.bug == "early-energy" else p)
        log_ratio = end.log_density - state.log_density + kinetic - half_square(q)
        accept = below(streams.uniform("algorithm", p.shape[1:2]), log_ratio)
        return choose(accept, Moving(*end, q), state._replace(p=p if self.bug == "no-flip" else -p))


class Omelyan(Port):
    """HMC with the two-stage integrator of Blanes, Casas and Sanz-Serna (2014)."""

    name, exact, a = "planted-two-stage", True, 0.21132
    BUGS = ("old-score", "coarse-energy")

    def step(self, problem: pb.Problem, settings: Stepped, state: Known, streams: pb.Streams) -> Known:
        h, a = 2 * eps(settings), self.a
        p = start = streams.normal("noise", state.x.shape[1:])
        current = state
        for _ in range(3):
            p = p + a * h * current.score
            x = current.x + 0.5 * h * p
            middle = problem.score(x)
            p = p + (1 - 2 * a) * h * middle
            x = x + 0.5 * h * p
            current = Known(x, *problem.log_density_and_score(x))
            p = p + a * h * (middle if self.bug == "old-score" else current.score)
        change = current.log_density - state.log_density
        if self.bug == "coarse-energy":
            change = (change / 0.25).floor() * 0.25
        log_ratio = change + half_square(start) - half_square(p)
        return choose(below(streams.uniform("algorithm", p.shape[1:2]), log_ratio), current, state)


class Pushed(NamedTuple):
    """Points with velocities and the score there."""

    x: Tensor
    v: Tensor
    score: Tensor


class BAOAB(Port):
    """Underdamped Langevin dynamics, BAOAB (Leimkuhler and Matthews 2013)."""

    name, settings_type = "planted-baoab", Small
    BUGS = ("weak-noise", "old-kick")

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Pushed:
        x = problem.init()
        return Pushed(x, streams.normal("noise", x.shape[1:], index=9), problem.score(x))

    def step(self, problem: pb.Problem, settings: Stepped, state: Pushed, streams: pb.Streams) -> Pushed:
        h = eps(settings)
        c = math.exp(-1.5 * h)
        v = state.v + 0.5 * h * state.score
        x = state.x + 0.5 * h * v
        spread = 1 - c if self.bug == "weak-noise" else 1 - c * c
        v = c * v + math.sqrt(spread) * streams.normal("noise", x.shape[1:])
        x = x + 0.5 * h * v
        score = problem.score(x)
        return Pushed(x, v + 0.5 * h * (state.score if self.bug == "old-kick" else score), score)


class SGHMC(Port):
    """Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014) with exact scores."""

    name, settings_type, friction = "planted-sghmc", Small, 0.2
    BUGS = ("no-two",)

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Pushed:
        x = problem.init()
        return Pushed(x, torch.zeros_like(x), torch.zeros_like(x))

    def step(self, problem: pb.Problem, settings: Stepped, state: Pushed, streams: pb.Streams) -> Pushed:
        rate = settings.step_size
        variance = (1 if self.bug else 2) * self.friction * rate
        noise = math.sqrt(variance) * streams.normal("noise", state.x.shape[1:])
        v = (1 - self.friction) * state.v + rate * problem.score(state.x) + noise
        return Pushed(state.x + v, v, state.score)


class Clipped(Port):
    """Unadjusted Langevin algorithm whose score is clipped, at a norm that only far points have or at 1."""

    name, settings_type = "planted-ula", Small
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    BUGS = ("low-clip",)

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Points:
        return Points(problem.init())

    def step(self, problem: pb.Problem, settings: Stepped, state: Points, streams: pb.Streams) -> Points:
        eta, score = settings.step_size, problem.score(state.x)
        most = 1.0 if self.bug else 100.0
        score = score * (most / score.norm(dim=-1, keepdim=True).clamp(min=1e-9)).clamp(max=1)
        return Points(state.x + eta * score + math.sqrt(2 * eta) * streams.normal("noise", state.x.shape[1:]))


def ports() -> list[type[Port]]:
    """All samplers with planted errors."""
    from . import planted_moves as m

    with_gradients = [MALA, Barker, GHMC, Omelyan, BAOAB, SGHMC, Clipped]
    return [*with_gradients, m.RWM, m.PCN, m.Scaling, m.MultipleTry, m.Delayed, m.Evolution, m.Adaptive, m.HitAndRun]


def planted() -> Iterator[tuple[str, str, type[Port]]]:
    """Name, group (``shown`` or ``aside``) and wrong sampler of each error; the half with the greater hashes is aside."""
    samplers = {(s := with_bug(port, bug)).name: s for port in ports() for bug in port.BUGS}  # type: ignore[attr-defined]
    order = sorted(samplers, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    for group, names in (("shown", order[: len(order) // 2]), ("aside", order[len(order) // 2 :])):
        yield from ((name, group, samplers[name]) for name in sorted(names))
