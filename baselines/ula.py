"""Unadjusted Langevin algorithm (ULA).

Roberts & Tweedie (1996), Exponential convergence of Langevin distributions and their discrete
approximations, Bernoulli 2:341-363, Section 1.4.1:

    x <- x + eta s(x) + sqrt(2 eta) xi,   xi ~ N(0, I)

with the exact score s on all data. The stationary law is biased: on N(0, 1/c) its variance is
1 / (c (1 - c eta / 2)). Trap: many papers write eta = eps / 2.
"""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field

from parvibench.core.algorithm import Algorithm, ParticleState, Presets, SteppedSettings, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem


class Settings(SteppedSettings):
    """Settings of ULA."""

    step_size: float = Field(0.01, gt=0, description="eta, in x^2; ours")


class ULA(Algorithm[Settings, ParticleState]):
    """Unadjusted Langevin algorithm."""

    name = "ula"
    kind = "chains"
    needs = frozenset({"full-batch", "score"})
    settings_type = Settings
    citation = "Roberts & Tweedie (1996)"
    summary = "unadjusted Langevin algorithm on exact scores"
    presets: ClassVar[Presets] = {  # the KSIVI paper's references, eps = 1e-4
        "blr-waveform": {"step_size": paper(5e-5)},
        "diffusion": {"step_size": paper(5e-5)},
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> ParticleState:
        """Chains at the task's initial points."""
        return ParticleState.start(problem)

    def step(
        self, problem: Problem, settings: Settings, state: ParticleState, streams: Streams
    ) -> ParticleState:
        """One Langevin step of every chain."""
        x, eta = state.x, settings.step_size
        noise = streams.normal("noise", x.shape[1:])
        return ParticleState(x.add(problem.score(x), alpha=eta).add_(noise, alpha=math.sqrt(2 * eta)))
