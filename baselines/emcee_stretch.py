"""The affine-invariant ensemble sampler (stretch move), as emcee implements it.

Goodman & Weare (2010), doi:10.2140/camcos.2010.5.65; Foreman-Mackey, Hogg, Lang & Goodman (2013), arXiv:1202.3665: a
walker of one half of the ensemble moves along the line through one of the other half,

    y = x' + z (x - x'),   p(z) ~ z^(-1/2) on [1/a, a],   accepted with min(1, z^(D-1) p(y) / p(x))

No gradients: a step costs N log densities, each charged as one evaluation; both halves are evaluated in one call each.
The walkers are the N chains. emcee asks for at least 2 D of them.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.core.errors import UnsupportedError, imported_library

from ._chains import seed_of


class Settings(AlgorithmSettings):
    """Settings of the stretch move."""

    stretch: float = Field(2.0, gt=1, description="a, longest stretch; Goodman & Weare, emcee")


class State(NamedTuple):
    """The ensemble."""

    x: Tensor  # (1, N, D)
    log_density: Tensor  # (1, N)


class Info(NamedTuple):
    """Per-step diagnostics, (1,)."""

    acceptance: Tensor  # share of walkers that moved


class Emcee(Algorithm[Settings, State]):
    """Affine-invariant ensemble of walkers, no gradients (external)."""

    name = "emcee"
    kind = "chains"
    needs = frozenset({"full-batch"})
    max_chunk = 1
    host_bound = True
    library = "emcee"
    citation = "Goodman & Weare (2010); Foreman-Mackey et al. (2013), arXiv:1202.3665"
    example = Example(settings={}, steps=200, both_modes=False)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """The ensemble at the initial points; ``UnsupportedError`` with fewer than 2 D walkers."""
        imported_library("emcee")
        x = problem.init()
        if x.shape[1] < 2 * problem.dim:
            raise UnsupportedError(f"emcee needs at least 2 D = {2 * problem.dim} walkers, got {x.shape[1]} particles")
        return State(x, problem.log_density(x))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """Move both halves of the ensemble."""
        moves, model = imported_library("emcee.moves"), imported_library("emcee.model").Model

        def log_densities(points: Any) -> tuple[Any, None]:
            x = torch.as_tensor(points, dtype=problem.dtype, device=problem.device).unsqueeze(0)
            return np.nan_to_num(problem.log_density(x)[0].double().cpu().numpy(), nan=-np.inf), None

        draws = np.random.RandomState(seed_of(streams, "emcee", streams.step))
        held = imported_library("emcee.state").State(
            state.x[0].double().cpu().numpy().copy(), log_prob=state.log_density[0].double().cpu().numpy().copy()
        )  # emcee writes into both
        move = moves.StretchMove(a=settings.stretch)
        moved, accepted = move.propose(model(None, log_densities, map, draws), held)
        x, density = (state.x.new_tensor(v).unsqueeze(0) for v in (moved.coords, moved.log_prob))
        return State(x, density), Info(x.new_tensor([accepted.mean()]))
