"""Stein self-repulsive Langevin dynamics (SRLD).

Ye, Ren & Liu (2020), arXiv:2002.09070, Algorithm 1. One chain is pushed away from where it has been:

    k <  M c:  x <- x + eta s(x) + sqrt(2 eta) xi                      fills the memory
    k >= M c:  x <- x + eta [ s(x) + alpha g(x) ] + sqrt(2 eta) xi
    g(x) = 1/M sum_b [ K(b, x) s(b) + grad_b K(b, x) ],   K(b, x) = exp(-||b - x||^2 / sigma)

over M past states b, c iterations apart, with sigma = median_b ||b - x||^2 / log M, the lower median, as in the code.
grad_b K = (2/sigma) (x - b) K points away from b (the paper's Eq. 6 prints the opposite sign of g). Under the target E
g = 0, so repulsion leaves the law of a long chain alone while alpha is small; alpha = 0 is SGLD, bit for bit.

Bias: at the default alpha = 10 it is not small. On N(0, I) in 20 dimensions (eta = 0.01, M = 10, c = 100, 64 chains of
20,000 steps, the first 5,000 left out) the variance is 0.870 +- 0.002 instead of 1; at alpha = 1 it is 0.980 +- 0.003.

Departures: (1) the memory is renewed every c iterations, as in the code, where the paper's slides along with k; the two
agree whenever c divides k. (2) Scores at past states are kept, where the code scores all M again at every step; with
mini-batches they are those of past batches, unbiased. (3) c is cut to horizon / (4 M) in short runs, so that repulsion
acts in the last three quarters at least.

Traps: the code's alpha is 10 on the toys but 1 on regression, and its toy fills the memory with repeats. The paper's
thinning of judged samples is the protocol's, not ``spacing``.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Presets, Sourced, SteppedSettings, code, ours, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem


class Settings(SteppedSettings):
    """Settings of SRLD."""

    step_size: float = Field(0.01, gt=0, description="eta, in x^2; paper's toys")
    alpha: float = Field(10.0, ge=0, description="weight of the repulsion, dimensionless; paper, Appendix A")
    memory: int = Field(10, ge=2, description="M, past states kept; paper 10, code 100 on the toys")
    spacing: int = Field(100, ge=1, description="c, iterations between kept states; paper. Cut in short runs")


class Memory(NamedTuple):
    """The chain's past, oldest first."""

    past: Tensor  # (R, M, D)
    past_scores: Tensor  # (R, M, D)
    k: int
    spacing: int  # c in use

    @classmethod
    def empty(cls, x: Tensor, settings: Settings, horizon: int) -> Memory:
        """An empty past of a chain at x (R, 1, D)."""
        past = torch.zeros_like(x).repeat(1, settings.memory, 1)
        return cls(past, past, 0, max(1, min(settings.spacing, horizon // (4 * settings.memory))))


class State(NamedTuple):
    """The chain and its memory."""

    x: Tensor  # (R, 1, D)
    memory: Memory


class Info(NamedTuple):
    """Diagnostics of every c-th step."""

    drift_rms: Tensor  # (R,) root mean square over coordinates of what eta multiplies


def _presets() -> dict[str, dict[str, Sourced]]:
    """Runs of the paper; the code ships the step sizes of its toys, of energy and of the bandits only."""
    chain = paper(particles=1, alpha=10.0)
    toy = chain | code(memory=100)
    plain = chain | ours(step_size=0.01) | paper(memory=10)
    # 500 samples, 100 steps apart, of which 400 are burn-in; alpha is lr2 / lr1 of the script for energy
    network = (
        chain
        | code(alpha=1.0, iterations=50_000, burn_in=40_000, thinning=100, samples=100)
        | paper(memory=10, spacing=100)
    )
    # eps = 1e-7 in the code; actions are chosen with the last 20 states
    bandit = chain | code(step_size=5e-8, alpha=1.0, spacing=100, thinning=100, samples=20) | paper(memory=20)
    # training rows: the code's rates are per row
    rows = {"boston": 455, "concrete": 927, "naval": 10740, "wine-red": 1439, "wine-white": 4408, "yacht": 276}
    return {
        "correlated-2d": toy | code(step_size=0.01, spacing=1, iterations=2000, burn_in=100, thinning=1, samples=1900),
        "gmm2-2d": toy
        | code(step_size=1e-3, spacing=100, iterations=100_000, burn_in=10_000, thinning=100, samples=900),
        "gmm2-20d": plain | ours(spacing=100),
        "gaussian-100d": plain | ours(spacing=100) | paper(thinning=10),
        "bnn-energy-srld": network | code(step_size=0.01 / 691),
        **{f"bnn-{name}-srld": network | ours(step_size=0.01 / n) for name, n in rows.items()},
        "bandit-mushroom": bandit,
        "bandit-wheel": bandit,
    }


class SRLD(Algorithm[Settings, State]):
    """Stein self-repulsive Langevin dynamics; its default alpha narrows the law (variance 0.87 of 1, D = 20)."""

    name = "srld"
    kind = "chains"
    n_particles = 1
    citation = "Ye, Ren & Liu (2020), arXiv:2002.09070"
    example = Example(quick={"memory": 2, "spacing": 1}, settings={"step_size": 0.1, "alpha": 1.0}, steps=1500)
    presets: ClassVar[Presets] = _presets()

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """One chain at the task's initial point, no past."""
        x = problem.init(1)
        return State(x, Memory.empty(x, settings, horizon))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State | tuple[State, Info]:
        """One step; every c-th state enters the memory after its own step, which reports its drift."""
        x, eta = state.x, settings.step_size
        drift, memory = self_repulsive(settings, state.memory, x, problem.score(x))
        noise = streams.normal("noise", x.shape[1:])
        moved = x.add(drift, alpha=eta).add_(noise, alpha=math.sqrt(2 * eta))
        if state.memory.k % state.memory.spacing:
            return State(moved, memory)
        return State(moved, memory), Info(drift.square().mean((1, 2)).sqrt())


def self_repulsive(settings: Settings, memory: Memory, x: Tensor, score: Tensor) -> tuple[Tensor, Memory]:
    """The drift s(x) + alpha g(x) once the memory is full, s(x) before; and the memory with x in its turn."""
    past, past_scores, k, spacing = memory
    drift = score
    if k >= settings.memory * spacing:
        drift = score.add(repulsion(x, past, past_scores), alpha=settings.alpha)
    if k % spacing == 0:
        past = torch.cat((past[:, 1:], x), 1)
        past_scores = torch.cat((past_scores[:, 1:], score), 1)
    return drift, Memory(past, past_scores, k + 1, spacing)


def repulsion(x: Tensor, past: Tensor, past_scores: Tensor) -> Tensor:
    """Stein force g of the past states on x: (R, 1, D), (R, M, D), (R, M, D) -> (R, 1, D)."""
    m = past.shape[1]
    away = x - past
    d = away.square().sum(-1, keepdim=True)  # (R, M, 1)
    sigma = d.median(1, keepdim=True).values / math.log(m)
    k = (d / -sigma).exp_()
    return (past_scores + (2 / sigma) * away).mul_(k).mean(1, keepdim=True)
