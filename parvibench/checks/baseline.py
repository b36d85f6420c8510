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

from parvibench.core.errors import InputError
from parvibench.core.streams import derive_seed
from parvibench.data.atomic import write_atomically
from parvibench.harness.suite.cells import Cell

from .evidence import Array, law_p_values, shift
from .question import Asked, Expected, Fixed, Law, Measurement, Question, measure
from .replicates import EVALUATIONS, CellQuestion, as_array, direction_of_change
from .rounds import Plan
from .summaries import joined

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
        x, better = as_array(values), direction_of_change(name, cell.load()[0])
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
            judged = f"against these {len(law.values)} replicates"
            found.append(
                f"{q.task}: four of five checks {judged} see a loss of {loss:.2g}% in {metric}; a smaller one may pass"
            )
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
