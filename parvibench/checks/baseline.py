"""A baseline: statistics of many clean replicates of samplers on tasks, in a JSON file.

``cells``: ``task/label`` -> ``identity`` (all that decides the law of the replicates) and ``statistics`` (name -> one
value per replicate, null for a replicate that diverged), a line each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.streams import derive_seed
from parvibench.core.task import Task
from parvibench.data.atomic import write_atomically
from parvibench.harness.run.chunks import ChunkResult
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.suite.cells import Cell

from .evidence import Array, law_p_values, shift
from .question import Asked, Better, Expected, Fixed, Law, Measurement, Oracle, Question, Values, measure
from .rounds import Plan
from .summaries import as_values, joined

FORMAT = 2
#: Clean replicates recorded per cell.
REPLICATES = 120
#: Replicates measured by one job, and its time limit, s.
_BATCH, _TIMEOUT_S = 20, 900.0
#: Relative spread of a statistic that is the same in all replicates but for rounding.
CONSTANT = 1e-5
#: Share of distinct values below which they are stored whole.
_DISTINCT = 0.9
#: p-value below which a statistic of a new baseline is reported as changed.
_MOVED = 1e-6

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

Statistics = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Baseline:
    """Recorded statistics of clean replicates."""

    cells: dict[str, dict[str, Any]]  #: ``task/label`` -> identity and statistics
    made: dict[str, str]  #: versions, seed and date

    @classmethod
    def load(cls, file: Path) -> Baseline:
        """Read a baseline file; ``InputError`` where there is none."""
        try:
            found = json.loads(file.read_text())
        except OSError:
            raise InputError(f"{file}: no baseline there; write one with --update") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file}: not a baseline: {error}") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise InputError(f"{file}: not a baseline of format {FORMAT}; write it again with --update")
        return cls(found["cells"], found["made"])

    def write(self, file: Path) -> None:
        """Write the file aside, then put it in place: a line for each statistic, so that a diff shows what changed."""
        document = {"format": FORMAT, "made": self.made, "cells": self.cells}
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
        for at in ('"statistics":{', '},"', '],"'):
            text = text.replace(at, f"{at[:-1]}\n{at[-1]}")
        write_atomically(file, f"{text}\n".encode())


def cell_name(cell: Cell) -> str:
    """``task/label``; of an unregistered sampler its own name, whatever its file."""
    label = cell.load()[1].name if cell.label == cell.algorithm else cell.label
    return f"{cell.task}/{label}"


def identity(cell: Cell) -> dict[str, Any]:
    """All that decides the law of a cell's replicates."""
    return {
        "task_version": cell.spec.task_version,
        "algorithm": cell.load()[1].name,
        "algorithm_version": cell.spec.algorithm_version,
        "settings": dict(cell.settings),
        "budget": cell.spec.budget.model_dump(mode="json", exclude_none=True),
        "particles": cell.particles,
        "samples": cell.samples,
        "dtype": cell.spec.dtype,
        "metrics": list(cell.metrics),
    }


def _changed(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    plain = json.loads(json.dumps(now))  # tuples and lists are the same in JSON
    return [key for key in plain if stored.get(key) != plain[key]]


def questions(baseline: Baseline, cells: Iterable[Cell]) -> Asked:
    """Questions about the cells."""
    asked, new, incomparable = list[Question](), list[str](), list[str]()
    for cell in cells:
        name = cell_name(cell)
        if name not in baseline.cells:
            new.append(name)
        elif differences := _changed(baseline.cells[name]["identity"], identity(cell)):
            incomparable.append(f"{name}: {', '.join(differences)} changed since the baseline was made")
        else:
            asked.append(CellQuestion(cell, _expected(cell, baseline.cells[name]["statistics"])))
    return Asked(asked, new, incomparable)


def _expected(cell: Cell, stored: Statistics) -> dict[str, Expected]:
    found: dict[str, Expected] = {}
    for name, values in stored.items():
        x, better = as_array(values), _better(name, cell.load()[0])
        finite = bool(np.isfinite(x).all())
        constant = bool(np.ptp(x) <= CONSTANT * np.abs(x).max()) if finite else bool((x == x[0]).all())
        if constant and name == EVALUATIONS:
            found[name] = Fixed(float(x[0]), better, CONSTANT)
            continue
        # A statistic that was the same in all replicates may well differ in one of a hundred.
        draws, tolerance = (np.full_like(x, x[0]), CONSTANT) if constant else (x, 0.0)
        found[name] = Law(draws, better, tolerance)
    return found


def smallest_losses(asked: Sequence[Question], plan: Plan) -> list[str]:
    """The loss in the primary metric that four of five of these checks see, a sentence for each cell of the baseline."""
    tests, found = sum(len(q.expected()) for q in asked), []
    for q in (q for q in asked if isinstance(q, CellQuestion)):
        metric, expected = q.cell.load()[0].primary, q.expected()
        if isinstance(law := expected.get(metric), Law) and np.isfinite(law.values).all():
            loss = 100 * smallest_loss(law.values, tests, len(expected), plan)
            checks = f"four of five checks against these {len(law.values)} replicates"
            found.append(f"{q.task}: {checks} see a loss of {loss:.2g}% in {metric}; a smaller one may pass")
    return found


def smallest_loss(values: Array, tests: int, own: int, plan: Plan) -> float:
    """Shift of a statistic with these values (m,), over their median, that four of five checks of so many tests see.

    By Mann and Whitney's test of normal values, one of two, two-sided: the first replicates must leave the answer to ``own``
    tests open, and all must fail. The approximation promises nine of ten; four of five is what few replicates give.
    """
    m, spread = len(values), stats.iqr(values, scale="normal")
    rules = (plan.stages[0], plan.doubt / own), (plan.stages[-1], plan.threshold(tests))
    sds = [stats.norm.isf((p / 4, 0.1)).sum() * math.sqrt((n + m + 1) * math.pi / (3 * n * m)) for n, p in rules]
    return float(max(sds) * spread / abs(np.median(values)))


def make(
    cells: Sequence[Cell],
    *,
    seed: int,
    date: str,
    replicates: int = REPLICATES,
    workers: int = 0,
    notify: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> Baseline:
    """Run clean replicates of every cell; ``InputError`` where one fails."""
    root = derive_seed(seed, "baseline")
    parts: dict[int, Mapping[str, list[float]]] = {}
    work = [
        Measurement({number: CellQuestion(cell, {})}, range(first, min(first + _BATCH, replicates)), root)
        for number, (first, cell) in enumerate(product(range(0, replicates, _BATCH), cells))
    ]
    for done, (number, values) in enumerate(measure(work, workers, _TIMEOUT_S), 1):
        name = cell_name(cells[number % len(cells)])
        if isinstance(values, str):
            raise InputError(f"{name}: {values}")
        parts[number] = values
        notify(name, done, len(work))
    recorded: dict[str, dict[str, Any]] = {}
    for i, cell in enumerate(cells):
        statistics = joined(parts[number] for number in range(i, len(work), len(cells)))
        rows = {name: rounded(values) for name, values in statistics.items()}
        recorded[cell_name(cell)] = {"identity": identity(cell), "statistics": rows}
    versions = {"parvibench": version("parvibench"), "torch": torch.__version__, "numpy": np.__version__}
    return Baseline(recorded, versions | {"seed": str(seed), "date": date})


def rounded(values: Sequence[float]) -> list[float | None]:
    """Values to four digits, and to a hundredth of their interquartile range; null where not finite.

    The range alone would make many values that span decades one. Where values repeat they stay whole: rounded, they
    would no longer be equal to fresh ones.
    """
    plain = [v if math.isfinite(v) else None for v in values]
    finite = [v for v in plain if v is not None]
    if len(set(finite)) < _DISTINCT * len(finite):
        return plain
    spread = float(stats.iqr(finite)) if finite else 0.0
    places = 2 - math.floor(math.log10(spread)) if spread > 0 else 12
    return [round(v, max(places, 3 - math.floor(math.log10(abs(v))))) if v else v for v in plain]


def changes(old: Baseline, new: Baseline) -> list[str]:
    """Changes beyond chance in the cells of a new baseline, a line each."""
    lines = []
    for name, cell in new.cells.items():
        stored = old.cells.get(name)
        if stored is None:
            lines.append(f"{name}: new")
            continue
        if changed := _changed(stored["identity"], cell["identity"]):
            lines.append(f"{name}: {', '.join(changed)} changed")
        if moved := _moved(stored["statistics"], cell["statistics"]):
            lines.append(f"{name}: {', '.join(moved)}")
        if others := stored["statistics"].keys() ^ cell["statistics"].keys():
            lines.append(f"{name}: {', '.join(sorted(others))} new or gone")
    return lines


def replaced(old: Baseline, part: Baseline) -> tuple[Baseline, list[str]]:
    """The old baseline with the cells of another that differ beyond chance, and these differences.

    What has not changed stays to the digit, so that a diff shows the rest.
    """
    lines = changes(old, part)
    names = {line.partition(": ")[0] for line in lines}
    cells = {name: cell for name, cell in part.cells.items() if name in names}
    made = part.made if lines else old.made
    return Baseline(old.cells | cells, made), lines


def _moved(old: Statistics, new: Statistics) -> list[str]:
    """Statistics whose distribution has changed, with their shifts."""
    moved = []
    for name in new.keys() & old.keys():
        x, y = as_array(new[name]), as_array(old[name])
        if law_p_values(x[:, None], y[:, None])[0] < _MOVED:
            moved.append(f"{name} by {shift(x, y).effect:.3g}")
    return sorted(moved)


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


def _better(name: str, task: Task) -> Better:
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


def as_array(values: Sequence[float | None]) -> Array:
    """Values as an array, missing ones (None in JSON) as +inf."""
    return np.array([math.inf if v is None else v for v in values], dtype=np.float64)
