"""Samplers that claim to be exact: a kernel that leaves every target invariant, whatever its settings, and is reversible.

The target's unit is chosen so that the sampler's step is long in it: there mistakes show that a short step hides.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from parvibench.checks.question import Bound, Expected, Values
from parvibench.checks.summaries import (
    as_values,
    generator_of,
    joined,
    per_replicate,
    rank_functions,
    rank_statistics,
    ranks_of,
    uniform_ranks,
)
from parvibench.checks.targets import STABLE, StableTask, moments

from .of_sampler import OfSampler

#: Units of x that are tried, and the run that chooses among them.
_UNITS = tuple(2.0**-k for k in range(-2, 9))
_PILOT_STEPS, _PILOT_CHAINS = 10, 100
#: Share of moves, of those at the best unit, that a harder unit must leave.
_LEFT = 0.5
#: Replicates in a call, at most, since all positions are stored; steps after which positions are judged alone.
_AT_ONCE, _SOON = 20, 12


@dataclass(frozen=True)
class FromExactDraws(OfSampler):
    """Chains from exact draws, at two units of x."""

    def units(self) -> dict[str, float]:
        """``far.``, the unit in which steps reach farthest, and ``hard.``, a smaller one where many moves are rejected."""
        return _units(
            Invariance(self.task, self.sampler, replace(self.effort, steps=_PILOT_STEPS, points=_PILOT_CHAINS))
        )

    def measure(self, replicates: range, seed: int) -> Values:
        """The statistics at every unit, one value per replicate."""
        found: dict[str, list[float]] = {}
        for label, unit in self.units().items():
            task, chunks = STABLE[self.task].in_units(unit), []
            for ids in per_replicate(replicates, min(_AT_ONCE, self.loaded.max_chunk or _AT_ONCE)):
                drawn = [task.exact(self.points, generator_of(self.task, self.title, seed, r)) for r in ids]
                chunks.append(self.statistics(task, torch.stack(drawn), ids, seed))
            found |= {label + name: values for name, values in joined(chunks).items()}
        return found

    @abstractmethod
    def statistics(self, task: StableTask, start: Tensor, ids: tuple[int, ...], seed: int) -> Values:
        """Statistic -> one value for each of these replicates, which start at exact draws (R, N, D)."""

    def path(self, task: StableTask, start: Tensor, ids: tuple[int, ...], seed: int) -> Tensor:
        """Positions from the start on, in units, (T + 1, R, N, D)."""
        return torch.stack([start, *self.observe(self.problem(task, ids, seed, start)).path]) / task.unit


@cache
def _units(pilot: FromExactDraws) -> dict[str, float]:
    """The unit at which the mean square of ten steps is largest, and a smaller one where most moves fail."""
    jumps = {}
    for unit in _UNITS:
        task = STABLE[pilot.task].in_units(unit)
        path = pilot.path(task, task.exact(pilot.points, generator_of("pilot"))[None], (0,), 0)
        jumps[unit] = float(path.diff(dim=0).square().mean()) if torch.isfinite(path).all() else 0.0
    far = max(jumps, key=jumps.__getitem__)
    hard = [u for u in _UNITS if u < far and jumps[u] > 0]
    return {"far.": far, "hard.": min((u for u in hard if jumps[u] >= _LEFT * jumps[far]), default=far / 2)}


@dataclass(frozen=True)
class Invariance(FromExactDraws):
    """Whether chains from exact draws stay exact draws, soon and averaged over many steps.

    - ``bias``, ``excess``: errors of means and variances, in sds and variances; ``kept.``: after 12 steps.
    - ``stein[i,j]``: z_i s_j + (i = j) for the score s, in units of the sd; 0 by Stein's identity.

    Of a kernel that is ``adapted`` the second half of a run is averaged, when adaptation has ended.
    """

    adapted: bool = False  #: whether the claim holds from half of the run on

    title = "invariance"

    @property
    def hint(self) -> str:  # type: ignore[override]
        """Usual causes, those that the claim suggests first."""
        causes = "the acceptance ratio, a proposal's density or Jacobian, an old value in the state"
        if self.adapted:
            return f"adaptation that goes on after half of the run, {causes}"
        momentum = "a momentum that keeps its sign after a rejection (generalised HMC), "
        return f"{momentum * (self.loaded.exact is not True)}{causes}, endless adaptation"

    def units(self) -> dict[str, float]:
        """One alone where the sampler has adapted to it."""
        return {"": 1.0} if self.adapted else super().units()

    def statistics(self, task: StableTask, start: Tensor, ids: tuple[int, ...], seed: int) -> Values:
        """Averages over chains."""
        path = self.path(task, start, ids, seed)
        parts = {"": path[1:], "kept.": path[_SOON : _SOON + 1]}
        if self.adapted:
            parts = {"": path[len(path) // 2 :]}
        return {part + name: as_values(v) for part, x in parts.items() for name, v in self._averages(x).items()}

    def expected(self) -> Mapping[str, Expected]:
        """No error on average."""
        names = self._averages(torch.zeros(1, 1, 1, STABLE[self.task].dim, dtype=torch.float64))
        labels = [""] if self.adapted else ["far.", "far.kept.", "hard.", "hard.kept."]
        return {label + name: Bound(0.0) for label in labels for name in names}

    def _averages(self, x: Tensor) -> dict[str, Tensor]:
        """Of positions (T, R, N, D), (R,) each."""
        task, exact = STABLE[self.task], moments(self.task)
        score = task.score(x) * exact.sd
        z, d = (x - exact.mean) / exact.sd, range(task.dim)
        found = {f"bias[{i}]": z[..., i] for i in d} | {f"excess[{i}]": z[..., i].square() - 1 for i in d}
        found |= {f"stein[{i},{j}]": z[..., i] * score[..., j] + (i == j) for i in d for j in d}
        return {name: value.mean((0, 2)) for name, value in found.items()}


@dataclass(frozen=True)
class Parted(Invariance):
    """Invariance on two parts 1.7 apart in x, of sds 0.3 and 0.45, and with half of that.

    There intervals of a sampler's own width end in the gap. Other units would not do: where steps reach farthest a move
    covers both parts, or stays in one.
    """

    def units(self) -> dict[str, float]:
        """As the other targets of a check, and half of that."""
        return {"far.": 1.0, "hard.": 0.5}


@dataclass(frozen=True)
class Reversibility(FromExactDraws):
    """Whether a chain from an exact draw looks the same in both directions of time.

    - ``rank``, ``rank_spread``: of the draw in the chain through it (``summaries.py``).
    - ``flow``: mean of f(x) g(x') - g(x) f(x') over moves x -> x', for pairs of functions f, g; 0 under detailed balance.
    """

    title = "reversibility"
    hint = "a proposal that favours a direction without its correction, an old value in the state, a fixed order of updates"

    def statistics(self, task: StableTask, start: Tensor, ids: tuple[int, ...], seed: int) -> Values:
        """Ranks and flows."""
        # For a reversible kernel, backwards is forwards with other noise.
        ways = [self.path(task, start, ids, 2 * seed + i) for i in (0, 1)]
        target = STABLE[self.task].target(ids, "cpu", torch.float64)
        ranks = ranks_of(target, start / task.unit, [way[1:] for way in ways], generator_of("place", seed, ids))
        return {**rank_statistics(ranks, self.effort.steps), **_flows(torch.cat(ways, 2))}

    def expected(self) -> Mapping[str, Expected]:
        """Uniform ranks and no flow."""
        x = torch.zeros(2, 1, 1, STABLE[self.task].dim)
        uniform = uniform_ranks(self.effort.steps, self.points, len(rank_functions(x[0], x[0, ..., 0])))
        law = {**uniform, **dict.fromkeys(_flows(x), Bound(0.0))}
        return {label + name: e for label in ("far.", "hard.") for name, e in law.items()}


def _flows(x: Tensor) -> dict[str, list[float]]:
    """``flow`` along paths (T + 1, R, N, D), of coordinates, their squares and the product of the first two."""
    f = [*x.unbind(-1), *x.square().unbind(-1), x[..., 0] * x[..., 1]]
    pairs = [(f[i], f[j]) for i in range(len(f)) for j in range(i)]
    return {f"flow[{k}]": as_values((a[:-1] * b[1:] - b[:-1] * a[1:]).mean((0, 2))) for k, (a, b) in enumerate(pairs)}
