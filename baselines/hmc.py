"""Hamiltonian Monte Carlo (HMC) with the leapfrog integrator.

Neal (2011), MCMC using Hamiltonian dynamics, arXiv:1206.1901, Section 3; identity mass. From momentum
p ~ N(0, I), L leapfrog steps of length eps,

    p <- p + (eps/2) s(x);   then L times   x <- x + eps p,   p <- p + eps s(x)   (eps/2 at the last),

the end point is accepted with probability min(1, exp(H_start - H_end)), H = -log pi(x) + ||p||^2 / 2.

The step is stated in the common convention eta = eps^2 / 2, in which L = 1 is MALA. ``jitter`` draws eps
uniformly within eps (1 -+ jitter) for each chain and trajectory (Neal, Section 3.2), which breaks up
periodic orbits. Score and log density at x are in the state: a trajectory costs L evaluations. A trajectory that
ends in NaN is rejected. Trap: codes differ by one drift for the same "L".
"""

import math
from typing import ClassVar

from pydantic import Field

from parvibench.core.algorithm import Algorithm, Example, Presets, Problem, SteppedSettings, Streams, code, paper
from parvibench.nn.masks import where

from ._chains import Info, Points, acceptance, divergent

_MEG = paper(step_size=1.25e-7, jitter=0.0, iterations=100_000, particles=1, burn_in=50_000, thinning=1, samples=50_000)


class Settings(SteppedSettings):
    """Settings of HMC."""

    step_size: float = Field(0.01, gt=0, description="eta = eps^2 / 2 of one leapfrog step, in x^2; ours")
    leapfrog_steps: int = Field(10, ge=1, description="L, drifts (and evaluations) per trajectory; ours")
    jitter: float = Field(0.0, ge=0, lt=1, description="relative half-width of the uniform law of eps; Neal (3.2)")


class HMC(Algorithm[Settings, Points]):
    """Hamiltonian Monte Carlo, fixed number of leapfrog steps."""

    name = "hmc"
    kind = "chains"
    exact = True
    needs = frozenset({"full-batch", "score"})
    citation = "Neal (2011), arXiv:1206.1901"
    example = Example(
        quick={"leapfrog_steps": 3, "jitter": 0.2}, scores=3, first_scores=1, steps=50,
        settings={"step_size": 0.1, "leapfrog_steps": 4},
    )  # fmt: skip
    # SIFG's ground truth: eps = 5e-4, 40 steps in the text, 41 drifts in the code, which tempers the likelihood
    presets: ClassVar[Presets] = {
        "ica-meg": _MEG | paper(leapfrog_steps=40),
        "ica-meg-tempered": _MEG | code(leapfrog_steps=41),
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> Points:
        """Chains at the task's initial points."""
        return Points.at(problem.init(), problem)

    def step(self, problem: Problem, settings: Settings, state: Points, streams: Streams) -> tuple[Points, Info]:
        """One trajectory of every chain."""
        x, momentum = state.x, streams.normal("noise", state.x.shape[1:])
        uniform = streams.uniform("algorithm", (x.shape[1], 1), index=1)
        eps = math.sqrt(2 * settings.step_size) * (1 + settings.jitter * (2 * uniform - 1))
        p = momentum + (eps / 2) * state.score
        for _ in range(settings.leapfrog_steps - 1):
            x = x + eps * p
            p = p + eps * problem.score(x)
        there = Points.at(x + eps * p, problem)
        p = p + (eps / 2) * there.score

        energy_drop = there.log_density - state.log_density
        energy_drop = energy_drop + 0.5 * (momentum.square().sum(-1) - p.square().sum(-1))
        probability = acceptance(energy_drop)
        accept = streams.uniform("algorithm", probability.shape[1:]) < probability
        return where(accept, there, state), Info(probability.mean(1), divergent(energy_drop).mean(1))
