"""Stochastic gradient Hamiltonian Monte Carlo (SGHMC).

Chen, Fox & Guestrin (2014), arXiv:1402.4102, Eq. 15, in the terms of momentum SGD:

    v <- (1 - b) v + eta s_B(x) + N(0, 2 b eta I)
    x <- x + v

with friction b and no estimate of the mini-batch noise (beta^ = 0, as in the paper's runs). v is a
displacement per step; it starts from its law under the diffusion, N(0, eta I). b = 1 is SGLD; for small b
it moves like a Langevin step of eta / b.

On a Gaussian of precision c the chain is linear, and its law solves S = A S A^T + Q over (x, v),

    A = [[1 - c eta, 1 - b], [-c eta, 1 - b]],   Q = 2 b eta [[1, 1], [1, 1]]

Trap: the noise is N(0, 2 b eta) in variance, and eta is the square of the leapfrog length.
"""

import math
from typing import NamedTuple

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Problem, SteppedSettings, Streams


class Settings(SteppedSettings):
    """Settings of SGHMC."""

    step_size: float = Field(1e-3, gt=0, description="eta, what the score enters v by, in x^2; ours")
    friction: float = Field(0.1, gt=0, le=1, description="b, share of v lost per step; paper (alpha of momentum SGD)")


class State(NamedTuple):
    """Chains with their velocities."""

    x: Tensor  # (R, N, D)
    v: Tensor  # (R, N, D), displacement per step


class SGHMC(Algorithm[Settings, State]):
    """Stochastic gradient Hamiltonian Monte Carlo."""

    name = "sghmc"
    kind = "chains"
    citation = "Chen, Fox & Guestrin (2014), arXiv:1402.4102"
    example = Example(settings={"step_size": 0.01, "friction": 0.1}, steps=150)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points."""
        x = problem.init()
        return State(x, initial_velocity(x, settings.step_size, streams))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One momentum update and position step of every chain."""
        x, v = state
        return State(*self.move(settings, x, v, problem.score(x), streams))

    @staticmethod
    def move(settings: Settings, x: Tensor, v: Tensor, force: Tensor, streams: Streams) -> tuple[Tensor, Tensor]:
        """New x and v under the force s (or s + alpha g); all (R, N, D)."""
        eta, b = settings.step_size, settings.friction
        noise = streams.normal("noise", x.shape[1:])
        v = ((1 - b) * v).add_(force, alpha=eta).add_(noise, alpha=math.sqrt(2 * b * eta))
        return x + v, v


def initial_velocity(x: Tensor, eta: float, streams: Streams) -> Tensor:
    """Draws from N(0, eta I) of the shape of x, (R, N, D)."""
    return math.sqrt(eta) * streams.normal("init", x.shape[1:])
