"""Parts that several samplers of chains share: states, diagnostics, the length of a warm-up, seeds for other libraries."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from parvibench.core.streams import Streams, derive_seed
from parvibench.core.task import Problem

#: Energy errors beyond this many nats are divergences, as in Stan.
MAX_ENERGY_ERROR = 1000.0


class Points(NamedTuple):
    """Points with the target's values there."""

    x: Tensor  # (R, N, D)
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)

    @classmethod
    def at(cls, x: Tensor, problem: Problem) -> Points:
        """The points x, evaluated."""
        return cls(x, *problem.log_density_and_score(x))

    def take(self, index: Tensor) -> Points:
        """The points of an index, (R, M): a gather."""
        wide = index.unsqueeze(-1).expand(-1, -1, self.x.shape[-1])
        return Points(self.x.gather(1, wide), self.log_density.gather(1, index), self.score.gather(1, wide))


class Info(NamedTuple):
    """Per-step diagnostics, (R,) each."""

    acceptance: Tensor  # mean probability of accepting a trajectory's end
    divergences: Tensor  # share of the trajectories with an energy error beyond MAX_ENERGY_ERROR, or not a number


class TreeInfo(NamedTuple):
    """Per-step diagnostics of the No-U-Turn sampler, means over the last complete transitions, (R,) each."""

    acceptance: Tensor  # mean over the points of the trajectories
    divergences: Tensor  # share with an energy error beyond MAX_ENERGY_ERROR, or not a number
    tree_depth: Tensor  # doublings begun


def acceptance(log_ratio: Tensor) -> Tensor:
    """Metropolis's probability min(1, exp(log_ratio)); 0 where the ratio is not a number."""
    return log_ratio.clamp(max=0).exp_().nan_to_num_(nan=0.0)


def divergent(log_ratio: Tensor) -> Tensor:
    """1 where a trajectory diverged, else 0: NaN compares false."""
    return (~(log_ratio > -MAX_ENERGY_ERROR)).to(log_ratio)


def warmup_steps(
    problem: Problem, horizon: int, scores: int, *, given: int | None = None, spent: float | None = None
) -> int:
    """The setting ``given``, else the steps in a quarter of the budget, or of the ``horizon`` without a limit.

    A step makes ``scores`` evaluations per chain; ``spent`` are those before the first, by default all charged.
    """
    limit = problem.meter.limit
    if given is not None or limit is None:
        return horizon // 4 if given is None else given
    spent = problem.meter.charged if spent is None else spent
    return max(0, int((limit / 4 - spent) / (scores * problem.particles)))


def seed_of(streams: Streams, *address: object) -> int:
    """A seed of 31 bits for the generator of another library, by the replicate and an address."""
    return derive_seed(streams.seed, "algorithm", streams.replicates[0], *address) >> 32
