"""ChEES-HMC: Hamiltonian Monte Carlo that learns its trajectories' length across chains.

Hoffman, Radul & Sountsov (2021), An Adaptive-MCMC Scheme for Setting Trajectory Lengths in Hamiltonian Monte Carlo,
AISTATS 2021, Algorithm 1; identity mass. Trajectory n of all chains takes L = ceil(h_n T / eps) leapfrog steps, h_n
Halton's sequence in base 2. While it warms up, T ascends the criterion

    ChEES = E[ (||x' - E x'||^2 - ||x - E x||^2)^2 ] / 4

by Adam (beta_1 = 0, beta_2 = 0.95) on log T, with the gradient estimated by the chains, each weighted by its acceptance
probability, and t = h_n T, p' the momentum at the end:

    g = t (||x' - mean x'||^2 - ||x - mean x||^2) (x' - mean x')^T p';

eps comes from dual averaging of the harmonic mean of the chains' acceptance probabilities towards 0.651. After warm-up
both are weighted means of the logarithms so far.

A step is a block of ``leapfrogs`` leapfrog steps of all chains, so that it costs every replicate the same; a trajectory
that does not end within it goes on in the next. Its number of steps does not depend on where the chains are, so the
states shown have the exact law. Warm-up ends when a quarter of the evaluations is charged (without a limit of them:
after a quarter of the steps foreseen). Departs from the paper: the first eps is ``_adaptation.reasonable_step``, and in
the first eighth of warm-up T is 2 eps.
Trap: a chain that falls into a minor mode stays. On `low-dim-gauss-mix` from N(0, I) 45 of 100 chains are 200 nats below the
mass after 80,000 scores (of `nuts`, 32), and T is learnt from them as well; from a Laplace fit (``start: laplace``), none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.nn.masks import where

from ._adaptation import KAPPA, DualAveraging, reasonable_step
from ._chains import Info, acceptance, divergent, warmup_steps

#: T in leapfrog lengths for a first share of warm-up.
FIRST_LEAPFROGS, FIRST_SHARE = 2, 1 / 8
#: Length of Halton's sequence before it begins again.
PERIOD = 4096
#: Adam's decay of the squared gradients.
BETA_2 = 0.95


class Settings(AlgorithmSettings):
    """Settings of ChEES-HMC."""

    target_acceptance: float = Field(0.651, gt=0, lt=1, description="harmonic mean of the acceptances; paper")
    learning_rate: float = Field(0.025, gt=0, description="of Adam on log T; paper")
    max_leapfrogs: int = Field(500, ge=1, description="most leapfrog steps of a trajectory; ours (TFP: 1000)")
    leapfrogs: int = Field(8, ge=1, description="leapfrog steps of each chain in one step; ours")


class Length(NamedTuple):
    """T on its way, (R,) each."""

    log: Tensor  # log T of the next trajectories
    mean_log: Tensor  # weighted mean so far: the final value
    squares: Tensor  # Adam's mean of squared gradients

    def update(self, gradient: Tensor, rate: float, t: Tensor, low: Tensor, high: Tensor) -> Length:
        """Ascend; ``t`` counts updates from 1, ``low`` and ``high`` bound log T."""
        squares = BETA_2 * self.squares + (1 - BETA_2) * gradient.square()
        size = (squares / (1 - BETA_2**t)).sqrt()
        log = (self.log + rate * gradient / (size + torch.finfo(size.dtype).tiny)).clamp(low, high)
        return Length(log, self.mean_log + (log - self.mean_log) * t**-KAPPA, squares)


class State(NamedTuple):
    """Chains, where their trajectories are, and what warm-up learns."""

    x: Tensor  # (R, N, D) where trajectories start
    density: Tensor  # (R, N) log density there
    score: Tensor  # (R, N, D)
    y: Tensor  # (R, N, D) where they are
    p: Tensor  # (R, N, D) momentum
    s: Tensor  # (R, N, D) score at y
    energy: Tensor  # (R, N) H at the start
    left: Tensor  # (R,) leapfrog steps until they end; 0: new ones begin
    number: Tensor  # (R,) of the trajectory, from 1
    step: Tensor  # (R,) eps of this trajectory
    time: Tensor  # (R,) its t
    dual: DualAveraging
    length: Length
    acceptance: Tensor  # (R,) mean probability at the end of the last trajectory
    diverged: Tensor  # (R,) share of the chains that left the level set then
    warmup_steps: int


class ChEES(Algorithm[Settings, State]):
    """Hamiltonian Monte Carlo, trajectory length learnt across chains, adapts itself."""

    name = "chees-hmc"
    version = 3
    kind = "chains"
    exact = "adapted"
    may_overflow = frozenset({"y", "p", "s"})
    needs = frozenset({"full-batch", "score"})
    host_bound = 4  # whether trajectories begin or end, and numbers of the adaptation when they do
    citation = "Hoffman, Radul & Sountsov (2021), AISTATS 2021"
    example = Example(quick={"leapfrogs": 1}, first_scores=1, settings={}, steps=120, both_modes=False)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points."""
        x = problem.init()
        density, score = problem.log_density_and_score(x)
        steps = warmup_steps(problem, horizon, settings.leapfrogs, spent=x.shape[1])
        zero = x.new_zeros(len(x))
        dual = DualAveraging.start(reasonable_step(score, torch.ones_like(x[:, 0])))
        log = dual.log_step + x.new_tensor(float(FIRST_LEAPFROGS)).log()
        length = Length(log, log.clone(), zero)
        flow = (x.clone(), torch.zeros_like(x), score.clone(), torch.zeros_like(density))
        return State(x, density, score, *flow, zero, zero, dual.log_step.exp(), zero, dual, length, zero, zero, steps)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """A block of leapfrog steps of every chain."""
        spent = streams.step + 1
        share = spent / max(state.warmup_steps, 1) if spent <= state.warmup_steps else None
        uniform = streams.uniform("algorithm", (settings.leapfrogs, state.x.shape[1]))
        begun = torch.zeros_like(state.left)
        for k in range(settings.leapfrogs):
            begins = state.left == 0
            if begins.any():
                momentum = _momenta(streams, begun, begins, state.x.shape[1:])
                begun = begun + begins
                state = _started(settings, state, begins, momentum)
            eps = state.step[:, None, None]
            p = state.p + 0.5 * eps * state.s
            y = state.y + eps * p
            density, score = problem.log_density_and_score(y)
            state = state._replace(y=y, p=p + 0.5 * eps * score, s=score, left=state.left - 1)
            ends = state.left == 0
            if ends.any():
                state = _arrived(settings, state, ends, density, uniform[:, k], share)
        if spent == state.warmup_steps:
            dual, length = state.dual, state.length
            state = state._replace(
                dual=dual._replace(log_step=dual.mean_log_step),
                length=length._replace(log=length.mean_log),
                left=torch.zeros_like(state.left),
            )
        return state, Info(state.acceptance, state.diverged)


@lru_cache(maxsize=4)
def _halton(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Halton's sequence in base 2, (PERIOD,), without its 0."""
    bits = PERIOD.bit_length()
    with torch.inference_mode(False):
        values = [int(f"{i:0{bits}b}"[::-1], 2) / 2**bits for i in range(1, PERIOD + 1)]
        return torch.tensor(values, device=device, dtype=dtype)


def _momenta(streams: Streams, begun: Tensor, begins: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers, (R, *shape): draw number ``begun`` (R,) of this step where a trajectory begins."""
    found = streams.normal("noise", shape)
    for number in range(1, int(begun[begins].max()) + 1):
        at = (begun == number)[:, None, None]
        found = torch.where(at, streams.normal("noise", shape, index=number), found)
    return found


def _started(settings: Settings, state: State, begins: Tensor, momentum: Tensor) -> State:
    """The state with new trajectories where they begin, (R,) bool."""
    number = state.number + begins
    step, total = state.dual.log_step.exp(), state.length.log.exp()
    time = _halton(number.device, number.dtype)[(number.long() - 1).clamp(min=0) % PERIOD] * total
    # the first lengths are whole numbers of steps but for rounding
    left = (time / step - 1e-6).ceil().nan_to_num(1.0).clamp(1, settings.max_leapfrogs)
    energy = 0.5 * momentum.square().sum(-1) - state.density
    begun = state._replace(y=state.x, p=momentum, s=state.score, energy=energy, left=left, step=step, time=time)
    return where(begins, begun, state)._replace(number=number)


def _arrived(
    settings: Settings, state: State, ends: Tensor, density: Tensor, uniform: Tensor, share: float | None
) -> State:
    """The state after the ends of trajectories, (R,) bool, are accepted or not; adapts at a ``share`` of warm-up."""
    change = state.energy + density - 0.5 * state.p.square().sum(-1)
    change = change + 0 * state.x.sum(-1)  # a chain that is not finite stays so, and the harness sees it
    probability = acceptance(change)
    if share is not None:
        state = _learnt(settings, state, ends, probability, share < FIRST_SHARE)
    accept = (uniform < probability) & ends[:, None]
    state = where(accept, state._replace(x=state.y, density=density, score=state.s), state)
    told = state._replace(acceptance=probability.mean(1), diverged=divergent(change).mean(1))
    return where(ends, told, state)


def _learnt(settings: Settings, state: State, ends: Tensor, probability: Tensor, first: bool) -> State:
    """The state with eps and T adapted in the replicates whose trajectory ends, before it is accepted or not."""
    harmonic = 1 / (1 / probability.clamp(min=1e-10)).mean(1)
    dual = state.dual.update(harmonic, settings.target_acceptance, ends)
    gradient = chees_gradient(state.x, state.y, state.p, probability, state.time)
    low = dual.log_step
    high = low + torch.log(low.new_tensor(float(settings.max_leapfrogs)))
    length = state.length.update(gradient, settings.learning_rate, dual.updates.clamp(min=1), low, high)
    if first:
        log = low + torch.log(low.new_tensor(float(FIRST_LEAPFROGS)))
        length = length._replace(log=log, mean_log=log)
    return state._replace(dual=dual, length=where(ends, length, state.length))


def chees_gradient(x: Tensor, y: Tensor, p: Tensor, probability: Tensor, time: Tensor) -> Tensor:
    """Estimate of the criterion's derivative in log T, (R,), but for a factor; chains without an end do not count.

    From starts x, ends y and momenta p there, (R, N, D), probabilities of accepting them (R, N), and t, (R,).
    """
    sound = (probability > 0).unsqueeze(-1)
    y, p = torch.where(sound, y, x), torch.where(sound, p, torch.zeros_like(p))
    before, after = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    change = after.square().sum(-1) - before.square().sum(-1)
    each = change * (after * p).sum(-1)
    weight = probability.sum(1).clamp(min=torch.finfo(p.dtype).tiny)
    return (time * (probability * each).sum(1) / weight).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
