"""Annealed sequential Monte Carlo (SMC) with adaptive temperatures.

Del Moral, Doucet & Jasra (2006), Sequential Monte Carlo samplers, J. R. Stat. Soc. B 68:411-436, Section 3.3.2.3 (the
annealed path with the backward kernel of Eq. 30, so that weights precede moves). N particles start as draws from the
base (``_tempering``), with equal weights W. Then, until b = 1,

    w_i = exp((b' - b) l(x_i)),   log Z <- log Z + log sum_i W_i w_i,   W_i <- W_i w_i / sum_j W_j w_j,   b <- b';
    where 1 / sum W^2 < N / 2, and at b = 1, systematic resampling and equal weights;   m moves of MALA for pi_b.

b' is the largest, by bisection, whose conditional effective sample size N (sum W w)^2 / sum W w^2 is at least a N
(Zhou, Johansen & Aston 2016, J. Comput. Graph. Stat. 25:701-726, Section 3.3), or b^(1 - 1/r) where that is less: the
geometric ladder to 1 in the r changes left until ``annealing`` of the budget is spent.

One step is one move: every particle costs one score. Temperatures are each replicate's own. At b = 1 log Z is final,
and further moves of MALA spend the rest of the budget. Where it ends before, samples and log Z are those of pi_b.

MALA's eta follows the particles' mean acceptance, per replicate: log eta grows by acceptance - 0.574 after every move,
at b = 1 by (1 + k)^(-0.6) of it after k moves there. A particle whose density is zero or not a number has weight zero.

The variance of log Z is the larger of two: sum (N sum W^2 - 1) / N over the resamplings, W the weights before each, as
if moves made particles independent; and sum_j s_j^2 - 1 / N, s_j the weight of all descendants of draw j from the base,
as if moves left them where they are (after Lee & Whiteley 2018, Biometrika 105:609-625). 1 / sum s_j^2 is the effective
number of ancestors. With fewer than eight both are too small: what lost lineages would have added is in neither. Then Z
has relative variance

    v = (prod N sum W^2 - 1) / N + sum_j s_j^2 - 1 / N,   over the resamplings,

and, were Z log-normal, log Z variance g = log(1 + v) about a mean g / 2 too low; the stated error is twice the root of
g + g^2 / 4. ``log_z_doubt`` is 1 where g exceeds 3, or the mean log density at b = 1 has risen since the arrival there
by 0.8 standard deviations of the particles: moves had not followed the temperatures. Limits were chosen on twelve
targets.

Departs from the papers: the pace; eta is adapted with the particles that it moves, an error of order 1/N; particles
start at the base, fitted by a warm-up of MALA from the task's initial points. Traps: log Z is relative to a normalised
base; and with moves that do not mix, the mean of Z is right but log Z is far too low in most runs.
"""

import math
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.nn.masks import where

from ._chains import Points
from ._tempering import TARGET_ACCEPTANCE, Base, first_step, fitted_base, known_base, moved, scattered

#: Halvings of the interval of the next temperature.
HALVINGS = 40
DECAY = 0.6
#: Effective ancestors below which weights count as multiplied up; largest g and rise of the log density without doubt then.
FEWEST, LARGEST, RISE = 8, 3.0, 0.8
#: Ends of the rounds of the warm-up, as shares of it.
ROUNDS = (1 / 4, 1 / 2, 1.0)


class Settings(AlgorithmSettings):
    """Settings of annealed SMC."""

    ess_share: float = Field(0.9, gt=0, lt=1, description="a, least effective share after a change of b; ours")
    moves: int = Field(1, ge=1, description="m, moves at a temperature; ours")
    annealing: float = Field(0.8, ge=0, le=1, description="share of the budget for temperatures; 0: by a alone; ours")
    base_sd: float | None = Field(None, gt=0, description="s of the base, in x; None: the prior's, else fitted; ours")
    warmup: float = Field(0.2, ge=0, le=0.5, description="share of the budget in which a base is fitted; ours")


class State(NamedTuple):
    """Particles, and how far they have come."""

    x: Tensor  # (R, N, D)
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)
    base: Base
    log_w: Tensor  # (R, N) log W, normalised
    log_eta: Tensor  # (R,)
    b: Tensor  # (R,) inverse temperature
    log_z: Tensor  # (R,) log normalising constant of pi_b
    variance: Tensor  # (R,) of log Z, but for the weights since the last resampling
    growth: Tensor  # (R,) log of the product of N sum W^2 over the resamplings
    arrival: Tensor  # (R,) mean log density on arrival at b = 1
    ancestor: Tensor  # (R, N) which draw from the base a particle descends from
    at_end: Tensor  # (R,) moves at b = 1
    t: int  # moves
    begin: int  # moves of the warm-up
    end: int  # moves after which b = 1 is wanted


class Info(NamedTuple):
    """Per-step diagnostics, (R,) each."""

    acceptance: Tensor  # mean probability over the particles
    inverse_temperature: Tensor
    log_z: Tensor  # nats; not a number before b = 1
    log_z_se: Tensor  # its standard error
    ancestors: Tensor  # effective number of draws from the base whose descendants are left
    log_z_doubt: Tensor  # 1 where they are few and no error can be stated, else 0


class SMC(Algorithm[Settings, State]):
    """Annealed sequential Monte Carlo, adaptive temperatures, MALA moves."""

    name = "smc"
    version = 3
    kind = "particles"
    needs = frozenset({"full-batch", "score"})
    may_overflow = frozenset({"log_density", "score", "log_w"})
    host_bound = 2  # whether there is a temperature left, and whether the step to it is short enough
    citation = "Del Moral, Doucet & Jasra (2006)"
    example: ClassVar[Example] = Example(quick={"ess_share": 0.5}, first_scores=1, settings={}, steps=150)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Draws from the base, or the points of the warm-up that fits it."""
        n, d, limit = problem.particles, problem.dim, problem.meter.limit
        noise, known = streams.normal("init", (n, d)), known_base(problem, settings.base_sd)
        x = scattered(problem.init(), noise) if known is None else known.mean + known.sd * noise
        moves = horizon if limit is None else limit / n - 1
        points = Points.at(x, problem)
        zero = x.new_zeros(len(x))
        begin = int(settings.warmup * moves) if known is None else 0
        state = State(
            *points, known or fitted_base(points), torch.full_like(points.log_density, -math.log(n)), zero, zero + (begin > 0),
            zero, zero, zero, zero,
            torch.arange(n, device=x.device, dtype=x.dtype).expand(len(x), -1).contiguous(), zero, 0, begin, int(settings.annealing * moves),
        )  # fmt: skip
        return state._replace(log_eta=zero + math.log(first_step(d)))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """A change of temperature where it is due, then one move; at the end of the warm-up draws from the base."""
        n, d = state.x.shape[1:]
        t, noise = state.t - state.begin, streams.normal("noise", (n, d))
        if t == 0:
            state = state._replace(b=torch.zeros_like(state.b), at_end=torch.zeros_like(state.at_end))
        if t >= 0 and t % settings.moves == 0 and bool((state.b < 1).any()) and (t > 0 or state.begin == 0):
            state = _annealed(settings, state, streams.uniform("algorithm", (1,), index=1))
        drawn = n if t == 0 and state.begin > 0 else 0
        points, acceptance = moved(
            problem, Points(*state[:3]), state.b.unsqueeze(1), state.log_eta.unsqueeze(1), state.base,
            noise, streams.uniform("algorithm", (n,)), drawn,
        )  # fmt: skip
        mean = acceptance.mean(1)
        gain = (1 + state.at_end) ** -DECAY if t >= 0 else 2 * (1 + state.t) ** -0.5
        log_eta = state.log_eta if drawn else state.log_eta + gain * (mean - TARGET_ACCEPTANCE)
        at_end = state.at_end + (state.b == 1)
        arrival = torch.where(at_end <= 1, points.log_density.mean(1), state.arrival)
        state = state._replace(**points._asdict(), log_eta=log_eta, at_end=at_end, arrival=arrival, t=state.t + 1)
        if state.t in [round(share * state.begin) for share in ROUNDS] and state.t <= state.begin:
            state = state._replace(base=fitted_base(points))
        done = torch.where(state.b < 1, math.nan, state.log_z) if t >= 0 else torch.full_like(mean, math.nan)
        shares = torch.zeros_like(state.log_w).scatter_add_(1, state.ancestor.long(), state.log_w.exp()).square().sum(1)
        error, doubt = _error(state, shares)
        return state, Info(mean, state.b, done, error, 1 / shares, doubt)

    def output(self, problem: Problem, settings: Settings, state: State, n: int, streams: Streams) -> Tensor:
        """The particles, resampled to equal weights, (R, n, D); at b = 1 their weights are equal."""
        uniform = streams.uniform("output", (1,))
        return Points(*state[:3]).take(systematic(state.log_w, uniform, n)).x


def _error(state: State, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Standard error of log Z and its doubt, (R,) each, of the sum of the squared weights of all draws' descendants."""
    n, few = state.x.shape[1], FEWEST * shares > 1
    g = (state.growth.expm1() / n + shares - 1 / n).log1p()
    rise = (state.log_density.mean(1) - state.arrival) / state.log_density.std(1, correction=0)
    doubt = few & ((g > LARGEST) | (rise > RISE))
    variance = torch.maximum(state.variance, shares - 1 / n)
    variance = torch.where(few & ~doubt, torch.maximum(variance, g * (4 + g)), variance)
    return variance.sqrt(), doubt.to(shares)


def _annealed(settings: Settings, state: State, uniform: Tensor) -> State:
    """The next temperature of every replicate that is not at the last: weights, log Z, resampling where it is due."""
    points, n = Points(*state[:3]), state.x.shape[1]
    ratio, most = state.base.ratio(points), 1 - state.b
    ratio = torch.where(ratio.isnan(), -math.inf, ratio)  # no mass
    changes_left = max(1, (state.end - state.t) // settings.moves)
    pace = torch.where(state.b > 0, state.b ** (1 - 1 / changes_left) - state.b, most)
    pace = torch.minimum(pace, most) if changes_left > 1 else most
    change = next_change(ratio, state.log_w, pace, settings.ess_share)
    b = torch.where(change >= most, 1.0, state.b + change)

    log_w = state.log_w + weights(ratio, change)
    total = log_w.logsumexp(1)
    log_w = log_w - total.unsqueeze(1)
    spread = (n * (2 * log_w).logsumexp(1).exp() - 1).clamp_min(0)
    due = ((b == 1) | ((2 * log_w).logsumexp(1) > math.log(2 / n))).unsqueeze(1)
    index = systematic(log_w, uniform, n)
    annealed = state._replace(
        **where(due, points.take(index), points)._asdict(),
        ancestor=torch.where(due, state.ancestor.gather(1, index), state.ancestor),
        log_w=torch.where(due, -math.log(n), log_w),
        b=b,
        log_z=state.log_z + total,
        variance=state.variance + torch.where(due.squeeze(1), spread / n, 0.0),
        growth=state.growth + torch.where(due.squeeze(1), spread.log1p(), 0.0),
    )
    return where(state.b < 1, annealed, state)


def weights(ratio: Tensor, change: Tensor) -> Tensor:
    """Log weights (b' - b) l, (R, N); minus infinity where l is, for any change."""
    return torch.where(ratio == -math.inf, ratio, change.unsqueeze(1) * ratio)


def next_change(ratio: Tensor, log_w: Tensor, most: Tensor, share: float) -> Tensor:
    """The largest b' - b up to ``most``, (R,), that leaves the share effective, of the weight of points with density."""
    wanted = torch.where(ratio > -math.inf, log_w, -math.inf).logsumexp(1) + math.log(share)

    def enough(change: Tensor) -> Tensor:
        log = weights(ratio, change)
        return 2 * (log_w + log).logsumexp(1) - (log_w + 2 * log).logsumexp(1) >= wanted

    if bool(enough(most).all()):
        return most
    low, high = torch.zeros_like(most), most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        mask = enough(middle)
        low, high = torch.where(mask, middle, low), torch.where(mask, high, middle)
    return torch.where(enough(most), most, low)


def systematic(log_w: Tensor, uniform: Tensor, n: int) -> Tensor:
    """Indices (R, n) of systematic resampling: one uniform number (R, 1), n points 1/n apart."""
    cumulative = log_w.double().softmax(1).cumsum(1)
    cumulative = cumulative / cumulative[:, -1:]
    places = (torch.arange(n, device=log_w.device, dtype=torch.float64) + uniform) / n
    return torch.searchsorted(cumulative, places.contiguous(), right=True).clamp_max_(log_w.shape[1] - 1)
