"""Samplers that claim to be exact: a reversible kernel that leaves every target alone, whatever its settings.

The target's unit is chosen so that the sampler's step is long in it: there mistakes show that a short step hides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from parvibench.checks.question import Expected, Values
from parvibench.checks.ranks import rank_functions, rank_statistics, ranks_of, uniform_ranks
from parvibench.checks.summaries import SETS, generator_of, laws, per_replicate, summaries
from parvibench.checks.targets import STABLE, StableTask

from .of_sampler import OfSampler

#: Units of x that are tried, and the run that chooses among them.
_UNITS = tuple(2.0**-k for k in range(-2, 9))
_PILOT_STEPS, _PILOT_CHAINS = 10, 100
#: Share of moves, of those at the best unit, that a harder unit must leave.
_LEFT = 0.5


@dataclass(frozen=True)
class Exactness(OfSampler):
    """Whether chains from exact draws stay exact draws, and these are no outliers among the chain's points.

    Asked at two units of x: that in which steps reach farthest, and a smaller one, at which many moves are rejected.
    """

    length: int = 9  #: of the chains in which exact draws are ranked

    def measure(self, replicates: range, seed: int) -> Values:
        """Summaries of the last positions and of ranks, at both units."""
        found: dict[str, list[float]] = {}
        for label, unit in zip(("far", "hard"), self._units(), strict=True):
            task = STABLE[self.task].in_units(unit)
            for chunk in per_replicate(replicates, self.loaded.max_chunk):
                draws = [task.exact(self.points, generator_of(self.task, "exact", seed, r)) for r in chunk]
                path = self._path(task, torch.stack(draws), tuple(chunk), seed)
                end, target = path[self.effort.steps], task.target(chunk, "cpu", torch.float64)
                part = summaries(end / unit, target.log_density(end), f"{label}.kept.")
                for name, values in {**part, **self._ranks(task, path[0], tuple(chunk), seed, label)}.items():
                    found.setdefault(name, []).extend(values)
        return found

    def expected(self) -> Mapping[str, Expected]:
        """What exact draws give."""
        dim = STABLE[self.task].dim
        functions = len(rank_functions(torch.zeros(1, 1, dim), torch.zeros(1, 1)))
        law = dict(_exact_summaries(self.task, self.points)) | dict(uniform_ranks(self.length, self.points, functions))
        return {f"{label}.{name}": e for label in ("far", "hard") for name, e in law.items()}

    def _path(self, task: StableTask, start: Tensor, ids: tuple[int, ...], seed: int, steps: int = 0) -> list[Tensor]:
        """Positions from the start on."""
        question = replace(self, effort=replace(self.effort, steps=steps or self.effort.steps))
        problem = question.problem(task, task.target(ids, "cpu", torch.float64), ids, seed, start)
        return [start, *question.observe(problem).path]

    def _ranks(self, task: StableTask, start: Tensor, ids: tuple[int, ...], seed: int, label: str) -> Values:
        # For a reversible kernel, backwards is forwards with other noise.
        ways = [torch.stack(self._path(task, start, ids, 2 * seed + i, self.length)[1:]) for i in (0, 1)]
        target = task.target(ids, "cpu", torch.float64)
        statistics = rank_statistics(ranks_of(target, start, ways, generator_of("place", seed, ids)), self.length)
        return {f"{label}.{name}": values for name, values in statistics.items()}

    def _units(self) -> tuple[float, float]:
        """The unit at which the mean square of ten steps is largest, and a smaller one where most moves fail."""
        jumps = {unit: self._mean_square(unit) for unit in _UNITS}
        far = max(jumps, key=jumps.__getitem__)
        hard = [u for u in _UNITS if u < far and jumps[u] > 0]
        return far, min((u for u in hard if jumps[u] >= _LEFT * jumps[far]), default=far / 2)

    def _mean_square(self, unit: float) -> float:
        """Mean square of the steps of a short run from exact draws, in units; 0 where one is not finite."""
        task = STABLE[self.task].in_units(unit)
        pilot = replace(self, effort=replace(self.effort, points=_PILOT_CHAINS))
        start = task.exact(pilot.points, generator_of("pilot"))[None]
        path = torch.stack(pilot._path(task, start, (0,), 0, _PILOT_STEPS)) / unit
        square = float(path.diff(dim=0).square().mean())
        return square if torch.isfinite(path).all() else 0.0


@cache
def _exact_summaries(name: str, points: int) -> Mapping[str, Expected]:
    task = STABLE[name]
    x = task.exact(SETS * points, generator_of(name, "law")).view(SETS, points, task.dim)
    return laws(summaries(x, task.target([0], "cpu", torch.float64).log_density(x), "kept."))
