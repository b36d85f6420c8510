"""What all questions about one sampler share: how it is named, run and observed, and how evaluations are counted."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parvibench.checks.question import Question
from parvibench.checks.summaries import Settings
from parvibench.core.algorithm import Algorithm, require_samples, take_steps
from parvibench.core.registry import load_algorithm
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem, Task

#: A registered name, ``module:Class``, ``file.py:Class``, or the object, for measurements in this process only.
Sampler = str | Algorithm


def loaded(sampler: Sampler) -> Algorithm:
    """The sampler itself."""
    return load_algorithm(sampler) if isinstance(sampler, str) else sampler


@dataclass(frozen=True)
class Effort:
    """Settings and length of a run."""

    settings: Settings = ()  #: overrides of the defaults
    steps: int = 200  #: taken
    points: int = 50  #: N of particles and chains, and number of samples judged


class Observed(NamedTuple):
    """A run of an algorithm."""

    path: list[Tensor]  #: positions after every step, (R, N, D) each; empty where a state has none
    outputs: dict[int, Tensor]  #: number of steps -> output, (R, n, D)
    info: Any  #: of the last step


class Counted(Target):
    """A density that counts its evaluations in rows, to be compared with the meter's; a mini-batch of B of n counts B/n.

    ``constant`` is added to the log density, and the density is moved by ``shift`` along every coordinate.
    """

    def __init__(self, target: Target, constant: float = 0.0, shift: float = 0.0) -> None:
        self._target, self._constant, self._shift = target, constant, shift
        self.dim, self.rows, self.prior_precision = target.dim, target.rows, target.prior_precision
        self._rows = defaultdict[str, float](float)

    @property
    def charged(self) -> float:
        """The charge due: log densities are free up to the number of scores."""
        rows = self._rows
        return rows["scores"] + rows["products"] + max(0.0, rows["log_densities"] - rows["scores"])

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Counted; so is the score of differentiating it."""
        self._rows["log_densities"] += x.shape[1]
        value = self._target.log_density(x - self._shift, batch) + self._constant
        return self._when_differentiated(value, "scores", x.shape[1])

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Counted; so is the Hessian-vector product of differentiating it."""
        rows = x.shape[1] * (1.0 if batch is None else batch.shape[1] / (self.rows or 1))
        self._rows["scores"] += rows
        value = self._target.score(x - self._shift, batch)
        return self._when_differentiated(value, "products", rows)

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both counted."""
        self._rows["scores"] += x.shape[1]
        self._rows["log_densities"] += x.shape[1]
        density, score = self._target.log_density_and_score(x - self._shift, batch)
        return density + self._constant, score

    def _when_differentiated(self, value: Tensor, what: str, rows: float) -> Tensor:
        def book(_: Tensor) -> None:
            self._rows[what] += rows

        if value.requires_grad:
            value.register_hook(book)  # type: ignore[no-untyped-call]
        return value


@dataclass(frozen=True)
class OfSampler(Question):
    """A question about one sampler on one target."""

    task: str
    sampler: Sampler
    effort: Effort

    @property
    def algorithm(self) -> str:  # type: ignore[override]
        """The sampler's name."""
        return self.sampler if isinstance(self.sampler, str) else self.sampler.name

    @property
    def circumstances(self) -> str:
        """Of the run; settings that are not named are the class's own."""
        settings = [f"{key}={value}" for key, value in self.effort.settings] or ["default settings"]
        return ", ".join([f"{self.effort.steps} steps", f"{self.effort.points} points", *settings])

    @property
    def loaded(self) -> Algorithm:
        """The sampler."""
        return loaded(self.sampler)

    @property
    def points(self) -> int:
        """N of its runs."""
        return self.loaded.n_particles or self.effort.points

    def problem(
        self, task: Task, ids: Sequence[int], seed: int, start: Tensor | None = None, target: Target | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Problem:  # fmt: skip
        """The problem, in double; with another start, (R, N, D), and another density where they are given."""
        return Problem(
            target or task.target(ids, "cpu", dtype),
            Streams(seed, ids, "cpu", dtype),
            start=task.initial if start is None else lambda _, n, __: start[:, :n].clone(),
            particles=self.points,
            batch_size=None if "full-batch" in self.loaded.needs else task.batch_size,
        )

    def observe(self, problem: Problem, outputs_at: Sequence[int] = ()) -> Observed:
        """Take all steps as the harness does, and ask for the output at the end and after some of them."""
        algorithm, steps = self.loaded, self.effort.steps
        settings = algorithm.make_settings(dict(self.effort.settings))
        path, outputs, info = list[Tensor](), dict[int, Tensor](), None
        with torch.inference_mode(not algorithm.differentiates):
            state: Any = algorithm.init(problem, settings, problem.streams, steps)
            taken = take_steps(algorithm.step, problem, settings, state)
            for number, (state, info) in zip(range(1, steps + 1), taken, strict=False):  # noqa: B007
                if hasattr(state, "x"):
                    path.append(state.x.detach().clone())
                if number in (*outputs_at, steps):
                    out = algorithm.output(problem, settings, state, self.effort.points, problem.streams)
                    least = 1 if algorithm.kind == "chains" else self.effort.points
                    require_samples(out, problem.replicates, least, problem.dim, algorithm.name)
                    outputs[number] = out.detach().clone()
        return Observed(path, outputs, info)
