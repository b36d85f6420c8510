"""Self-repulsive underdamped Langevin dynamics (SR-ULD).

Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5, for the underdamped diffusion: the Stein force g of the
chain's past positions joins the score in the equation of the velocity,

    dx = v dt,   dv = (-gamma v + u [ s(x) + alpha g(x) ]) dt + sqrt(2 gamma u) dB

Force and memory are those of ``srld`` (from step M c on), the integrator that of ``uld``. As g is built from
positions only and the x-marginal is the target, E g = 0 holds as it does there. alpha = 0 is ULD, bit for
bit under the same noise.

Trap: Eq. 6 prints -(f + alpha g), which attracts to the past, and loses sqrt(2 D) in the second phase; the
self-repulsive dynamics is (-f + alpha g) dt + sqrt(2 D) dB. Departs from the paper's general form, which
also allows a kernel on (x, v) jointly. No experiments and no code for this variant: all defaults are ours.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from . import srld
from .sghmc import initial_velocity
from .uld import integrate


class Settings(srld.Settings):
    """Settings of SR-ULD."""

    step_size: float = Field(0.01, gt=0, description="eta = u h^2, in x^2; ours")
    friction: float = Field(0.5, ge=1e-3, description="g = gamma h, dimensionless; ours")


class State(NamedTuple):
    """The chain, its velocity and its memory, field by field."""

    x: Tensor  # (R, 1, D)
    v: Tensor  # (R, 1, D), displacement per step
    past: Tensor  # (R, M, D)
    past_scores: Tensor  # (R, M, D)
    k: int
    thinning: int


class SRULD(Algorithm[Settings, State]):
    """Self-repulsive underdamped Langevin dynamics."""

    name = "sr-uld"
    kind = "chains"
    needs = frozenset({"score"})
    settings_type = Settings
    n_particles = 1
    citation = "Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5"
    summary = "self-repulsive underdamped Langevin dynamics"

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """One chain at the task's initial point, no past."""
        x = problem.init(1)
        v = initial_velocity(x, settings.step_size, streams)
        return State(x, v, *srld.Memory.empty(x, settings, horizon))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One step under the score and the repulsion."""
        x, v = state.x, state.v
        force, memory = srld.self_repulsive(settings, srld.Memory(*state[2:]), x, problem.score(x))
        x, v = integrate(x, v, force, streams, settings.step_size, settings.friction)
        return State(x, v, *memory)
