"""Annealed sequential Monte Carlo (SMC) with adaptive temperatures.

Del Moral, Doucet & Jasra (2006), Sequential Monte Carlo samplers, J. R. Stat. Soc. B 68:411-436, Section 3.3.2.3 (the
annealed path with the backward kernel of Eq. 30, so that weights precede moves); temperatures by the effective sample
size: Jasra, Stephens, Doucet & Tsagaris (2011), Scand. J. Stat. 38:1-22. N particles start as draws from the base
(``_tempering``). Then, until b = 1,

    b' such that the weights w_i = exp((b' - b) l(x_i)) have  (sum w)^2 / sum w^2 = a N,  or b' = 1,
    log Z <- log Z + log mean w,   resample,   b <- b',   m moves of MALA that leave pi_b invariant.

Particles are resampled at every temperature, systematically. One step here is one move: every particle costs one score.
Temperatures are each replicate's own. At b = 1 the log Z stands, and what is left of the budget goes into further moves
of MALA at b = 1; where the budget ends before, the particles are those of pi_b (``inverse_temperature`` of the Info
says so), and log Z is that of pi_b.

MALA's eta follows the particles' mean acceptance, per replicate: log eta grows by acceptance - 0.574 after every move,
at b = 1 by (1 + k)^(-0.6) of it after k moves there. A particle without density, or whose density is not a number, has
weight zero; a N then counts the others only.

Departs from the papers: eta is adapted with the particles that it moves, an error of order 1/N; the particles start
at the base, not at the task's initial points. Traps: log Z is relative to a normalised base; and with moves that do not
mix, the mean of Z is still right but log Z is far too low in most runs.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from ._tempering import TARGET_ACCEPTANCE, Points, base_sd, first_step, log_ratio, moved

#: Halvings of the interval of the next temperature.
HALVINGS = 40
DECAY = 0.6


class Settings(AlgorithmSettings):
    """Settings of annealed SMC."""

    ess_share: float = Field(0.9, gt=0, lt=1, description="a, effective share of the particles after a change; ours")
    moves: int = Field(2, ge=1, description="m, moves at a temperature; ours")
    base_sd: float | None = Field(
        None, gt=0, description="s of the base N(0, s^2 I), in x; None: that of a declared prior, else 5; ours"
    )


class State(NamedTuple):
    """Particles, and how far they have come."""

    x: Tensor  # (R, N, D)
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)
    log_eta: Tensor  # (R,)
    b: Tensor  # (R,) inverse temperature
    log_z: Tensor  # (R,) log normalising constant of pi_b
    at_end: Tensor  # (R,) moves at b = 1
    t: int  # moves


class Info(NamedTuple):
    """What a move tells of itself, (R,) each."""

    acceptance: Tensor  # mean probability over the particles
    inverse_temperature: Tensor
    log_normaliser: Tensor  # log Z of pi_b, nats


class SMC(Algorithm[Settings, State]):
    """Annealed sequential Monte Carlo."""

    name = "smc"
    kind = "particles"
    needs = frozenset({"full-batch", "score"})
    settings_type = Settings
    host_bound = True  # whether there is a temperature left is a number of the device
    citation = "Del Moral, Doucet & Jasra (2006)"
    summary = "annealed sequential Monte Carlo, adaptive temperatures, MALA moves"
    example: ClassVar[Example] = Example(quick={"ess_share": 0.5}, first_scores=1, settings={}, steps=150)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Draws from the base."""
        sd, n, d = base_sd(problem, settings.base_sd), problem.particles, problem.dim
        x = sd * streams.normal("init", (n, d))
        zero = x.new_zeros(x.shape[0])
        log_eta = zero + math.log(first_step(sd, d))
        return State(x, *problem.log_density_and_score(x), log_eta, zero, zero, zero, 0)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """A change of temperature where it is due, then one move."""
        sd = base_sd(problem, settings.base_sd)
        if state.t % settings.moves == 0 and bool((state.b < 1).any()):
            state = _annealed(settings, state, sd, streams.uniform("algorithm", (1,), index=1))
        n, d = state.x.shape[1:]
        points, acceptance = moved(
            problem, Points(*state[:3]), state.b.unsqueeze(1), state.log_eta.unsqueeze(1), sd,
            streams.normal("noise", (n, d)), streams.uniform("algorithm", (n,)),
        )  # fmt: skip
        mean = acceptance.mean(1)
        log_eta = state.log_eta + (1 + state.at_end) ** -DECAY * (mean - TARGET_ACCEPTANCE)
        at_end = state.at_end + (state.b == 1)
        state = State(*points, log_eta, state.b, state.log_z, at_end, state.t + 1)
        return state, Info(mean, state.b, state.log_z)


def _annealed(settings: Settings, state: State, sd: float, uniform: Tensor) -> State:
    """The next temperature of every replicate that is not at the last: weights, log Z, resampling."""
    points = Points(*state[:3])
    ratio = log_ratio(points, sd)
    change = next_change(ratio, 1 - state.b, settings.ess_share)
    log_w = weights(ratio, change)
    log_z = state.log_z + log_w.logsumexp(1) - math.log(log_w.shape[1])
    going = (state.b < 1).unsqueeze(1)
    points = points.take(systematic(log_w, uniform)).where(going, points)
    b = torch.where(change >= 1 - state.b, 1.0, state.b + change)
    return state._replace(**points._asdict(), b=b, log_z=torch.where(going.squeeze(1), log_z, state.log_z))


def weights(ratio: Tensor, change: Tensor) -> Tensor:
    """Log weights (b' - b) l, (R, N); minus infinity where l is, for any change."""
    return torch.where(ratio == -math.inf, ratio, change.unsqueeze(1) * ratio)


def next_change(ratio: Tensor, most: Tensor, share: float) -> Tensor:
    """b' - b, by bisection: the effective sample size is the share of the particles with density, or the most."""
    wanted = share * (ratio > -math.inf).sum(1)

    def enough(change: Tensor) -> Tensor:
        log_w = weights(ratio, change)
        return (2 * log_w.logsumexp(1) - (2 * log_w).logsumexp(1)).exp() >= wanted

    low, high = torch.zeros_like(most), most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        mask = enough(middle)
        low, high = torch.where(mask, middle, low), torch.where(mask, high, middle)
    return torch.where(enough(most), most, low)


def systematic(log_w: Tensor, uniform: Tensor) -> Tensor:
    """Indices (R, N) of systematic resampling: one uniform number (R, 1), N points 1/N apart."""
    n = log_w.shape[1]
    cumulative = log_w.double().softmax(1).cumsum(1)
    cumulative = cumulative / cumulative[:, -1:]
    places = (torch.arange(n, device=log_w.device, dtype=torch.float64) + uniform) / n
    return torch.searchsorted(cumulative, places.contiguous(), right=True).clamp_max_(n - 1)
