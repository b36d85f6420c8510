"""Easy targets within a tolerance.

Tolerances are wide enough for the bias of discretisation and of few particles, and narrow enough that a wrong sign,
factor or target exceeds them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from parvibench.checks.question import Bound, Expected, Share, Values
from parvibench.checks.summaries import generator_of, per_replicate
from parvibench.checks.targets import STABLE, moments, task_named
from parvibench.core.task import Problem

from .of_sampler import Counted, Observed, OfSampler

#: Positions used of the path of many chains.
_KEPT = 20
#: A run is still on its way where at its half the error was this much larger, at this p-value.
_APPROACH, _SURE = 1.2, 1e-3
#: Distance of a target from the origin in every coordinate.
_AWAY = 4000.0


class Limits(NamedTuple):
    """Largest errors: of a mean in sd, of the ratio of mean squares from 1, of a correlation, of the energy in its sd."""

    mean: float
    variance: float
    correlation: float
    energy: float


#: Few interacting particles spread less than the target.
_INTERACTING = Limits(0.2, 0.5, 0.25, 0.6)
LIMITS = {
    "biased-start-gaussian": Limits(0.25, 0.4, 0.3, 0.4),
    "multimodal": Limits(0.5, 0.6, 0.5, 0.6),
    "banana": Limits(0.5, 0.8, 0.5, 0.6),
    **dict.fromkeys(STABLE, Limits(0.2, 0.3, 0.2, 0.3)),
    # a fit on its last steps
    "unit": Limits(0.2, 0.45, 0.2, 0.45),
}


@dataclass(frozen=True)
class Tolerance(OfSampler):
    """Whether moments come within a stated distance of the exact ones.

    Squares are taken about the exact mean, so that dependent points give no bias. Points that are not finite are left
    out of all moments and counted.
    """

    allow_diverged: float = 0.0  #: share of points that may be not finite
    factor: float = 1.0  #: on all limits

    title: ClassVar[str] = "moments"
    hint: ClassVar[str] = (
        "a factor or sign of the drift or of the noise, too long a step, too few iterations, or endless adaptation"
    )

    def measure(self, replicates: range, seed: int) -> Values:
        """Errors, and the same at half of the run under ``half.``."""
        found: dict[str, list[float]] = {}
        half = max(1, self.effort.steps // 2)
        problems = [self._problem(ids, seed) for ids in per_replicate(replicates, self.loaded.max_chunk)]
        runs = [self.observe(problem, [half]) for problem in problems]
        for prefix, steps in (("", self.effort.steps), ("half.", half)):
            x = torch.cat([self._judged(run, steps) for run in runs]).double()
            found |= {prefix + name: value.tolist() for name, value in self._errors(x).items()}
        return found

    def expected(self) -> Mapping[str, Expected]:
        """Bounds on their averages."""
        interacting = self.loaded.kind == "particles" and self.task in STABLE
        limits = Limits(*(self.factor * v for v in (_INTERACTING if interacting else LIMITS[self.task])))
        dim = task_named(self.task).dim
        found: dict[str, Expected] = {"diverged": Share(self.allow_diverged)}
        for d in range(dim):
            found |= {f"mean[{d}]": Bound(limits.mean), f"variance[{d}]": Bound(limits.variance)}
        found |= {f"correlation[{d}]": Bound(limits.correlation) for d in range(dim - 1)}
        if self.task in STABLE:  # elsewhere one chain that is slow to leave a tail is most of the mean
            found["energy"] = Bound(limits.energy)
        return found

    def unit(self, statistic: str) -> tuple[float, float]:
        """Messages state moments in the unit of x."""
        exact, (kind, _, rest) = moments(self.task), statistic.partition("[")
        d = int(rest[:-1] or 0)
        mean, sd = float(exact.mean[d]), float(exact.sd[d])
        if kind == "correlation":
            return float(exact.correlation[d]), 1.0
        return {"mean": (mean, sd), "variance": (sd**2, sd**2), "energy": exact.energy}.get(kind, (0.0, 1.0))

    def converging(self, statistic: str, values: Mapping[str, Sequence[float]]) -> bool:
        """Whether an error that is too large was still shrinking in the second half of the run."""
        end, half = (np.asarray(values.get(name, ())) for name in (statistic, f"half.{statistic}"))
        kept = np.isfinite(end) & np.isfinite(half) if len(end) == len(half) else np.zeros(len(end), bool)
        if kept.sum() < 3:
            return False
        end, half = np.sign(end[kept].mean()) * np.stack([end[kept], half[kept]])
        return bool(half.mean() > _APPROACH * end.mean() and stats.ttest_1samp(half - end, 0.0).pvalue < _SURE)

    def _problem(self, ids: Sequence[int], seed: int) -> Problem:
        full_batch = "full-batch" in self.loaded.needs
        return task_named(self.task).problem(ids, seed, particles=self.points, full_batch=full_batch)

    def _judged(self, run: Observed, steps: int) -> Tensor:
        """The second half of the paths of chains up to a step, otherwise the output there, (R, n, D)."""
        if self.loaded.kind != "chains":
            return run.outputs[steps]
        half = run.path[steps // 2 : steps]
        every = 1 if self.points == 1 else max(1, len(half) // _KEPT)
        return torch.cat(half[::every], 1)

    def _errors(self, x: Tensor) -> dict[str, Tensor]:
        """(R, n, D) -> statistic -> (R,), NaN where a replicate has no finite point."""
        exact = moments(self.task)
        finite = x.isfinite().all(-1)
        x = torch.where(finite[..., None], x, exact.mean)
        z = (x - exact.mean) / exact.sd
        target = task_named(self.task).target([0], "cpu", torch.float64)
        energy = (target.log_density(x) - exact.energy[0]) / exact.energy[1]
        share = finite.double() / finite.double().sum(1, keepdim=True)  # NaN where none is

        def average(values: Tensor) -> Tensor:
            return (share * values).sum(1)

        found = {"diverged": 1 - finite.double().mean(1), "energy": average(energy)}
        for d in range(x.shape[2]):
            found[f"mean[{d}]"] = average(z[..., d])
            found[f"variance[{d}]"] = average(z[..., d].square()) - 1
        for d, rho in enumerate(exact.correlation):
            found[f"correlation[{d}]"] = average(z[..., d] * z[..., d + 1]) - rho
        return found


@dataclass(frozen=True)
class SinglePrecision(Tolerance):
    """Whether the same is reached in single precision, some thousand sds from the origin."""

    dtype: torch.dtype = torch.float32

    title = "precision"
    hint = "differences of large numbers, as in mean(x^2) - mean(x)^2, or tensors of a fixed dtype"

    def measure(self, replicates: range, seed: int) -> Values:
        """Errors; NaN where double precision is as far off, as of proposals about the origin that do not get there."""
        found = super().measure(replicates, seed)
        if self.dtype == torch.float64 or not self._off(found):
            return found
        double = replace(self, dtype=torch.float64).measure(replicates, seed)
        return {name: [np.nan] * len(values) for name, values in found.items()} if self._off(double) else found

    def _off(self, found: Values) -> bool:
        """Whether an average is beyond its limit."""
        limits = {name: e.limit for name, e in self.expected().items() if isinstance(e, Bound | Share)}
        return any(abs(np.nan_to_num(found[name], nan=np.inf).mean()) > limit for name, limit in limits.items())

    def _problem(self, ids: Sequence[int], seed: int) -> Problem:
        task = task_named(self.task)
        target = Counted(task.target(ids, "cpu", self.dtype), shift=_AWAY)
        start = task.initial(target, self.points, [generator_of("single", seed, r) for r in ids]) + _AWAY
        return self.problem(task, ids, seed, start.to(self.dtype), target, self.dtype)

    def _judged(self, run: Observed, steps: int) -> Tensor:
        return super()._judged(run, steps) - _AWAY
