"""The recorded past of the built-in methods: cells of two suites, densities of tasks, and the options of methods."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from option_laws import OPTIONS, OptionLaws, algorithms, labels, variant_names

from parvibench.checks.baseline import CONSTANT, Baseline, Subject, cell_name, cell_subject, questions
from parvibench.checks.evidence import Array
from parvibench.checks.question import Asked, Law
from parvibench.checks.replicates import as_array
from parvibench.core import registry
from parvibench.core.sequential import SequentialTask
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import load_suite

#: Cells and densities; options.
FILES = CELLS, OPTION_LAWS = tuple(Path(__file__).with_name(name) for name in ("cells.json", "options.json"))
SUITES = ("ci", "ci-networks")
#: Replicates of an option: fewer, and each of few steps.
_REPLICATES, _DIGITS = 40, 3


@cache
def stored(file: Path) -> Baseline:
    """What a file holds."""
    return Baseline.load(file)


@cache
def cells() -> Mapping[str, Cell]:
    """The cells of the suites whose needs are met and whose data are here."""
    found = [c for suite in SUITES for c in expand(load_suite(suite))]
    return {cell_name(c): c for c in found if not c.missing_needs()}


@cache
def densities() -> list[str]:
    """Tasks whose density needs no download."""
    rows = registry.tasks().values()
    built_in = [row for row in rows if row.target.startswith("parvibench.tasks.") and not row.data]
    return [row.name for row in built_in if not isinstance(registry.load_task(row.name), SequentialTask)]


def past_of_cell(name: str) -> Asked:
    """The question about a cell."""
    return questions(stored(CELLS), [cells()[name]], [])


def past_of_density(task: str) -> Asked:
    """The question about a density."""
    return questions(stored(CELLS), [], [task])


def past_of_options(algorithm: str, baseline: Baseline | None = None) -> Asked:
    """The question about the options of an algorithm: any change is a regression."""
    baseline = baseline or stored(OPTION_LAWS)
    name = f"{OPTIONS}/{algorithm}"
    differences = baseline.differences(name, _identity(algorithm))
    if differences is None:
        return Asked([], [name], [])
    if differences:
        return Asked([], [], [f"{name}: {', '.join(differences)} changed since the baseline was made"])
    statistics = baseline.cells[name]["statistics"]
    now, then = variant_names(algorithm), labels(statistics)
    new = [f"{name} {label}" for label in sorted(now - then)]
    gone = [f"{name} {label}: there is no such option any more" for label in sorted(then - now)]
    laws = {k: _law(as_array(v)) for k, v in statistics.items() if labels([k]) <= now}
    return Asked([OptionLaws(algorithm, laws)], new, gone)


def _identity(algorithm: str) -> dict[str, Any]:
    return {"algorithm_version": registry.algorithms()[algorithm].version}


def _law(x: Array) -> Law:
    """Recorded draws; one that stands alone is that of all."""
    return Law(np.full(_REPLICATES, x[0]), tolerance=CONSTANT) if len(x) == 1 else Law(x)


def option_subject(algorithm: str) -> Subject:
    """The options of an algorithm as they are recorded."""
    name = f"{OPTIONS}/{algorithm}"
    return Subject(name, _identity(algorithm), OptionLaws(algorithm, {}), _REPLICATES, _DIGITS)


def subjects(file: Path, pattern: str = "*") -> list[Subject]:
    """What ``make past`` records in a file, of names that a pattern is of."""
    if file == CELLS:
        return [cell_subject(cell) for name, cell in cells().items() if fnmatchcase(name, pattern)]
    return [option_subject(a) for a in algorithms() if fnmatchcase(f"{OPTIONS}/{a}", pattern)]


def tasks(file: Path, pattern: str = "*") -> list[str]:
    """Tasks whose densities it records."""
    return [t for t in densities() if fnmatchcase(f"{t}/density", pattern)] if file == CELLS else []
