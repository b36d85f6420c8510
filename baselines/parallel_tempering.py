"""Non-reversible parallel tempering with MALA moves.

Syed, Bouchard-Cote, Deligiannidis & Doucet (2022), Non-reversible parallel tempering, J. R. Stat. Soc. B 84:321-350,
arXiv:1905.02939, Algorithms 1 to 4. Each chain has T companions at inverse temperatures 0 = b_0 < ... < b_{T-1} = 1
along the path of ``_tempering``. A step is

1. a move of each at its temperature: MALA, and at b = 0 a fresh draw from the base;
2. swaps of neighbours k, k + 1, of even k in even steps and of odd k in odd ones (deterministic even-odd), each
   with probability min(1, exp((b_{k+1} - b_k) (l(x_k) - l(x_{k+1})))).

In a quarter of the charged budget the ladder is tuned in rounds that double in length: with the rejection rates r_k of
the pairs, means over the round and the chains, the communication barrier is Lambda(b_k) = r_0 + ... + r_{k-1},
linear in between, and the new b_k divide it equally. MALA's eta at every temperature follows its mean acceptance over
the chains, log eta growing by 2 t^(-1/2) (acceptance - 0.574). Ladders and etas are each replicate's own.

Stepping stones (Xie, Lewis, Fan, Kuo & Chen 2011, Syst. Biol. 60:150-160): after twice the warm-up, over steps and ladders,

    log Z = u_0 + sum_k (u_k - d_k) / 2,   u_k = log mean exp((b_{k+1} - b_k) l(x_k)),   d_k = log mean exp((b_k - b_{k+1}) l(x_{k+1})),

with u_0 alone for k = 0, whose points are exact draws. Ladders are independent, which gives the standard error. What tells of
a ladder that has not reached its laws: ``log_z_gap``, sum_k u_k + d_k, and ``round_trips``, the arrivals at b = 1 of points that
come from b = 0, of each ladder. log Z is in doubt (``log_z_doubt``) with less than one of these, a gap above 1 or fewer than 50 steps.

A step of a chain costs T scores: all temperatures are charged. What is judged are the positions at b = 1, of N chains
with ladders of their own. At b = 1 a chain starts at the task's initial point, at all other temperatures at a draw
from the base; where that is fitted, all move at b = 1 in the first half of the warm-up. A good T is about twice Lambda(1), which is reported as ``barrier`` (Syed et al., Section 5.3).

Departs from the paper: N ladders at a time; the first ladder is geometric; linear interpolation in place of splines. A
swap against an energy that is not a number is refused. Traps: swaps compare l, not log pi, where the base is proper;
and choosing even or odd swaps at random makes round trips quadratic in T.
"""

import math
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams

from ._chains import Points, warmup_steps
from ._tempering import TARGET_ACCEPTANCE, Base, first_step, fitted_base, known_base, moved, scattered

#: Ends of the rounds, as shares of the warm-up.
ROUNDS = (1 / 8, 1 / 4, 1 / 2, 1.0)
#: Least rejection rate of a pair, so that every b is between its neighbours.
LEAST_RATE = 1e-3
#: nats between log Z up and down the ladder, and steps recorded: beyond and below, log Z and its error are in doubt.
WIDEST_GAP, FEWEST_STEPS = 1.0, 50
#: In place of the logarithm of zero, which a state must not contain.
_NOTHING = -1e30


class Settings(AlgorithmSettings):
    """Settings of parallel tempering."""

    temperatures: int = Field(6, ge=2, description="T, the base and the target included; ours")
    hottest: float = Field(0.01, gt=0, lt=1, description="b_1 of the first, geometric ladder; ours")
    base_sd: float | None = Field(None, gt=0, description="s of the base, in x; None: the prior's, else fitted; ours")
    warmup_steps: int | None = Field(None, ge=0, description="steps of the tuning; None: a quarter of the budget; ours")


class State(NamedTuple):
    """Chains with their companions: rows of ``others`` are b_0's N points, then b_1's, and so on."""

    x: Tensor  # (R, N, D), at b = 1
    others: Tensor  # (R, (T - 1) N, D)
    log_density: Tensor  # (R, T N), of the target at all of them, x last
    score: Tensor  # (R, T N, D)
    base: Base
    b: Tensor  # (R, T)
    log_eta: Tensor  # (R, T)
    rejections: Tensor  # (R, T - 1) sum of the pairs' rejection rates in this round
    tries: Tensor  # (R, T - 1) their number
    stones: Tensor  # (R, 2 T - 2, N) logs of the sums over the steps of exp((b' - b) l), then of exp((b - b') l)
    fresh: Tensor  # (R, T, N) 1 where a point has been at b = 0 since it, or what it descends from, was at b = 1
    trips: Tensor  # (R,) arrivals at b = 1 of points from b = 0 after the warm-up, per ladder
    t: int  # steps
    fitting: int  # steps of the warm-up at b = 1, in which the base is fitted
    warmup: int  # steps of the warm-up


class Info(NamedTuple):
    """Per-step diagnostics, (R,) each."""

    acceptance: Tensor  # of MALA at b = 1, mean over the chains
    swaps: Tensor  # acceptance of swaps, mean over the pairs tried and the chains
    barrier: Tensor  # Lambda(1), by this round's rejection rates
    log_z: Tensor  # not a number during the warm-up
    log_z_se: Tensor  # its standard error; not a number with one ladder
    log_z_gap: Tensor  # log Z by the steps down the ladder less that by the steps up
    round_trips: Tensor  # arrivals at b = 1 of points that have come from b = 0, per ladder, after the warm-up
    log_z_doubt: Tensor  # 1 where these say that the ladder has not reached its laws, else 0


class ParallelTempering(Algorithm[Settings, State]):
    """Non-reversible parallel tempering with MALA moves, adapted ladder."""

    name = "parallel-tempering"
    version = 2
    kind = "chains"
    exact = "adapted"
    needs = frozenset({"full-batch", "score"})
    citation = "Syed, Bouchard-Cote, Deligiannidis & Doucet (2022), arXiv:1905.02939"
    example: ClassVar[Example] = Example(
        quick={"temperatures": 3, "warmup_steps": 4}, scores=3, first_scores=3, settings={"temperatures": 4}, steps=200
    )

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """The task's initial points at b = 1, draws from the base elsewhere."""
        count, n, d = settings.temperatures, problem.particles, problem.dim
        x, known = problem.init(), known_base(problem, settings.base_sd)
        noise = streams.normal("init", ((count - 1) * n, d))
        others = scattered(x.repeat(1, count - 1, 1), noise) if known is None else known.mean + known.sd * noise
        points = Points.at(torch.cat((others, x), 1), problem)
        warmup = warmup_steps(problem, horizon, count, given=settings.warmup_steps)
        fitting = warmup // 2 if known is None else 0
        b = x.new_ones(len(x), count) if fitting else _geometric(settings, x)
        # A Gaussian of precision b / s^2 or more: eta shrinks with the temperature.
        log_eta = math.log(first_step(d)) + b.clamp_min(settings.hottest).log()
        none = x.new_zeros(len(x), count - 1)
        stones = x.new_full((len(x), 2 * (count - 1), n), _NOTHING)
        fresh = x.new_zeros(len(x), count, n)
        base = known or fitted_base(points)
        return State(
            x, others, *points[1:], base, b, log_eta, none, none, stones, fresh, none[:, 0], 0, fitting, warmup
        )

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """A move of all, then swaps of every second pair."""
        base, count, n = state.base, settings.temperatures, state.x.shape[1]
        points = Points(torch.cat((state.others, state.x), 1), state.log_density, state.score)
        b, log_eta = (v.repeat_interleave(n, dim=1) for v in (state.b, state.log_eta))
        fitting = state.t < state.fitting
        noise, uniform = streams.normal("noise", points.x.shape[1:]), streams.uniform("algorithm", points.x.shape[1:2])
        points, acceptance = moved(problem, points, b, log_eta, base, noise, uniform, drawn=0 if fitting else n)
        mean = acceptance.view(-1, count, n).mean(2)

        uniform = streams.uniform("algorithm", (count - 1, n), index=1)
        ratio = base.ratio(points).view(-1, count, n)
        partner, probability = swapped(ratio, state.b, uniform, state.t % 2)
        rows = partner * n + torch.arange(n, device=partner.device)
        points = points.take(rows.flatten(1))

        rejected = 1 - probability[:, state.t % 2 :: 2].mean(2)
        rejections, tries = state.rejections.clone(), state.tries.clone()
        rejections[:, state.t % 2 :: 2] += rejected
        tries[:, state.t % 2 :: 2] += 1
        barrier = (rejections / tries.clamp_min(1)).sum(1)
        swaps = 1 - rejected.mean(1) if rejected.shape[1] else torch.ones_like(barrier)
        stones, trips = state.stones, state.trips
        fresh = state.fresh.gather(1, partner)
        fresh[:, 0] = float(not fitting)
        if state.t >= state.warmup:
            trips = trips + fresh[:, -1].mean(1)
        if state.t >= 2 * state.warmup:
            apart = state.b.diff(dim=1).unsqueeze(-1)
            log_w = torch.cat((apart * ratio[:, :-1], -apart * ratio[:, 1:]), 1)  # up the ladder, then down
            stones = torch.logaddexp(stones, log_w.nan_to_num(nan=_NOTHING).clamp_min(_NOTHING))
        fresh[:, -1] = 0
        steps = state.t + 1 - 2 * state.warmup
        log_z, error, gap = log_normaliser(stones, steps)
        doubt = (trips < 1) | ~(gap.abs() <= WIDEST_GAP) | (steps < FEWEST_STEPS)
        info = Info(mean[:, -1], swaps, barrier, log_z, error, gap, trips, doubt.to(gap))
        cut = (count - 1) * n
        state = State(
            points.x[:, cut:], points.x[:, :cut], points.log_density, points.score,
            state.base, state.b, state.log_eta, rejections, tries, stones, fresh, trips, state.t + 1, state.fitting, state.warmup,
        )  # fmt: skip
        if state.t <= state.warmup:
            gain = 2 * state.t**-0.5
            state = state._replace(log_eta=state.log_eta + gain * (mean - TARGET_ACCEPTANCE))
            if fitting and state.t in [math.ceil(share * state.fitting) for share in (1 / 4, 1 / 2, 1.0)]:
                state = state._replace(base=fitted_base(points), rejections=0 * rejections, tries=0 * tries)
            if fitting and state.t == state.fitting:
                state = state._replace(b=_geometric(settings, state.x))
            elif not fitting and state.t in [_end(share, state) for share in ROUNDS]:
                state = _with_ladder(state)
        return state, info


def _end(share: float, state: State) -> int:
    """After how many steps a round of the ladder ends."""
    return state.fitting + round(share * (state.warmup - state.fitting))


def _geometric(settings: Settings, x: Tensor) -> Tensor:
    """The first ladder, (R, T)."""
    powers = torch.arange(settings.temperatures, device=x.device, dtype=x.dtype) - (settings.temperatures - 1)
    b = settings.hottest ** (-powers / max(1, settings.temperatures - 2))
    return torch.where(powers == 1 - settings.temperatures, 0.0, b).expand(len(x), -1).contiguous()


def swapped(ratio: Tensor, b: Tensor, uniform: Tensor, odd: int) -> tuple[Tensor, Tensor]:
    """Who goes where: pairs (0, 1), (2, 3), ... or, if odd, (1, 2), (3, 4), ... exchange their points.

    From l (R, T, N), inverse temperatures (R, T) and uniforms (R, T - 1, N) the temperature from which each point
    comes, (R, T, N) integers, and the probabilities of all exchanges, tried or not, (R, T - 1, N).
    """
    apart = b.diff(dim=1).unsqueeze(-1) * (ratio[:, :-1] - ratio[:, 1:])
    probability = apart.clamp(max=0).exp().nan_to_num(nan=0.0)
    tried = (torch.arange(b.shape[1] - 1, device=b.device) % 2 == odd).view(1, -1, 1)
    swap = (tried & (uniform < probability)).long()
    own = torch.arange(b.shape[1], device=b.device).view(1, -1, 1)
    return own + torch.nn.functional.pad(swap, (0, 0, 0, 1)) - torch.nn.functional.pad(swap, (0, 0, 1, 0)), probability


def log_normaliser(stones: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """log Z, its standard error and the gap of its two halves, (R,) each, of the sums over so many steps, (R, 2 T - 2, N)."""
    n, total = stones.shape[2], stones.logsumexp(2, keepdim=True)
    means, shares = total.squeeze(2) - math.log(n * max(1, steps)), n * (stones - total).exp()
    up, down = means.chunk(2, 1)
    there, back = shares.chunk(2, 1)  # a ladder's part in every factor, 1 on average each
    first, up, down = up[:, 0], up[:, 1:].sum(1), down[:, 1:].sum(1)
    each = there[:, 0] + (there[:, 1:].sum(1) - back[:, 1:].sum(1)) / 2
    error = each.std(1) / math.sqrt(n) if n > 1 else torch.full_like(first, math.nan)
    nothing = torch.full_like(first, math.nan)
    return (first + (up - down) / 2, error, -(up + down)) if steps > 0 else (nothing, nothing, nothing)


def _with_ladder(state: State) -> State:
    """A ladder whose pairs have equal rejection rates, by those of this round; etas move with the temperatures."""
    rates = (state.rejections / state.tries.clamp_min(1)).clamp_min(LEAST_RATE)
    barrier = torch.nn.functional.pad(rates.cumsum(1), (1, 0))  # (R, T)
    shares = torch.arange(barrier.shape[1], device=barrier.device, dtype=barrier.dtype) / (barrier.shape[1] - 1)
    at = shares * barrier[:, -1:]
    b = _interpolated(at, barrier, state.b)
    b = torch.cat((state.b[:, :1], b[:, 1:-1], state.b[:, -1:]), 1)  # the ends without rounding
    log_eta = _interpolated(at, barrier, state.log_eta)
    none = torch.zeros_like(state.tries)
    return state._replace(b=b, log_eta=log_eta, rejections=none, tries=none)


def _interpolated(at: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Piecewise linear interpolation, all (R, T), knots increasing."""
    right = torch.searchsorted(knots, at.contiguous(), right=True).clamp(1, knots.shape[1] - 1)
    x0, x1, y0, y1 = (v.gather(1, i) for v in (knots, values) for i in (right - 1, right))
    return y0 + (at - x0) / (x1 - x0) * (y1 - y0)
