"""Stochastic particle-optimisation sampling (SPOS).

Zhang, Zhang, Carin & Chen (2020), arXiv:1809.01293, Section 3: SVGD's velocity and a Langevin diffusion of inverse
temperature beta, in one step,

    x_i <- x_i + h [ s(x_i) / beta + phi(x_i) ] + sqrt(2 h / beta) xi_i,   xi_i ~ N(0, I)
    phi(x_i) = 1/n sum_j [ k_ij s(x_j) + grad_{x_j} k(x_j, x_i) ],   k_ij = exp(-||x_i - x_j||^2 / bandwidth)

The noise keeps particles from collapsing as SVGD's do. beta -> infinity is SVGD; beta -> 0 is ULA of step h / beta.

Traps: beta multiplies the diffusion, not the density: the law is that of the target at every beta, in the limit of many
particles only. With n of them the drift belongs to a diffusion of matrix I / beta + K / n, and K's share of its noise
is missing: a single particle samples p^(1 + beta). The paper's theory takes a fixed bandwidth; its experiments take the
median's.
"""

import math
from typing import Literal

from pydantic import Field, PositiveFloat

from parvibench.core.algorithm import Algorithm, Example, ParticleState, Problem, SteppedSettings, Streams

from .svgd import stein_direction


class Settings(SteppedSettings):
    """Settings of SPOS."""

    step_size: float = Field(0.01, gt=0, description="h, in x^2; ours")
    beta: float = Field(1.0, gt=0, description="inverse temperature of the diffusion, without unit; ours")
    bandwidth: Literal["median", "median-sampled"] | PositiveFloat = Field(
        "median", description="of the kernel, in x^2: as SVGD's"
    )


class SPOS(Algorithm[Settings, ParticleState]):
    """SVGD with a Langevin diffusion."""

    name = "spos"
    kind = "particles"
    needs = frozenset({"score"})
    citation = "Zhang, Zhang, Carin & Chen (2020), arXiv:1809.01293"
    example = Example(settings={"step_size": 0.1})

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> ParticleState:
        """Particles at the task's initial points."""
        return ParticleState.start(problem)

    def step(self, problem: Problem, settings: Settings, state: ParticleState, streams: Streams) -> ParticleState:
        """Drift, repulsion and noise."""
        x, h = state.x, settings.step_size
        score = problem.score(x)
        drift = stein_direction(x, score, settings.bandwidth).add_(score, alpha=1 / settings.beta)
        noise = streams.normal("noise", x.shape[1:])
        return ParticleState(drift.mul_(h).add_(x).add_(noise, alpha=math.sqrt(2 * h / settings.beta)))
