"""The stored past: statistics of many clean replicates per cell, and the densities at fixed points.

One JSON file: ``cells``: ``task/label`` -> ``identity`` (all that decides the law of the replicates) and ``statistics``
(name -> one value per replicate, null for a replicate that diverged); ``densities``: task -> name -> value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from parvibench.check.evidence import Array, law_p_values, shift
from parvibench.check.questions import Asked, Expected, Fixed, Law, Measurement, Question, measure
from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.sequential import SequentialTask
from parvibench.core.streams import derive_seed
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import load_suite

from .replicates import EVALUATIONS, TIME, CellQuestion, DensityQuestion, as_array, density_values, directions_of_change

FORMAT = 1
#: Suites whose cells are checked.
SUITES = ("ci", "ci-networks")
#: Clean replicates stored per cell.
REPLICATES = 120
#: Replicates measured by one job.
_BATCH = 20
_TIMEOUT_S = 900.0
#: Relative tolerance of a density's fixed values: rounding, other processors.
_TOLERANCE = 1e-7
#: Relative spread of a statistic that is the same in all replicates but for rounding.
_CONSTANT = 1e-5
#: p-value below which a statistic of a new baseline is reported as changed.
_MOVED = 1e-6

Statistics = dict[str, list[float | None]]


@dataclass(frozen=True)
class Baseline:
    """Stored statistics of clean replicates."""

    cells: dict[str, dict[str, Any]]  #: ``task/label`` -> identity and statistics
    densities: dict[str, dict[str, float]]  #: task -> name -> value
    source: str  #: the file, for messages
    made: dict[str, str]  #: versions and date

    @classmethod
    def load(cls, file: Path | None = None) -> Baseline:
        """Read a baseline file, by default the package's own; ``InputError`` without one."""
        path = file or shipped()
        try:
            found = json.loads(path.read_text())
        except OSError:
            raise InputError(f"{path}: no baseline there; make one with: parvibench check --update") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not a baseline: {error}") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise InputError(f"{path}: not a baseline of format {FORMAT}; make it again: parvibench check --update")
        return cls(found["cells"], found["densities"], str(path), found["made"])

    def with_part(self, part: Baseline) -> Baseline:
        """This one with the cells and densities of another in place of its own."""
        return replace(self, cells=self.cells | part.cells, densities=self.densities | part.densities)

    def write(self, file: Path) -> None:
        """Write the file aside, then put it in place."""
        document = {"format": FORMAT, "made": self.made, "cells": self.cells, "densities": self.densities}
        lines = json.dumps(document, separators=(",", ":"), allow_nan=False)
        aside = file.with_suffix(".tmp")
        aside.write_text(lines.replace('"statistics"', '\n"statistics"').replace('},"', '},\n"') + "\n")
        aside.replace(file)


def shipped() -> Traversable:
    """The baseline that comes with the package."""
    return files("parvibench.check.past") / "quality_baseline.json"


def identity(cell: Cell) -> dict[str, Any]:
    """All that decides the law of a cell's replicates."""
    return {
        "task_version": cell.spec.task_version,
        "algorithm": cell.algorithm,
        "algorithm_version": cell.spec.algorithm_version,
        "settings": dict(cell.settings),
        "budget": cell.spec.budget.model_dump(mode="json", exclude_none=True),
        "particles": cell.particles,
        "samples": cell.samples,
        "dtype": cell.spec.dtype,
        "metrics": list(cell.metrics),
    }


def suite_cells(suites: Sequence[str] = SUITES) -> list[Cell]:
    """The cells of the suites whose needs are met and whose data are here."""
    cells = [c for suite in suites for c in expand(load_suite(suite))]
    return [c for c in cells if not c.missing_needs()]


def plain_tasks() -> list[str]:
    """Tasks whose density needs no download: their fixed values are stored."""
    rows = registry.tasks().values()
    built_in = [row for row in rows if row.target.startswith("parvibench.tasks.") and not row.data]
    return [row.name for row in built_in if not isinstance(registry.load_task(row.name), SequentialTask)]


def questions(baseline: Baseline, cells: Sequence[Cell], tasks: Sequence[str]) -> Asked:
    """Questions about the cells and about the densities of the tasks."""
    asked: list[Question] = []
    new = [f"{task}/density" for task in tasks if task not in baseline.densities]
    incomparable: list[str] = []
    for task in (t for t in tasks if t in baseline.densities):
        values = baseline.densities[task]
        asked.append(DensityQuestion(task, {n: Fixed(v, tolerance=_TOLERANCE) for n, v in values.items()}))
    for cell in cells:
        name = f"{cell.task}/{cell.label}"
        stored = baseline.cells.get(name)
        if stored is None:
            new.append(name)
        elif changed := _changed(stored["identity"], identity(cell)):
            incomparable.append(f"{name}: {', '.join(changed)} changed since the baseline was made")
        else:
            asked.append(CellQuestion(cell, _expected(baseline, cell, stored["statistics"])))
    return Asked(asked, new, incomparable)


def _changed(stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Entries of an identity that differ from the stored ones; tuples and lists are the same in JSON."""
    plain = json.loads(json.dumps(now))
    return [key for key in plain if stored.get(key) != plain[key]]


def _expected(baseline: Baseline, cell: Cell, stored: Mapping[str, list[float]]) -> dict[str, Expected]:
    task, algorithm = cell.load()
    better = directions_of_change(list(stored), task)
    exact = {}
    if algorithm.kind in ("chains", "generator"):  # particles may well be spread better than at random
        exact = baseline.cells.get(f"{cell.task}/exact", {}).get("statistics", {})
    found: dict[str, Expected] = {}
    for name, values in stored.items():
        x = as_array(values)
        constant = _is_constant(x)
        if constant and name == EVALUATIONS:
            found[name] = Fixed(float(x[0]), better[name], _CONSTANT)
            continue
        # A statistic that was the same in all replicates may well differ in one of a hundred.
        best = as_array(exact[name]) if name in exact and better[name] != "same" else None
        draws, tolerance = (np.full_like(x, x[0]), _CONSTANT) if constant else (x, 0.0)
        found[name] = Law(draws, better[name], best, gates=name != TIME, tolerance=tolerance)
    return found


def _is_constant(x: Array) -> bool:
    """Whether all values are one up to rounding."""
    if not np.isfinite(x).all():
        return bool((x == x[0]).all())
    return bool(np.ptp(x) <= _CONSTANT * np.abs(x).max())


def make(
    cells: Sequence[Cell],
    tasks: Sequence[str],
    *,
    seed: int,
    workers: int,
    made: dict[str, str],
    replicates: int = REPLICATES,
    notify: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> Baseline:
    """Run clean replicates of every cell; ``InputError`` where a cell fails."""
    found: dict[str, dict[str, Any]] = {
        f"{c.task}/{c.label}": {"identity": identity(c), "statistics": {}} for c in cells
    }
    parts: dict[int, Mapping[str, list[float]]] = {}
    starts = range(0, replicates, _BATCH)
    root = derive_seed(seed, "baseline")
    work = [
        Measurement({number * len(starts) + k: CellQuestion(cell, {})}, range(first, min(first + _BATCH, replicates)), root)
        for number, cell in enumerate(cells)
        for k, first in enumerate(starts)
    ]  # fmt: skip
    for done, (number, values) in enumerate(measure(work, workers, _TIMEOUT_S), 1):
        name = list(found)[number // len(starts)]
        if isinstance(values, str):
            raise InputError(f"{name}: {values}")
        parts[number] = values
        notify(name, done, len(work))
    for number, cell in enumerate(found.values()):
        ordered = [parts[number * len(starts) + k] for k in range(len(starts))]
        cell["statistics"] = {
            statistic: rounded([v for part in ordered for v in part[statistic]]) for statistic in ordered[0]
        }
    densities = {task: {n: float(f"{v:.10g}") for n, v in density_values(task).items()} for task in tasks}
    return Baseline(found, densities, "", made)


def rounded(values: Sequence[float]) -> list[float | None]:
    """Values to four digits, and to a hundredth of their interquartile range; null where not finite.

    Where values repeat they are kept whole: rounded, they would no longer be equal to fresh ones.
    """
    finite = [v for v in values if math.isfinite(v)]
    if len(set(finite)) < 0.9 * len(finite):
        return [v if math.isfinite(v) else None for v in values]
    spread = float(stats.iqr(finite)) if finite else 0.0
    by_spread = 2 - math.floor(math.log10(spread)) if spread > 0 else 12
    return [_rounded(v, by_spread) if math.isfinite(v) else None for v in values]


def _rounded(value: float, digits: int) -> float:
    return round(value, max(digits, 3 - math.floor(math.log10(abs(value))))) if value else value


def provenance(seed: int, date: str) -> dict[str, str]:
    """Versions, seed and date of a baseline."""
    from importlib.metadata import version

    return {"parvibench": version("parvibench"), "torch": torch.__version__, "numpy": np.__version__, "seed": str(seed), "date": date}  # fmt: skip


def changes(old: Baseline, new: Baseline) -> list[str]:
    """Differences of two baselines, a line each."""
    lines = [f"{name}: gone" for name in old.cells if name not in new.cells]
    for name, cell in new.cells.items():
        stored = old.cells.get(name)
        if stored is None:
            lines.append(f"{name}: new")
            continue
        if changed := _changed(stored["identity"], cell["identity"]):
            lines.append(f"{name}: {', '.join(changed)} changed")
        if moved := _moved(stored["statistics"], cell["statistics"]):
            lines.append(f"{name}: {', '.join(moved)}")
    for task, values in new.densities.items():
        before = old.densities.get(task)
        if before is None or not np.allclose(
            [before.get(n, math.nan) for n in values], list(values.values()), rtol=_TOLERANCE
        ):
            lines.append(f"{task}: density {'new' if before is None else 'changed'}")
    return lines


def _moved(old: Statistics, new: Statistics) -> list[str]:
    """Statistics whose distribution has changed, with their shifts."""
    moved = []
    for name in new.keys() & old.keys() - {TIME}:
        x, y = as_array(new[name]), as_array(old[name])
        if law_p_values(x[:, None], y[:, None])[0] < _MOVED:
            moved.append(f"{name} by {shift(x, y).effect:.3g}")
    return sorted(moved)
