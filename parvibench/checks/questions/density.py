"""The density of a task from outside, and exact draws, score and stated moments of a task, compared with each other.

Under exact draws ``E[phi(x) s(x).v + v . grad phi(x)] = 0`` for the score s, any direction v and smooth bounded phi
(Stein's identity): it fails when the draws have another law than the score's. The score itself is compared with the
derivative of the log density by automatic differentiation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from parvibench.checks.question import Bound, Expected, Fixed, Question, Values
from parvibench.checks.summaries import as_values, generator_of, joined
from parvibench.core.registry import load_task
from parvibench.core.target import Target
from parvibench.core.task import Task

_DIRECTIONS = 3
#: Draws that set the scale of the test functions.
_SCALED_BY = 500
#: Largest difference of a score from the derivative of the log density, relative to the largest entry.
_AGREEMENT = 1e-8
#: Points of a start, and exact draws, at which the density of a task from outside is evaluated.
_POINTS, _DRAWS = 200, 1000
#: Largest relative difference of a score from differences of the log density, and of a point's density from itself.
_SLOPE, _ALONE = 1e-3, 1e-4


@dataclass(frozen=True)
class DensityTruth(Question):
    """Whether a task's exact draws, score, log density and moments agree."""

    task: str  #: one with an exact sampler
    draws: int  #: in a replicate
    algorithm = "density"
    title = "density"
    hint = "a constant, a sign, a factor or a Jacobian that one of density, score and draws lacks"

    def measure(self, replicates: range, seed: int) -> Values:
        """Means over the draws of statistics with mean zero, and whether the score is the gradient."""
        task = load_task(self.task)
        target, parts = task.target([0], "cpu", torch.float64), []
        for r in replicates:
            x = task.exact(self.draws, generator_of(self.task, "draws", seed, r))[None]
            zeros = self._zeros(task, x, target.score(x)).items()
            agrees = {"gradient": [float(is_gradient(target, x[:, :_SCALED_BY]))]}
            parts.append({name: as_values(value.mean()[None]) for name, value in zeros} | agrees)
        return joined(parts)

    def expected(self) -> Mapping[str, Expected]:
        """Zero on average; the score is always the gradient."""
        task = load_task(self.task)
        x = task.exact(2, generator_of(self.task, "names"))[None]
        return {name: Bound(0.0) for name in self._zeros(task, x, x)} | {"gradient": Fixed(1.0, better="higher")}

    def _zeros(self, task: Task, x: Tensor, score: Tensor) -> dict[str, Tensor]:
        """E s = 0 along directions, and Stein's identity with the tanh of one direction along another.

        Errors of stated means and variances along the first and last coordinates, where both settle.
        """
        along, centre, scale = _frame(self.task)
        s = score @ along.T
        z = (x @ along.T - centre) / scale
        found = {f"score[{k}]": s[..., k] for k in range(_DIRECTIONS)}
        for k in range(_DIRECTIONS):
            j = (k + 1) % _DIRECTIONS
            phi, slope = torch.tanh(z[..., k]), torch.cosh(z[..., k]) ** -2 / scale[k]
            for name, other in ((f"stein[{k}]", k), (f"stein[{k},{j}]", j)):
                found[name] = phi * s[..., other] + slope * (along[k] @ along[other])
        mean, sd = task.facts.mean, task.facts.sd
        if mean is None or sd is None or "heavy-tailed" in task.tags:
            return found
        z = (x - mean) / sd
        ends = {0, task.dim - 1}
        found |= {f"mean[{d}]": z[..., d] for d in ends} | {f"variance[{d}]": z[..., d] ** 2 - 1 for d in ends}
        return found | {"variance[all]": (z**2).mean(-1) - 1}


@cache
def _frame(task_name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Unit directions (K, D), and median and half the interquartile range of exact draws along them, (K,)."""
    task, g = load_task(task_name), generator_of(task_name, "frame")
    along = torch.randn(_DIRECTIONS, task.dim, generator=g, dtype=torch.float64)
    along[0] = torch.eye(task.dim, dtype=torch.float64)[0]
    along = along / along.norm(dim=1, keepdim=True)
    quarters = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    low, centre, high = (task.exact(_SCALED_BY, g) @ along.T).quantile(quarters, dim=0)
    return along, centre, (high - low) / 2


def is_gradient(target: Target, x: Tensor) -> bool:
    """Whether the score is the derivative of the log density, by autograd."""
    leaf = x.clone().requires_grad_()
    gradient = torch.autograd.grad(target.log_density(leaf).sum(), leaf)[0]
    return bool((target.score(x) - gradient).abs().max() <= _AGREEMENT * (1 + gradient.abs().max()))


@dataclass(frozen=True)
class OwnDensity(Question):
    """The density of a task from a place, at points of its start."""

    task: str  #: ``file.py:OBJECT`` or ``module:OBJECT``
    algorithm = "density"
    title = "density"
    hint = "a score that is not the derivative of the log density, or a density that remembers"

    def measure(self, replicates: range, seed: int) -> Values:
        """Shares of the points of each replicate: 1 where all is well."""
        task = load_task(self.task)
        target = task.target([0], "cpu", torch.float64)
        parts = []
        for r in replicates:
            g = generator_of(self.task, "start", seed, r)
            x = task.initial(target, _POINTS, [g])[:1].double()
            density, score = target.log_density(x), target.score(x)
            along = torch.randn(x.shape, generator=g, dtype=x.dtype)
            step = 1e-5 * (1 + x.abs().amax(-1, keepdim=True))
            if task.precision is torch.float32:
                step = 1e3 * step
            up, down = (target.log_density(x + sign * step * along) for sign in (1, -1))
            slope, claimed = (up - down) / (2 * step[..., 0]), (score * along).sum(-1)
            alone = target.log_density(x[:, :1])
            twice = zip((density[..., None], score), (target.log_density(x)[..., None], target.score(x)), strict=True)
            same = [((a - b).abs() <= _ALONE * (1 + a.abs())) | ~a.isfinite() for a, b in twice]
            found = {
                "again": torch.cat(same, -1).all(-1),
                "finite": density.isfinite() & score.isfinite().all(-1),
                "gradient": ((slope - claimed).abs() <= _SLOPE * (1 + slope.abs())).double().mean() >= 0.99,
                "alone": (alone - density[:, :1]).abs().max() <= _ALONE * (1 + alone.abs().max()),
            }
            parts.append({name: [float(value.double().mean())] for name, value in found.items()})
        return joined(parts)

    def expected(self) -> Mapping[str, Expected]:
        """All of them."""
        return {name: Fixed(1.0, better="higher") for name in ("again", "finite", "gradient", "alone")}


def own_density_questions(place: str) -> list[Question]:
    """The questions of a task from a place; with exact draws also whether they follow its density."""
    task = load_task(place)
    questions: list[Question] = [OwnDensity(place)]
    return [*questions, DensityTruth(place, _DRAWS)] if "exact" in task.provides else questions
