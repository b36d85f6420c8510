"""Langevin algorithm with prior diffusion and decaying steps.

Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183, Theorem 4.2: LAPD (see ``lapd``) with

    eta_{k+1} = 8 h / (9 + 3 h a (k - K)_+),   k = 0, 1, ...

a: constant of the log-Sobolev inequality; K: steps at the first, constant length 8 h / 9. The theorem's claim is that
the error then falls like 1/k without the logarithm that a fixed step pays.

The paper takes h as the least of four bounds and K = ceil(9 / (8 h a) ln(KL_0 a / (123 h Tr H))); on a target of
unknown constants they are settings. Trap: the length of stage 1 follows from the step's own eta and changes with it.
"""

from typing import NamedTuple

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Problem, Streams

from . import lapd


class Settings(lapd.Settings):
    """Settings of LAPD with decaying steps."""

    step_size: float = Field(0.01, gt=0, description="h, 9/8 of the first step, in x^2; ours")
    log_sobolev: float = Field(1.0, gt=0, description="a, the log-Sobolev constant, in 1/x^2; ours (N(0, I): 1)")
    constant_steps: int = Field(0, ge=0, description="K, steps before the decay begins; ours")


class State(NamedTuple):
    """Chains and the number of steps taken."""

    x: Tensor  # (R, N, D)
    k: int


class LAPDDecay(Algorithm[Settings, State]):
    """Langevin algorithm with prior diffusion, decaying steps."""

    name = "lapd-decay"
    kind = "chains"
    needs = frozenset({"full-batch", "score"})
    rescales = True
    citation = "Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183, Theorem 4.2"
    presets = lapd.LAPD.presets

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points."""
        lapd.warn_if_ignored(problem, settings)
        return State(problem.init(), 0)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """A step of both stages for every chain, at the length of this step."""
        eta = scheduled_step(settings, state.k)
        return State(lapd.both_stages(problem, state.x, eta, settings, streams), state.k + 1)


def scheduled_step(settings: Settings, k: int) -> float:
    """eta_{k+1}, in x^2."""
    h, a = settings.step_size, settings.log_sobolev
    return 8 * h / (9 + 3 * h * a * max(0, k - settings.constant_steps))
