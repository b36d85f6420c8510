"""Langevin algorithm with prior diffusion (LAPD).

Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183, Algorithm 1. With log pi = -f - (m/2)||x||^2 + const:

    w = x - eta~ grad f(x),   eta~ = (e^{m eta} - 1) / m          stage 1: drift of f alone
    x <- e^{-m eta} w + sqrt((1 - e^{-2 m eta}) / m) xi           stage 2: exact OU flow of the prior

so that directions in which only the prior acts carry no bias. Any m > 0 defines an f; a Gaussian prior's
own precision is taken where the task declares one, with a warning where the settings name another. m -> 0 is ULA.

Note: the two stages combine to x + eta' s(x) + sqrt(eta' (2 - m eta')) xi with eta' = (1 - e^{-m eta}) / m:
the drift of ULA with less noise. The paper has no experiments and no code; its theory fixes no eta.
"""

import math
import warnings
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, ParticleState, Presets, Problem, SteppedSettings, Streams, paper


class Settings(SteppedSettings):
    """Settings of LAPD."""

    step_size: float = Field(0.01, gt=0, description="eta, the time of the OU flow, in x^2; ours")
    prior_precision: float | None = Field(None, gt=0, description="m, in 1/x^2, if the task has none; None: 1 (paper)")


class LAPD(Algorithm[Settings, ParticleState]):
    """Langevin algorithm with prior diffusion."""

    name = "lapd"
    kind = "chains"
    needs = frozenset({"full-batch", "score"})
    citation = "Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183"
    presets: ClassVar[Presets] = {  # Section 4.2; the paper runs nothing
        f"lapd-mixture-{dim}": paper(prior_precision=1.0) for dim in (2, 8, 32, 128, 512, 2048)
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> ParticleState:
        """Chains at the task's initial points."""
        warn_if_ignored(problem, settings)
        return ParticleState.start(problem)

    def step(self, problem: Problem, settings: Settings, state: ParticleState, streams: Streams) -> ParticleState:
        """A step of both stages for every chain."""
        return ParticleState(both_stages(problem, state.x, settings.step_size, settings, streams))


def both_stages(problem: Problem, x: Tensor, eta: float, settings: Settings, streams: Streams) -> Tensor:
    """Positions (R, N, D) after a step of length eta."""
    m = problem.prior_precision or settings.prior_precision or 1.0
    noise = streams.normal("noise", x.shape[1:])
    # expm1 keeps the limit m -> 0 exact
    w = x.add(problem.score_f(x, m), alpha=math.expm1(m * eta) / m)
    spread = math.sqrt(-math.expm1(-2 * m * eta) / m)
    return w.mul_(math.exp(-m * eta)).add_(noise, alpha=spread)


def warn_if_ignored(problem: Problem, settings: Settings) -> None:
    """Warn of a prior precision in the settings that is not the task's own."""
    own, given = problem.prior_precision, settings.prior_precision
    if own and given not in (None, own):
        warnings.warn(f"prior_precision={given} is ignored: the task's prior has {own}", stacklevel=2)
