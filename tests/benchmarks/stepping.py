"""Our algorithms and metrics as programs that make a number of steps."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
from pairing import Run

from parvibench.core import registry
from parvibench.core.algorithm import take_steps
from parvibench.core.task import Task
from parvibench.harness.run.compiling import RecordedStep
from parvibench.harness.suite.cells import chunk_width


class Stepper:
    """An algorithm on a task, one chunk of replicates, stepped as the harness does."""

    def __init__(
        self, task: str | Task, algorithm: str, settings: Mapping[str, Any], particles: int | None = None,
        replicates: tuple[int, ...] = (0,), dtype: torch.dtype = torch.float32, horizon: int = 2000,
        device: str = "cpu", compiled: bool = False,
    ) -> None:  # fmt: skip
        self.task = task if isinstance(task, Task) else registry.load_task(task)
        self.algorithm = registry.load_algorithm(algorithm)
        self.settings: Any = self.algorithm.make_settings(dict(settings))
        self.problem = self.task.problem(
            replicates, 0, device, dtype,
            particles=particles, full_batch="full-batch" in self.algorithm.needs,
        )  # fmt: skip
        self.steps = 0
        self.advance: Any = RecordedStep(self.algorithm.step) if compiled else self.algorithm.step
        with self._mode():
            self.state = self.algorithm.init(self.problem, self.settings, self.problem.streams, horizon)
        self._taken = take_steps(lambda *given: self.advance(*given), self.problem, self.settings, self.state)

    def _mode(self) -> torch.inference_mode | nullcontext[None]:
        return nullcontext() if self.algorithm.differentiates else torch.inference_mode()

    def step(self) -> None:
        self.run(1)

    def run(self, steps: int) -> float:
        """That many steps; one unit of work each."""
        with self._mode():
            for self.state, _ in islice(self._taken, steps):  # noqa: B020
                self.steps += 1
        return steps

    def run_evaluations(self, steps: int) -> float:
        """That many steps; one unit of work for each evaluation of the score."""
        before = self.problem.meter.charged
        self.run(steps)
        return self.problem.meter.charged - before


def chunks(task: str, algorithm: str, settings: Mapping[str, Any], particles: int, replicates: int) -> list[Stepper]:
    """The chunks into which the harness cuts a cell on a CPU."""
    method = registry.load_algorithm(algorithm)
    width = chunk_width(registry.load_task(task), method, particles, replicates, "cpu")
    parts = [tuple(range(replicates))[i : i + width] for i in range(0, replicates, width)]
    return [Stepper(task, algorithm, settings, particles, part) for part in parts]


def one_after_another(parts: list[Run]) -> Run:
    """All parts, each with all its steps; the work of one part."""

    def run(steps: int) -> float:
        work = [part(steps) for part in parts]
        return work[0]

    return run


def looped(step: Callable[[], object]) -> Run:
    """A step, many times over."""

    def run(steps: int) -> float:
        for _ in range(steps):
            step()
        return steps

    return run
