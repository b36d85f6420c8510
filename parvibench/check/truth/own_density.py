"""Whether a density of one's own is one: finite at its start, a point's alone, with its gradient as score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from parvibench.check.questions import Expected, Fixed, Values
from parvibench.core import registry

from .steps import TruthQuestion, generator_of
from .task_facts import DensityTruth

_POINTS = 200
_DRAWS = 1000
#: Largest relative difference of a score from differences of the log density, and of a point's density from itself.
_SLOPE, _ALONE = 1e-3, 1e-4


@dataclass(frozen=True)
class OwnDensity(TruthQuestion):
    """The density of a task from a place, at points of its start."""

    task: str  #: ``file.py:OBJECT`` or ``module:OBJECT``
    algorithm: str = "density"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Shares of the points of each replicate: 1 where all is well."""
        task = registry.load_task(self.task)
        target = task.target([0], "cpu", torch.float64)
        values: dict[str, list[float]] = {name: [] for name in self.expected()}
        for r in replicates:
            g = generator_of(self.task, "start", seed, r)
            x = task.initial(target, _POINTS, [g])[:1].double()
            density, score = target.log_density(x), target.score(x)
            along = torch.randn(x.shape, generator=g, dtype=x.dtype)
            step = 1e-5 * (1 + x.abs().amax(-1, keepdim=True))
            if getattr(task, "precision", None) is torch.float32:
                step = 1e3 * step
            up, down = (target.log_density(x + sign * step * along) for sign in (1, -1))
            slope, claimed = (up - down) / (2 * step[..., 0]), (score * along).sum(-1)
            alone = target.log_density(x[:, :1])
            values["finite"].append(float((density.isfinite() & score.isfinite().all(-1)).double().mean()))
            values["gradient"].append(
                float(((slope - claimed).abs() <= _SLOPE * (1 + slope.abs())).double().mean() >= 0.99)
            )
            values["alone"].append(float((alone - density[:, :1]).abs().max() <= _ALONE * (1 + alone.abs().max())))
        return values

    def expected(self) -> Mapping[str, Expected]:
        """All of them."""
        return {name: Fixed(1.0, better="higher") for name in ("finite", "gradient", "alone")}


def own_density_questions(place: str) -> list[TruthQuestion]:
    """The questions of a task from a place; with exact draws also whether they follow its density."""
    task = registry.load_task(place)
    questions: list[TruthQuestion] = [OwnDensity(place)]
    return [*questions, DensityTruth(place, _DRAWS)] if "exact" in task.provides else questions
