"""Microcanonical Hamiltonian Monte Carlo with a Metropolis step (adjusted MCLMC, MAMS).

Robnik, Cohn-Gordon & Seljak (2025), Metropolis Adjusted Microcanonical Hamiltonian Monte Carlo, arXiv:2503.01707. From
a fresh direction, uniform on the sphere, n steps of the isokinetic integrator (``_isokinetic``) lead to the proposal,
which is accepted with probability min(1, exp(-W)), W the sum of the energy errors, kinetic energy included. n is
uniform on 1 ... 2 L / eps, drawn again for every trajectory.

One step here is one step of the integrator. All chains of a replicate have trajectories of the same n, so a batch costs
what its chains cost alone; a state holds both the position of the chain, which is what is judged, and that of the
trajectory. As n does not depend on positions, the chains have the target's law at any time, not only at the ends.

The tuning (Section 4 and the authors' program), over the first quarter of the charged budget, per replicate, has five
equal parts: eps by dual averaging (Hoffman & Gelman 2014, arXiv:1111.4246, Eq. 6) towards a mean acceptance of 0.9 with
L = 5 eps; variances of the coordinates, which become the scales (``precondition``), and L = 1.3 sqrt(D), without scales
L = 1.3 sqrt(sum of variances); eps with that L; variances and L again; eps again, of which the average stays.

Departs from the paper: acceptance and variances are pooled over the N chains of a replicate; dual averaging is centred
at the eps it begins with, not at ten times that, which a warm-up of a few trajectories does not forget; n is
pseudo-random where the program takes Halton numbers; the paper's last part, L from the autocorrelation time, is off in
the program and not here; no Langevin noise within trajectories. Traps: the error of the kinetic energy,
(D - 1) log(cosh d + c sinh d), belongs into W (without it almost everything is rejected), and an n that depended on
where the chain is would need a correction.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.nn.masks import where

from ._chains import acceptance, divergent, warmup_steps
from ._isokinetic import SCORES, Integrator, Point, Spread, moved, start, unit

#: Ends of the parts of the warm-up, as shares.
PARTS = (0.2, 0.4, 0.6, 0.8, 1.0)
#: Steps of a trajectory, on average, before L is known.
FIRST_STEPS = 5
MOST_STEPS = 1000
#: Dual averaging: Hoffman & Gelman's gamma, t0 and kappa.
GAMMA, T0, KAPPA = 0.05, 10.0, 0.75


class Settings(AlgorithmSettings):
    """Settings of adjusted MCLMC."""

    target_acceptance: float = Field(0.9, gt=0, lt=1, description="mean acceptance that eps is tuned to; the paper's")
    integrator: Integrator = Field("leapfrog", description="of the isokinetic dynamics; ours (both are in the paper)")
    length_factor: float = Field(1.3, gt=0, description="L in units of the posterior's size; the program's")
    precondition: bool = Field(True, description="scale coordinates by their standard deviations; the program's")
    warmup_steps: int | None = Field(None, ge=0, description="steps of the tuning; None: a quarter of the budget; ours")
    first_length: float | None = Field(None, gt=0, description="first eps, in x; None: sqrt(D) / 5, the program's")


class Averaging(NamedTuple):
    """Dual averaging of log eps, (R,) each."""

    centre: Tensor  # mu
    error: Tensor  # H
    average: Tensor  # of log eps
    trajectories: Tensor  # m

    @classmethod
    def at(cls, eps: Tensor) -> Averaging:
        """Beginning at eps."""
        return cls(eps.log(), torch.zeros_like(eps), eps.log(), torch.zeros_like(eps))


class State(NamedTuple):
    """Chains, their trajectories and their parameters."""

    x: Tensor  # (R, N, D): where the chains are
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)
    moving: Point  # where the trajectories are
    error: Tensor  # (R, N) energy errors since the trajectory began
    left: Tensor  # (R,) steps to its end
    acceptance: Tensor  # (R,) of the last trajectory, mean over the chains
    eps: Tensor  # (R,) in units of the scales
    length: Tensor  # (R,) L, in units of the scales
    scale: Tensor  # (R, D)
    averaging: Averaging
    spread: Spread
    t: int  # steps taken
    warmup: int  # steps of the warm-up


class Info(NamedTuple):
    """Per-step diagnostics, (R,) each."""

    acceptance: Tensor  # of the last complete trajectory, mean over the chains
    divergences: Tensor  # share of the chains with an energy error beyond MAX_ENERGY_ERROR or NaN
    step_length: Tensor  # eps
    trajectory_length: Tensor  # L


class AdjustedMCLMC(Algorithm[Settings, State]):
    """Metropolis-adjusted microcanonical Monte Carlo with its tuning."""

    name = "adjusted-mclmc"
    kind = "chains"
    exact = "adapted"
    may_overflow = frozenset({"moving", "error"})
    needs = frozenset({"full-batch", "score"})
    citation = "Robnik, Cohn-Gordon & Seljak (2025), arXiv:2503.01707"
    example: ClassVar[Example] = Example(quick={"warmup_steps": 5}, first_scores=1, settings={}, steps=300)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points; ``UnsupportedError`` on a line."""
        point = start(problem, self.name, streams.normal("init", (problem.particles, problem.dim)))
        one = point.x.new_ones(point.x.shape[0])
        eps = (settings.first_length or math.sqrt(problem.dim) / 5) * one
        spread = Spread.none(point.x)
        warmup = warmup_steps(problem, horizon, SCORES[settings.integrator], given=settings.warmup_steps)
        length = FIRST_STEPS * eps
        left = _steps(length / eps, streams.uniform("init", ()))
        return State(
            point.x, point.log_density, point.score, point, torch.zeros_like(point.log_density), left, one,
            eps, length, torch.ones_like(spread.total), Averaging.at(eps), spread, 0, warmup,
        )  # fmt: skip

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """One step of every trajectory; where it is the last, accept or reject, and begin another."""
        eps, scale = state.eps.view(-1, 1, 1), state.scale.unsqueeze(1)
        there, more = moved(problem, state.moving, eps, scale, settings.integrator)
        error = state.error + more
        probability = acceptance(-error)
        ends = state.left <= 1
        accept = ends.unsqueeze(1) & (streams.uniform("algorithm", probability.shape[1:]) < probability)
        mean = torch.where(ends, probability.mean(1), state.acceptance)
        here = where(accept, there, Point(state.x, state.moving.direction, state.log_density, state.score))
        info = Info(mean, divergent(-error).mean(1), state.eps, state.length)

        t = state.t + 1
        state = state._replace(x=here.x, log_density=here.log_density, score=here.score, acceptance=mean, t=t)
        again = ends
        if t <= state.warmup:
            state = _tuned(settings, state, ends)
            if t in _ends(state.warmup):  # the integrator is another from here on
                again = torch.ones_like(ends)
        fresh = here._replace(direction=unit(streams.normal("noise", state.x.shape[1:])))
        left = _steps(state.length / state.eps, streams.uniform("algorithm", (), index=1))
        return (
            state._replace(
                moving=where(again, fresh, there),
                error=torch.where(again.unsqueeze(1), 0.0, error),
                left=torch.where(again, left, state.left - 1),
            ),
            info,
        )


def _steps(mean: Tensor, uniform: Tensor) -> Tensor:
    """n, uniform on 1 ... 2 mean, (R,)."""
    return (2 * mean * uniform).ceil().clamp(1, MOST_STEPS)


def _ends(warmup: int) -> list[int]:
    return [round(share * warmup) for share in PARTS]


def _tuned(settings: Settings, state: State, ends: Tensor) -> State:
    """The state after what step ``t`` of the warm-up tells; trajectories ended where ``ends``, (R,), is true."""
    parts = _ends(state.warmup)
    part = sum(state.t > end for end in parts)
    if part % 2 == 0:
        state = _averaged(settings, state, ends, proportional=part == 0)
    else:
        state = state._replace(spread=state.spread.add(state.x))
    if state.t in parts:
        part = parts.index(state.t)
        if part % 2 == 0:  # the average is what stays
            eps = state.averaging.average.exp()
            length = state.length * eps / state.eps if part == 0 else state.length
            state = state._replace(eps=eps, length=length, spread=Spread.none(state.x))
        elif (parts[part] - parts[part - 1]) * state.x.shape[1] >= 2 * state.x.shape[2]:  # else too few for a variance
            state = _with_scales(settings, state)
    return state


def _averaged(settings: Settings, state: State, ends: Tensor, proportional: bool) -> State:
    """Dual averaging where a trajectory ended; L stays, or keeps its ratio to eps."""
    old = state.averaging
    m = old.trajectories + 1
    error = (1 - 1 / (m + T0)) * old.error + (settings.target_acceptance - state.acceptance) / (m + T0)
    log_eps = old.centre - m.sqrt() / GAMMA * error
    if not proportional:
        log_eps = torch.minimum(log_eps, (state.length / 1.1).log())
    weight = m**-KAPPA
    new = Averaging(old.centre, error, weight * log_eps + (1 - weight) * old.average, m)
    eps = torch.where(ends, log_eps.exp(), state.eps)
    length = state.length * eps / state.eps if proportional else state.length
    return state._replace(eps=eps, length=length, averaging=where(ends, new, old))


def _with_scales(settings: Settings, state: State) -> State:
    """Scales and L from the variances; eps keeps its size relative to L, and is averaged again."""
    variance, d = state.spread.variance(), state.x.shape[-1]
    size = variance.sum(-1).sqrt()
    known = (state.scale.square().sum(-1)).sqrt()  # of the scales that eps was computed with
    if settings.precondition:
        eps = state.eps * known / size
        return state._replace(
            scale=variance.sqrt(),
            eps=eps,
            length=torch.full_like(eps, settings.length_factor * math.sqrt(d)),
            averaging=Averaging.at(eps),
        )
    return state._replace(length=settings.length_factor * size, averaging=Averaging.at(state.eps))
