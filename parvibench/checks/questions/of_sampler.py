"""What all questions about one sampler share: how it is named, run and observed."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parvibench.checks.question import Question
from parvibench.checks.summaries import Settings
from parvibench.checks.words import circumstances
from parvibench.core.algorithm import Algorithm, require_samples, take_steps
from parvibench.core.registry import load_algorithm
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem, Task

#: A registered name, ``module:Class``, ``file.py:Class``, or the object, for measurements in this process only.
Sampler = str | Algorithm


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
    info: Any = None  #: of the last step


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
        return circumstances(vars(self.effort)) + ("" if self.effort.settings else ", default settings")

    @property
    def loaded(self) -> Algorithm:
        """The sampler."""
        return load_algorithm(self.sampler) if isinstance(self.sampler, str) else self.sampler

    @property
    def points(self) -> int:
        """N of its runs."""
        return self.loaded.n_particles or self.effort.points

    def problem(
        self, task: Task, target: Target, ids: Sequence[int], seed: int, start: Tensor | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Problem:  # fmt: skip
        """The problem, in double; all replicates start at ``start``, (R, N, D), where it is given."""
        return Problem(
            target,
            Streams(seed, ids, "cpu", dtype),
            start=task.initial if start is None else lambda _, n, __: start[:, :n].clone(),
            particles=self.points,
            batch_size=None if "full-batch" in self.loaded.needs else task.batch_size,
        )

    def observe(self, problem: Problem, outputs_at: Iterable[int] = ()) -> Observed:
        """Take all steps as the harness does, and ask for the output at the end and after some of them."""
        algorithm, streams, steps = self.loaded, problem.streams, self.effort.steps
        settings = algorithm.make_settings(dict(self.effort.settings))
        observed, marks, info = Observed([], {}), {*outputs_at, steps}, None
        streams.step = 0
        with nullcontext() if algorithm.differentiates else torch.inference_mode():
            state: Any = algorithm.init(problem, settings, streams, steps)
            taken = take_steps(algorithm.step, problem, settings, state)
            for number, (state, info) in zip(range(1, steps + 1), taken, strict=False):  # noqa: B007
                if hasattr(state, "x"):
                    observed.path.append(state.x.detach().clone())
                if number in marks:
                    out = algorithm.output(problem, settings, state, self.effort.points, streams)
                    least = 1 if algorithm.kind == "chains" else self.effort.points
                    require_samples(out, len(streams.replicates), least, problem.dim, algorithm.name)
                    observed.outputs[number] = out.detach().clone()
        return observed._replace(info=info)
