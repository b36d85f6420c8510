"""Self-repulsive stochastic gradient Hamiltonian Monte Carlo (SR-SGHMC).

Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5, applied to SGHMC (Chen, Fox & Guestrin 2014, Eq. 15):

    v <- (1 - b) v + eta [ s_B(x) + alpha g(x) ] + N(0, 2 b eta I)
    x <- x + v

Force and memory are those of ``srld`` (from step M c on), the step that of ``sghmc``. alpha = 0 is SGHMC,
bit for bit under the same noise, and b = 1 is SRLD. Trap: the sign of alpha g in the paper's Eq. 6, see
``sr-uld``. No experiments and no code for this variant: all defaults are ours.
"""

from typing import NamedTuple

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Problem, Streams

from . import sghmc, srld


class Settings(sghmc.Settings, srld.Settings):
    """Settings of SR-SGHMC: those of SGHMC and of SRLD."""

    step_size: float = Field(1e-3, gt=0, description="eta, what the force enters v by, in x^2; ours")


class State(NamedTuple):
    """The chain, its velocity and its memory."""

    x: Tensor  # (R, 1, D)
    v: Tensor  # (R, 1, D), displacement per step
    memory: srld.Memory


class SRSGHMC(Algorithm[Settings, State]):
    """Self-repulsive stochastic gradient Hamiltonian Monte Carlo."""

    name = "sr-sghmc"
    kind = "chains"
    n_particles = 1
    citation = "Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5"
    example = Example(
        quick={"memory": 2, "spacing": 1}, settings={"step_size": 0.01, "friction": 0.1, "alpha": 1.0}, steps=1500
    )
    move = staticmethod(sghmc.SGHMC.move)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """One chain at the task's initial point, no past."""
        x = problem.init(1)
        v = sghmc.initial_velocity(x, settings.step_size, streams)
        return State(x, v, srld.Memory.empty(x, settings, horizon))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One momentum update and position step under the score and the repulsion."""
        x, v, memory = state
        force, memory = srld.self_repulsive(settings, memory, x, problem.score(x))
        x, v = self.move(settings, x, v, force, streams)
        return State(x, v, memory)
