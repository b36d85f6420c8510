"""Questions for any sampler: easy targets within a tolerance, and the contract of the interface.

Tolerances are wide enough for the bias of discretisation and of few particles, and narrow enough that a wrong sign,
factor or target exceeds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from parvibench.check.questions import Bound, Expected, Fixed, Values
from parvibench.core.algorithm import Algorithm
from parvibench.core.registry import load_algorithm, load_task
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from .metering import Counted
from .steps import Settings, TruthQuestion, as_values, per_replicate, run

#: A registered name, ``module:Class``, ``file.py:Class``, or the object, for measurements in this process only.
Sampler = str | Algorithm

#: Positions kept of the path of many chains.
_KEPT = 20
#: Task -> largest error of a mean, in sd, and of the ratio of mean squares about the exact mean from 1.
LIMITS = {"biased-start-gaussian": (0.25, 0.4), "multimodal": (0.5, 0.6), "banana": (0.5, 0.8)}


@dataclass(frozen=True)
class Effort:
    """Settings and length of a run."""

    settings: Settings = ()  #: overrides of the defaults
    steps: int = 200  #: taken
    points: int = 50  #: N of particles and chains, and number of samples judged


@dataclass(frozen=True)
class _OfSampler(TruthQuestion):
    """A question about one sampler on one task."""

    task: str
    sampler: Sampler
    effort: Effort

    @property
    def algorithm(self) -> str:  # type: ignore[override]
        """The sampler's name."""
        return self.sampler if isinstance(self.sampler, str) else self.sampler.name

    @property
    def _algorithm(self) -> Algorithm:
        return load_algorithm(self.sampler) if isinstance(self.sampler, str) else self.sampler

    def _samples(self, problem: Problem) -> tuple[Tensor, list[Tensor]]:
        """The output after all steps, (R, n, D), and all positions before."""
        algorithm, streams = self._algorithm, problem.streams
        settings = algorithm.make_settings(dict(self.effort.settings))
        state, path = run(algorithm, settings, problem, self.effort.steps)
        with torch.inference_mode():
            return algorithm.output(problem, settings, state, self.effort.points, streams), path


@dataclass(frozen=True)
class Tolerance(_OfSampler):
    """Whether means and variances come within a stated distance of the exact ones.

    Squares are taken about the exact mean, so that dependent points give no bias.
    """

    def measure(self, replicates: range, seed: int) -> Values:
        """Both errors, for each coordinate."""
        task, chunks = load_task(self.task), per_replicate(replicates, self._algorithm.max_chunk)
        mean, sd = task.facts.mean, task.facts.sd
        assert mean is not None
        assert sd is not None
        x = torch.cat([self._judged(chunk, seed) for chunk in chunks]).double()
        z = (x - mean) / sd
        found = {f"mean[{d}]": as_values(z[..., d].mean(1)) for d in range(task.dim)}
        return found | {f"variance[{d}]": as_values(z[..., d].square().mean(1) - 1) for d in range(task.dim)}

    def expected(self) -> Mapping[str, Expected]:
        """Bounds on their averages."""
        found: dict[str, Expected] = {}
        for d in range(load_task(self.task).dim):
            for name, limit in zip(("mean", "variance"), LIMITS[self.task], strict=True):
                found[f"{name}[{d}]"] = Bound(limit)
        return found

    def _judged(self, ids: Sequence[int], seed: int) -> Tensor:
        """The second half of the paths of chains, otherwise the output, (R, n, D)."""
        algorithm = self._algorithm
        points, full_batch = algorithm.n_particles or self.effort.points, "full-batch" in algorithm.needs
        problem = load_task(self.task).problem(ids, seed, particles=points, full_batch=full_batch)
        output, path = self._samples(problem)
        if algorithm.kind != "chains":
            return output
        half = path[len(path) // 2 :]
        every = 1 if output.shape[1] == 1 else max(1, len(half) // _KEPT)
        return torch.cat(half[::every], 1)


@dataclass(frozen=True)
class Contract(_OfSampler):
    """The promises of every algorithm, each 1 where it is kept.

    - ``alone``: a replicate's samples do not depend on the other replicates (to 1e-4 of their size, in double).
    - ``distinct``: no other replicate has the same samples.
    - ``repeatable``: the same seed gives the same samples.
    - ``finite``, ``shape``: of the output.
    - ``metered``: what is charged is what was evaluated beneath the problem.
    """

    def measure(self, replicates: range, seed: int) -> Values:
        """0 or 1 for every promise and replicate."""
        x, metered = self._outputs(replicates, seed)
        again, _ = self._outputs(replicates, seed)
        # Two replicates alone, then the others together.
        parts = [replicates[:1], replicates[1:2], replicates[2:]]
        apart = torch.cat([self._outputs(part, seed)[0] for part in parts if part])
        size = x.abs().flatten(1).amax(1) + 1e-300
        points = self._algorithm.n_particles or self.effort.points
        kept = {
            "alone": (x - apart).abs().flatten(1).amax(1) <= 1e-4 * size,
            "distinct": torch.tensor([sum(torch.equal(a, b) for b in x) == 1 for a in x]),
            "repeatable": (x == again).flatten(1).all(1),
            "finite": x.isfinite().flatten(1).all(1),
            "shape": torch.tensor([x.shape[1:] == (points, load_task(self.task).dim)] * len(replicates)),
            "metered": torch.tensor([metered] * len(replicates)),
        }
        return {f"contract.{name}": value.double().tolist() for name, value in kept.items()}

    def expected(self) -> Mapping[str, Expected]:
        """All kept."""
        names = ("alone", "distinct", "repeatable", "finite", "shape", "metered")
        return {f"contract.{name}": Fixed(1.0, better="higher") for name in names}

    def _outputs(self, ids: Sequence[int], seed: int) -> tuple[Tensor, bool]:
        """Output of the replicates, (R, n, D), and whether meter and count agree."""
        task, algorithm, found, metered = load_task(self.task), self._algorithm, [], True
        for chunk in per_replicate(ids, algorithm.max_chunk):
            counted = Counted(task.target(chunk, "cpu", torch.float64))
            problem = Problem(
                counted,
                Streams(seed, chunk, "cpu", torch.float64),
                start=task.initial,
                particles=algorithm.n_particles or self.effort.points,
                batch_size=None if "full-batch" in algorithm.needs else task.batch_size,
            )
            found.append(self._samples(problem)[0])
            metered = metered and abs(problem.meter.charged - counted.charged) <= 1e-6 * counted.charged
        return torch.cat(found), metered


def sampler_questions(sampler: Sampler, effort: Effort) -> list[TruthQuestion]:
    """Three easy targets and the contract, for any sampler, with enough steps for a bent target of unit scale."""
    brief = replace(effort, steps=min(effort.steps, 10), points=min(effort.points, 20))
    return [*(Tolerance(task, sampler, effort) for task in LIMITS), Contract("banana", sampler, brief)]
