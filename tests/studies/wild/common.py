"""What the ported samplers share: chains with what is known at their positions, and the accept-reject step."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from pydantic import Field
from torch import Tensor

import parvibench as pb

M = TypeVar("M", bound=pb.Algorithm)


class Stepped(pb.SteppedSettings):
    """The step in the convention x + eta * score + sqrt(2 eta) * noise."""

    step_size: float = Field(0.1, gt=0, description="eta, in x^2")


class Known(NamedTuple):
    """Chains with log density and score."""

    x: Tensor  # (R, N, D)
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)


class Port(pb.Algorithm[Stepped, Any]):
    """Base of the ports: ``bug`` names the error, or is empty."""

    kind = "chains"
    settings_type = Stepped
    needs: ClassVar[frozenset[str]] = frozenset({"full-batch", "score"})
    bug: ClassVar[str] = ""

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Any:
        x = problem.init()
        return Known(x, *problem.log_density_and_score(x))


def with_bug(port: type[M], bug: str) -> type[M]:
    """The class of a port with an error switched on, under a name that does not tell which."""
    name = f"{port.name}-{bug}" if bug else port.name  # type: ignore[attr-defined]
    return type(port.__name__, (port,), {"bug": bug, "name": name, "__module__": port.__module__})


def choose(accept: Tensor, new: Any, old: Any) -> Any:
    """The new fields where ``accept`` (R, N), the old ones elsewhere."""
    pick = lambda n, o: torch.where(accept.view(*accept.shape, *[1] * (n.dim() - 2)), n, o)  # noqa: E731
    return type(new)(*(pick(n, o) for n, o in zip(new, old, strict=True)))


def below(uniform: Tensor, log_ratio: Tensor) -> Tensor:
    """Where a proposal is accepted; not where the ratio is NaN."""
    return uniform.log() < log_ratio


def half_square(p: Tensor) -> Tensor:
    """Kinetic energy, (R, N)."""
    return 0.5 * p.square().sum(-1)


def eps(settings: Stepped) -> float:
    """Leapfrog step of the same convention."""
    return math.sqrt(2 * settings.step_size)


def leapfrog(problem: pb.Problem, state: Known, p: Tensor, step: float | Tensor, steps: int) -> tuple[Known, Tensor]:
    """End of a trajectory, and its momentum."""
    x, score = state.x, state.score
    log_density = state.log_density
    for _ in range(steps):
        p = p + 0.5 * step * score
        x = x + step * p
        log_density, score = problem.log_density_and_score(x)
        p = p + 0.5 * step * score
    return Known(x, log_density, score), p
