"""What a baseline records: statistics of a cell, replicate by replicate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.task import Task
from parvibench.harness.run.chunks import ChunkResult
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.suite.cells import Cell

from .question import Better, Expected, Oracle, Question, Values
from .summaries import as_values, joined

#: Directions that samples of higher dimension are projected on.
_DIRECTIONS = 3
#: Checkpoint at which the primary metric is compared too: a tenth of the budget or so.
_EARLY = 3
#: Replicates in a kernel call, at most.
_CHUNK = 20
#: Metrics of a run's cost: compared exactly, or not at all.
_COSTS = frozenset({"seconds", "peak_memory", "score_evaluations"})
#: What a run is charged: compared exactly.
EVALUATIONS = "score_evaluations"
#: Smaller standard deviations are rounding.
_SAME = 1e-9


@dataclass(frozen=True)
class CellQuestion(Question):
    """Whether the replicates of a cell have the law of those in the baseline."""

    cell: Cell  #: to run, with fresh replicates and a fresh seed in every stage
    baseline: Mapping[str, Expected]  #: statistic -> what is stored of it

    oracle: Oracle = "past"
    title = "baseline"
    hint = "a change of the sampler, of its settings or of a library since the baseline was recorded"

    @property
    def task(self) -> str:  # type: ignore[override]
        """The cell's task, or the place of one from outside."""
        return self.cell.place or self.cell.task

    @property
    def algorithm(self) -> str:  # type: ignore[override]
        """The cell's label, or the place of a sampler from outside."""
        return self.cell.algorithm if registry.is_elsewhere(self.cell.algorithm) else self.cell.label

    @property
    def circumstances(self) -> str:
        """Budget and settings of the cell."""
        spec = self.cell.spec
        budget = spec.budget.model_dump(exclude_none=True)
        steps = [f"{value:g} {limit.replace('_', ' ')}" for limit, value in budget.items()]
        return ", ".join([*steps, *(f"{key}={value}" for key, value in spec.settings.items())])

    def measure(self, replicates: range, seed: int) -> Values:
        """Run fresh replicates of the cell, in chunks of at most 20."""
        most = self.cell.load()[1].max_chunk or _CHUNK
        cell = self.cell.varied(replicates=tuple(replicates), seed=seed, chunk=min(len(replicates), most))
        return joined(statistics(cell, run_chunk(cell, chunk)) for chunk in cell.chunks)

    def expected(self) -> Mapping[str, Expected]:
        """The stored statistics."""
        return self.baseline


def direction_of_change(name: str, task: Task) -> Better:
    """Direction of improvement of a statistic."""
    metric = registry.metrics().get(name.removeprefix("early "))
    if metric is not None:
        return metric.direction if metric.direction in ("lower", "higher") else "same"  # type: ignore[return-value]
    if name == EVALUATIONS:
        return "lower"
    centred = name.startswith(("mean[", "log_sd[")) and known_moments(task) is not None and task.dim <= _DIRECTIONS
    return "zero" if centred else "same"


def statistics(cell: Cell, result: ChunkResult) -> dict[str, list[float]]:
    """The statistics of a chunk, one value per replicate, +inf where it diverged.

    Means and log standard deviations of the samples, in units of the target's where they are known, along the axes or
    three fixed directions; their mean log density; the cell's metrics at the end and its primary metric early on; score
    evaluations as charged.
    """
    task, found = cell.load()[0], dict[str, Tensor]()
    width = len(next(iter(result.values.values()), ()))
    if result.samples is not None:
        x = torch.from_numpy(result.samples).double()
        width = len(x)
        replicates = tuple(dict.fromkeys(row[0] for row in result.curve))
        energy = task.target(replicates, "cpu", torch.float64).log_density(x).mean(1)
        found = moments(task, x) | {"energy": energy}
    found |= {name: torch.tensor(v, dtype=torch.float64) for name, v in result.values.items() if name not in _COSTS}
    early = [row[-1] for row in result.curve if row[1] == _EARLY and row[-2] == task.primary]
    if len(early) == width:
        found[f"early {task.primary}"] = torch.tensor(early, dtype=torch.float64)
    return {name: as_values(v) for name, v in found.items()} | {EVALUATIONS: [result.score_evaluations] * width}


def moments(task: Task, x: Tensor) -> dict[str, Tensor]:
    """Means and log sds of samples (R, n, D) along axes or fixed directions, (R,) each."""
    known = known_moments(task)
    if known is not None:
        x = (x - known[0]) / known[1]
    if x.shape[2] > _DIRECTIONS:
        u = torch.randn(x.shape[2], _DIRECTIONS, generator=Generator().manual_seed(1), dtype=torch.float64)
        x = x @ (u / u.norm(dim=0))
    # Equal points: what is left is rounding.
    tables = {"mean": x.mean(1), "log_sd": torch.nn.functional.threshold(x.std(1), _SAME, 0.0).log()}
    return {f"{name}[{i}]": column for name, table in tables.items() for i, column in enumerate(table.T)}


def known_moments(task: Task) -> tuple[Tensor, Tensor] | None:
    """Mean and sd of the target, (D,) each, or None where they are not known or infinite."""
    if task.facts.mean is not None and task.facts.sd is not None:
        return task.facts.mean, task.facts.sd
    reference = task.reference()
    if reference is None or task.facts.infinite_moments:
        return None
    return reference.mean, reference.sd


def as_array(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Values as an array, missing ones (None in JSON) as +inf."""
    return np.array([math.inf if v is None else v for v in values], dtype=np.float64)
