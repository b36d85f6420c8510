"""The stored past: statistics of many clean replicates per cell, and the densities at fixed points.

Two JSON files of one form, that of options with a name that ends in ``_options``. ``cells``: ``task/label`` -> ``identity``
(all that decides the law of the replicates) and ``statistics`` (name -> one value per replicate, null for a replicate that
diverged); ``densities``: task -> name -> value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

from parvibench.checks.evidence import Array, law_p_values, shift
from parvibench.checks.questions import Asked, Expected, Fixed, Law, Measurement, Question, measure
from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.sequential import SequentialTask
from parvibench.core.streams import derive_seed
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import load_suite

from . import option_laws
from .option_laws import OPTIONS, OptionLaws
from .replicates import EVALUATIONS, TIME, CellQuestion, DensityQuestion, as_array, density_values, directions_of_change

FORMAT = 1
#: Suites whose cells are checked.
SUITES = ("ci", "ci-networks")
#: Clean replicates stored per cell.
REPLICATES = 120
#: Replicates measured by one job.
_BATCH = 20
#: Of options: many, and each of few steps.
_OPTION_REPLICATES = 40
_TIMEOUT_S = 900.0
#: Relative tolerance of a density's fixed values: rounding, other processors.
_TOLERANCE = 1e-7
#: Relative spread of a statistic that is the same in all replicates but for rounding.
_CONSTANT = 1e-5
#: Share of distinct values below which they are stored whole.
_DISTINCT = 0.9
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
        path = file or Path(str(shipped()))
        found = _read(path)
        options = _read(_of_options(path))["cells"] if _of_options(path).is_file() else {}
        return cls(found["cells"] | options, found["densities"], str(path), found["made"])

    def with_part(self, part: Baseline) -> Baseline:
        """This one with the cells and densities of another in place of its own."""
        return replace(self, cells=self.cells | part.cells, densities=self.densities | part.densities)

    def write(self, file: Path) -> None:
        """Write the files aside, then put them in place."""
        options = {name: cell for name, cell in self.cells.items() if name.startswith(f"{OPTIONS}/")}
        others = {name: cell for name, cell in self.cells.items() if name not in options}
        _write(file, {"format": FORMAT, "made": self.made, "cells": others, "densities": self.densities})
        if options:
            _write(_of_options(file), {"format": FORMAT, "made": self.made, "cells": options})
        else:
            _of_options(file).unlink(missing_ok=True)


def _of_options(file: Path) -> Path:
    """The file of the options, beside that of the cells."""
    return file.with_name(f"{file.stem}_options{file.suffix}")


def _read(path: Path) -> dict[str, Any]:
    """A file's content; ``InputError`` where it is none of a baseline."""
    try:
        found = json.loads(path.read_text())
    except OSError:
        raise InputError(f"{path}: no baseline there; make one with: parvibench check --update") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a baseline: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path}: not a baseline of format {FORMAT}; make it again: parvibench check --update")
    return found


def _write(file: Path, document: dict[str, Any]) -> None:
    lines = json.dumps(document, separators=(",", ":"), allow_nan=False)
    aside = file.with_suffix(".tmp")
    aside.write_text(lines.replace('"statistics"', '\n"statistics"').replace('},"', '},\n"') + "\n")
    aside.replace(file)


def shipped() -> Traversable:
    """The baseline that comes with the package."""
    return files("parvibench.checks.past") / "quality_baseline.json"


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


def questions(baseline: Baseline, cells: Sequence[Cell], tasks: Sequence[str], options: Sequence[str] = ()) -> Asked:
    """Questions about the cells, about the densities of the tasks, and about the options of algorithms."""
    asked: list[Question] = []
    new = [f"{task}/density" for task in tasks if task not in baseline.densities]
    incomparable: list[str] = []
    for task in (t for t in tasks if t in baseline.densities):
        values = baseline.densities[task]
        asked.append(DensityQuestion(task, {n: Fixed(v, tolerance=_TOLERANCE) for n, v in values.items()}))

    def stored(name: str, now: dict[str, Any]) -> Mapping[str, list[float]] | None:
        """What the baseline holds of that identity; None, and noted, where it holds nothing or of another one."""
        if name not in baseline.cells:
            new.append(name)
        elif changed := _changed(baseline.cells[name]["identity"], now):
            incomparable.append(f"{name}: {', '.join(changed)} changed since the baseline was made")
        else:
            return baseline.cells[name]["statistics"]
        return None

    for cell in cells:
        held = stored(f"{cell.task}/{cell.label}", identity(cell))
        if held is not None:
            asked.append(CellQuestion(cell, _expected(baseline, cell, held)))
    for algorithm in options:
        name = f"{OPTIONS}/{algorithm}"
        held = stored(name, _option_identity(algorithm))
        if held is not None:
            now, then = option_laws.variant_names(algorithm), option_laws.labels(held)
            new += [f"{name} {label}" for label in sorted(now - then)]
            incomparable += [f"{name} {label}: there is no such option any more" for label in sorted(then - now)]
            kept = {k: v for k, v in held.items() if option_laws.labels([k]) <= now}
            asked.append(OptionLaws(algorithm, {k: _law(as_array(v)) for k, v in kept.items()}))
    return Asked(asked, new, incomparable)


def _option_identity(algorithm: str) -> dict[str, Any]:
    return {"algorithm_version": registry.algorithms()[algorithm].version}


def _law(x: Array) -> Law:
    """Draws of which any change is a regression; one that stands alone is that of all."""
    return Law(np.full(_OPTION_REPLICATES, x[0]), tolerance=_CONSTANT) if len(x) == 1 else Law(x)


def _short(values: Sequence[float]) -> list[float | None]:
    """Values as ``rounded``, in three digits; one of them where they are all the same."""
    x = np.asarray(values)
    if _is_constant(x):
        return [float(x[0]) if math.isfinite(x[0]) else None]
    return rounded(values, digits=3)


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
    options: Sequence[str] = (),
    *,
    seed: int,
    workers: int,
    made: dict[str, str],
    replicates: int = REPLICATES,
    notify: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> Baseline:
    """Run clean replicates of every cell, and of the ``options`` of algorithms; ``InputError`` where one fails."""
    asked = [_Asked(f"{c.task}/{c.label}", identity(c), CellQuestion(c, {}), replicates) for c in cells]
    few = min(replicates, _OPTION_REPLICATES)
    asked += [_Asked(f"{OPTIONS}/{a}", _option_identity(a), OptionLaws(a, {}), few) for a in options]
    root = derive_seed(seed, "baseline")
    parts: dict[int, Mapping[str, list[float]]] = {}
    numbers: list[tuple[_Asked, int]] = [(a, first) for a in asked for first in range(0, a.replicates, _BATCH)]
    work = [
        Measurement({number: a.question}, range(first, min(first + _BATCH, a.replicates)), root)
        for number, (a, first) in enumerate(numbers)
    ]
    for done, (number, values) in enumerate(measure(work, workers, _TIMEOUT_S), 1):
        name = numbers[number][0].name
        if isinstance(values, str):
            raise InputError(f"{name}: {values}")
        parts[number] = values
        notify(name, done, len(work))
    found: dict[str, dict[str, Any]] = {}
    for a in asked:
        ordered = [parts[number] for number, (of, _) in enumerate(numbers) if of is a]
        short = _short if isinstance(a.question, OptionLaws) else rounded
        statistics = {s: short([v for part in ordered for v in part[s]]) for s in ordered[0]}
        found[a.name] = {"identity": a.identity, "statistics": statistics}
    densities = {task: {n: float(f"{v:.10g}") for n, v in density_values(task).items()} for task in tasks}
    return Baseline(found, densities, "", made)


class _Asked(NamedTuple):
    """What clean replicates are run of."""

    name: str
    identity: dict[str, Any]
    question: Question
    replicates: int


def rounded(values: Sequence[float], digits: int = 4) -> list[float | None]:
    """Values to so many digits, and to a hundredth of their interquartile range; null where not finite.

    The range alone would make many values that span decades one. Where values repeat they are kept whole: rounded, they
    would no longer be equal to fresh ones.
    """
    finite = [v for v in values if math.isfinite(v)]
    if len(set(finite)) < _DISTINCT * len(finite):
        return [v if math.isfinite(v) else None for v in values]
    spread = float(stats.iqr(finite)) if finite else 0.0
    by_spread = 2 - math.floor(math.log10(spread)) if spread > 0 else 12
    return [_rounded(v, by_spread, digits) if math.isfinite(v) else None for v in values]


def _rounded(value: float, places: int, digits: int) -> float:
    return round(value, max(places, digits - 1 - math.floor(math.log10(abs(value))))) if value else value


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
