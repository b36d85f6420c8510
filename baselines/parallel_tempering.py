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

Stepping stones (Xie, Lewis, Fan, Kuo & Chen 2011, Syst. Biol. 60:150-160): after the warm-up log Z = sum_k log of the mean
of exp((b_{k+1} - b_k) l(x_k)), over steps and ladders. Ladders are independent, which gives the standard error.

A step of a chain costs T scores: all temperatures are charged. What is judged are the positions at b = 1, of N chains
with ladders of their own. At b = 1 a chain starts at the task's initial point, at all other temperatures at a draw
from the base. A good T is about twice Lambda(1), which is reported as ``barrier`` (Syed et al., Section 5.3).

Departs from the paper: N ladders at a time; the first ladder is geometric; linear interpolation in place of splines. A
swap against an energy that is not a number is refused. Traps: swaps compare l, not log pi, where the base is proper;
and choosing even or odd swaps at random makes round trips quadratic in T.
"""

import math
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from ._tempering import TARGET_ACCEPTANCE, Points, base_sd, first_step, log_ratio, moved

#: Ends of the rounds, as shares of the warm-up.
ROUNDS = (1 / 8, 1 / 4, 1 / 2, 1.0)
#: Least rejection rate of a pair, so that every b is between its neighbours.
LEAST_RATE = 1e-3
#: Stands for the logarithm of zero, which a state must not hold.
_NOTHING = -1e30


class Settings(AlgorithmSettings):
    """Settings of parallel tempering."""

    temperatures: int = Field(6, ge=2, description="T, the base and the target included; ours")
    hottest: float = Field(0.01, gt=0, lt=1, description="b_1 of the first, geometric ladder; ours")
    base_sd: float | None = Field(
        None, gt=0, description="s of the base N(0, s^2 I), in x; None: that of a declared prior, else 3; ours"
    )
    warmup_steps: int | None = Field(
        None, ge=0, description="steps of the tuning; None: those of a quarter of the budget; ours"
    )


class State(NamedTuple):
    """Chains with their companions: rows of ``others`` are b_0's N points, then b_1's, and so on."""

    x: Tensor  # (R, N, D), at b = 1
    others: Tensor  # (R, (T - 1) N, D)
    log_density: Tensor  # (R, T N), of the target at all of them, x last
    score: Tensor  # (R, T N, D)
    b: Tensor  # (R, T)
    log_eta: Tensor  # (R, T)
    rejections: Tensor  # (R, T - 1) sum of the pairs' rejection rates in this round
    tries: Tensor  # (R, T - 1) their number
    stones: Tensor  # (R, T - 1, N) log of the sum of exp((b' - b) l) over the steps after the warm-up
    t: int  # steps
    warmup: int  # steps of the warm-up


class Info(NamedTuple):
    """Per-step diagnostics, (R,) each."""

    acceptance: Tensor  # of MALA at b = 1, mean over the chains
    swaps: Tensor  # acceptance of swaps, mean over the pairs tried and the chains
    barrier: Tensor  # Lambda(1), by this round's rejection rates
    log_z: Tensor  # not a number during the warm-up
    log_z_se: Tensor  # its standard error; not a number with one ladder


class ParallelTempering(Algorithm[Settings, State]):
    """Non-reversible parallel tempering."""

    name = "parallel-tempering"
    kind = "chains"
    exact = "adapted"
    needs = frozenset({"full-batch", "score"})
    citation = "Syed, Bouchard-Cote, Deligiannidis & Doucet (2022), arXiv:1905.02939"
    summary = "non-reversible parallel tempering with MALA moves, adapted ladder"
    example: ClassVar[Example] = Example(
        quick={"temperatures": 3, "warmup_steps": 4}, scores=3, first_scores=3, settings={"temperatures": 4}, steps=200
    )

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """The task's initial points at b = 1, draws from the base elsewhere."""
        sd, count, n, d = base_sd(problem, settings.base_sd), settings.temperatures, problem.particles, problem.dim
        x = problem.init()
        others = sd * streams.normal("init", ((count - 1) * n, d))
        log_density, score = problem.log_density_and_score(torch.cat((others, x), 1))
        powers = torch.arange(count, device=x.device, dtype=x.dtype) - (count - 1)
        b = settings.hottest ** (-powers / max(1, count - 2))
        b = torch.where(powers == 1 - count, 0.0, b).expand(len(x), -1).contiguous()
        none = x.new_zeros(len(x), count - 1)
        # A Gaussian of precision b / s^2 or more: eta shrinks with the temperature.
        log_eta = torch.full_like(b, math.log(first_step(sd, d))) + b.clamp_min(settings.hottest).log()
        limit, warmup = problem.meter.limit, settings.warmup_steps
        if warmup is None:
            charged = problem.meter.charged
            warmup = horizon // 4 if limit is None else max(0, int((limit / 4 - charged) / (count * n)))
        stones = x.new_full((len(x), count - 1, n), _NOTHING)
        return State(x, others, log_density, score, b, log_eta, none, none, stones, 0, warmup)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """A move of all, then swaps of every second pair."""
        sd, count, n = base_sd(problem, settings.base_sd), settings.temperatures, state.x.shape[1]
        points = Points(torch.cat((state.others, state.x), 1), state.log_density, state.score)
        b, log_eta = (v.repeat_interleave(n, dim=1) for v in (state.b, state.log_eta))
        noise, uniform = streams.normal("noise", points.x.shape[1:]), streams.uniform("algorithm", points.x.shape[1:2])
        points, acceptance = moved(problem, points, b, log_eta, sd, noise, uniform, drawn=n)
        mean = acceptance.view(-1, count, n).mean(2)

        uniform = streams.uniform("algorithm", (count - 1, n), index=1)
        ratio = log_ratio(points, sd).view(-1, count, n)
        partner, probability = swapped(ratio, state.b, uniform, state.t % 2)
        rows = partner * n + torch.arange(n, device=partner.device)
        points = points.take(rows.flatten(1))

        rejected = 1 - probability[:, state.t % 2 :: 2].mean(2)
        rejections, tries = state.rejections.clone(), state.tries.clone()
        rejections[:, state.t % 2 :: 2] += rejected
        tries[:, state.t % 2 :: 2] += 1
        barrier = (rejections / tries.clamp_min(1)).sum(1)
        swaps = 1 - rejected.mean(1) if rejected.shape[1] else torch.ones_like(barrier)
        stones = state.stones
        if state.t >= state.warmup:
            log_w = state.b.diff(dim=1).unsqueeze(-1) * ratio[:, :-1]
            stones = torch.logaddexp(stones, log_w.nan_to_num(nan=_NOTHING).clamp_min(_NOTHING))
        info = Info(mean[:, -1], swaps, barrier, *log_normaliser(stones, state.t + 1 - state.warmup))
        cut = (count - 1) * n
        state = State(
            points.x[:, cut:], points.x[:, :cut], points.log_density, points.score,
            state.b, state.log_eta, rejections, tries, stones, state.t + 1, state.warmup,
        )  # fmt: skip
        if state.t <= state.warmup:
            gain = 2 * state.t**-0.5
            state = state._replace(log_eta=state.log_eta + gain * (mean - TARGET_ACCEPTANCE))
            if state.t in [round(share * state.warmup) for share in ROUNDS]:
                state = _with_ladder(state)
        return state, info


def swapped(ratio: Tensor, b: Tensor, uniform: Tensor, odd: int) -> tuple[Tensor, Tensor]:
    """Who goes where: pairs (0, 1), (2, 3), ... or, if odd, (1, 2), (3, 4), ... exchange their points.

    Args:
        ratio: l, (R, T, N).
        b: inverse temperatures, (R, T).
        uniform: (R, T - 1, N).
        odd: 0 or 1.

    Returns:
        The temperature from which each point comes, (R, T, N) integers; the probabilities of all T - 1 exchanges,
        tried or not, (R, T - 1, N).
    """
    apart = b.diff(dim=1).unsqueeze(-1) * (ratio[:, :-1] - ratio[:, 1:])
    probability = apart.clamp(max=0).exp().nan_to_num(nan=0.0)
    tried = (torch.arange(b.shape[1] - 1, device=b.device) % 2 == odd).view(1, -1, 1)
    swap = (tried & (uniform < probability)).long()
    own = torch.arange(b.shape[1], device=b.device).view(1, -1, 1)
    return own + torch.nn.functional.pad(swap, (0, 0, 0, 1)) - torch.nn.functional.pad(swap, (0, 0, 1, 0)), probability


def log_normaliser(stones: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """log Z and its standard error, (R,) each, of the sums over so many steps, (R, T - 1, N) logarithms."""
    n, total = stones.shape[2], stones.logsumexp(2, keepdim=True)
    log_z = (total.squeeze(2) - math.log(n * max(1, steps))).sum(1)
    shares = n * (stones - total).exp().sum(1)  # a ladder's part in every factor, 1 on average each
    error = shares.std(1) / math.sqrt(n) if n > 1 else torch.full_like(log_z, math.nan)
    nothing = torch.full_like(log_z, math.nan)
    return (log_z, error) if steps > 0 else (nothing, nothing)


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
