"""Stochastic gradient Langevin dynamics (SGLD).

Welling & Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics, ICML, Eq. 4:

    x <- x + eta s_B(x) + sqrt(2 eta) xi,   xi ~ N(0, I)

s_B: score with the likelihood of a mini-batch B scaled to the full data (the exact score where the task
has no data). N independent chains; they share the mini-batch of the step.

Departs from the paper: constant eta, no decay, as the later comparisons run it. Trap: the paper writes
x + (eps/2) s + sqrt(eps) xi; eta = eps / 2.
"""

import math
from typing import ClassVar

from pydantic import Field

from parvibench.core.algorithm import Algorithm, ParticleState, Presets, SteppedSettings, code, ours, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from ._sifg_runs import POINTS, TOY_POINTS, on_networks

_KSIVI = ours(step_size=2.5e-5) | paper(iterations=10_000, particles=100, samples=100)
_LD = code(iterations=50_000, burn_in=40_000, thinning=100, samples=100) | paper(particles=1)
_SRLD_ROWS = {"boston": 455, "concrete": 927, "naval": 10740, "wine-red": 1439, "wine-white": 4408, "yacht": 276}


class Settings(SteppedSettings):
    """Settings of SGLD."""

    step_size: float = Field(0.01, gt=0, description="eta, in x^2; ours, half of Welling & Teh's eps")


class SGLD(Algorithm[Settings, ParticleState]):
    """Stochastic gradient Langevin dynamics."""

    name = "sgld"
    kind = "chains"
    citation = "Welling & Teh (2011)"
    presets: ClassVar[Presets] = {  # eta is half of each source's eps but for ica-meg-tempered
        # as baseline of the SIFG paper
        "gmm5-2d": TOY_POINTS | code(iterations=2300, step_size=5e-4),
        "ica-meg-tempered": POINTS | code(iterations=3000, step_size=1e-6),
        **on_networks(POINTS | paper(iterations=10000) | code(step_size=2.5e-5)),
        # the paper chose eps in {2e-5, 4e-5, 5e-5, 1e-4}, without saying which for which data
        **{f"bnn-{name}-ksivi": _KSIVI for name in ("boston", "concrete", "power", "wine-red", "protein", "yacht")},
        # LD of the SRLD paper: the script's rate per training row; shipped for energy only
        "bnn-energy-srld": _LD | code(step_size=0.02 / 691),
        **{f"bnn-{name}-srld": _LD | ours(step_size=0.02 / n) for name, n in _SRLD_ROWS.items()},
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> ParticleState:
        """Chains at the task's initial points."""
        return ParticleState.start(problem)

    def step(self, problem: Problem, settings: Settings, state: ParticleState, streams: Streams) -> ParticleState:
        """One Langevin step of every chain."""
        x, eta = state.x, settings.step_size
        noise = streams.normal("noise", x.shape[1:])
        return ParticleState(x.add(problem.score(x), alpha=eta).add_(noise, alpha=math.sqrt(2 * eta)))
