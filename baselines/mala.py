"""Metropolis-adjusted Langevin algorithm (MALA).

Roberts & Tweedie (1996), Exponential convergence of Langevin distributions and their discrete
approximations, Bernoulli 2:341-363, Section 1.4.2. Each chain proposes

    y = x + eta s(x) + sqrt(2 eta) xi,   xi ~ N(0, I)

and accepts when log U < log pi(y) - log pi(x) + log q(x | y) - log q(y | x). With y inserted,

    log q(x | y) - log q(y | x) = 1/2 ||xi||^2 - 1/2 || xi + sqrt(eta / 2) (s(x) + s(y)) ||^2

Score and log density at x are in the state, so a step costs one evaluation. A proposal whose density or score is
zero or not a number is rejected, since NaN compares false.
"""

import math
from typing import ClassVar, NamedTuple

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Presets, Problem, SteppedSettings, Streams, paper
from parvibench.nn.masks import where

from ._chains import Points, acceptance


class Settings(SteppedSettings):
    """Settings of MALA."""

    step_size: float = Field(0.01, gt=0, description="eta of the proposal, in x^2; ours")


class Info(NamedTuple):
    """Per-step diagnostics."""

    acceptance: Tensor  # (R,) mean probability over the chains


class MALA(Algorithm[Settings, Points]):
    """Metropolis-adjusted Langevin algorithm."""

    name = "mala"
    kind = "chains"
    exact = True
    needs = frozenset({"full-batch", "score"})
    citation = "Roberts & Tweedie (1996)"
    example = Example(first_scores=1, settings={"step_size": 0.3})
    presets: ClassVar[Presets] = {  # KSIVI's second reference, eps = 1e-4
        "blr-waveform": paper(step_size=5e-5, iterations=400_000, particles=1000, samples=1000)
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> Points:
        """Chains at the task's initial points."""
        return Points.at(problem.init(), problem)

    def step(self, problem: Problem, settings: Settings, state: Points, streams: Streams) -> tuple[Points, Info]:
        """Propose, then accept or reject each chain by itself."""
        x, eta = state.x, settings.step_size
        noise = streams.normal("noise", x.shape[1:])
        y = x.add(state.score, alpha=eta).add_(noise, alpha=math.sqrt(2 * eta))
        there = Points.at(y, problem)

        backward = noise.add(state.score + there.score, alpha=math.sqrt(eta / 2))
        log_ratio = there.log_density - state.log_density
        log_ratio = log_ratio + 0.5 * (noise.square().sum(-1) - backward.square().sum(-1))
        accept = streams.uniform("algorithm", x.shape[1:2]).log() < log_ratio
        return where(accept, there, state), Info(acceptance(log_ratio).mean(1))
