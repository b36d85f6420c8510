"""The step sizes that tuning tries: a grid for each method, task and choice of options; and the values measured there."""

import csv
import io
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parvibench.core import registry
from parvibench.core.algorithm import Method
from parvibench.harness.store.files import write_atomically

from .cells import Cell
from .entries import TuneSpec

#: Values by which a grid grows beyond an end.
ADDED = 2

Options = tuple[tuple[str, Any], ...]


@dataclass
class Grid:
    """The values tried for one (task, label) under one choice of its options."""

    cell: Cell  #: of the suite, options set
    options: Options
    unit: str
    steps: list[float]  #: ascending
    closed: bool = False  #: the values are a list to choose from: none are added

    def named(self, step: float) -> str:
        """``task/label @ value``, with the options."""
        chosen = "".join(f" {k}={v}" for k, v in self.options)
        return f"{self.cell.task}/{self.cell.label} @ {step:g}{chosen}"

    def best_end(self, scores: dict[str, float]) -> int:
        """-1 or 1 where the best value is at an end, lower or upper, beyond which values may be added; else 0."""
        if self.closed:
            return 0
        found = [scores.get(self.named(s), np.inf) for s in self.steps]
        best = int(np.argmin(found))
        return -1 if best == 0 else 1 if best == len(self.steps) - 1 else 0

    def extend(self, end: int, values: int = ADDED) -> list[float]:
        """Values added beyond an end."""
        ratio = self.steps[1] / self.steps[0]
        first = self.steps[0 if end < 0 else -1]
        added = [rounded(first * ratio ** (end * (i + 1))) for i in range(values)]
        self.steps = sorted({*self.steps, *added})
        return added

    def below(self, step: float) -> float | None:
        """The next smaller value, added where there is none; None where none may be added."""
        smaller = [s for s in self.steps if s < step]
        return smaller[-1] if smaller else self.beyond(step)

    def beyond(self, step: float) -> float | None:
        """A value added beyond the one at an end; None for one inside, and where none may be added."""
        end = -1 if step == self.steps[0] else 1 if step == self.steps[-1] else 0
        return self.extend(end, 1)[0] if end and not self.closed else None


def step_unit(algorithm: Method, settings: dict[str, Any]) -> str:
    """What a step size is measured in: ``x^2``, ``x`` or ``rate``."""
    if algorithm.kind == "generator":
        return "rate"
    made = algorithm.make_settings(settings)
    described = type(made).model_fields["step_size"].description or ""
    decays = "in x^2" in described and " or x" not in described  # no fixed step, yet one that multiplies a score
    return "x^2" if decays or algorithm.effective_step(made) is not None else "x"


def grid(spec: TuneSpec, unit: str) -> list[float]:
    """The log grid of a unit, rounded to three significant digits."""
    return [rounded(v) for v in np.geomspace(*spec.ends(unit), spec.points)]


def rounded(value: float) -> float:
    """To three significant digits."""
    return float(f"{value:.3g}")


def choices(spec: TuneSpec, label: str) -> list[Options]:
    """Every choice of the options of a method; one empty choice without any."""
    own = spec.options.get(label, {})
    return [tuple(zip(own, values, strict=True)) for values in itertools.product(*own.values())]


def grid_of(spec: TuneSpec, cell: Cell, options: Options) -> Grid:
    """The grid of a cell under a choice of its options."""
    algorithm = cell.load()[1]
    settings = algorithm.make_settings({**cell.settings, **dict(options)}).model_dump(mode="json")
    unit, listed = step_unit(algorithm, settings), spec.choices.get(cell.label)
    return Grid(cell.varied(settings=settings), options, unit, listed or grid(spec, unit), closed=listed is not None)


class Tried(NamedTuple):
    """One step size of a method on a task."""

    task: str
    label: str
    options: Mapping[str, Any]  #: chosen with the step, such as ``{"rule": "adagrad"}``
    step_size: float
    metric: str
    value: float | None  #: median over the tuning replicates after the share of the horizon; None: not measured
    whole: float | None  #: after the whole horizon; None: not among the finalists
    chosen: bool


def sign(metric: str) -> float:
    """-1 for a metric of which more is better: scores are minimised."""
    return -1.0 if registry.direction(metric) == "higher" else 1.0


def values_of(
    grids: Iterable[Grid], scores: Mapping[str, float], final: Mapping[str, float], metric: str, chosen: str
) -> list[Tried]:
    """What was tried on the grids of one method on one task; ``chosen`` is the name of the chosen value."""

    def value(name: str, of: Mapping[str, float]) -> float | None:
        return sign(metric) * of[name] if name in of else None

    return [
        Tried(
            grid.cell.task, grid.cell.label, dict(grid.options), step, metric, value(name, scores), value(name, final),
            name == chosen,
        )
        for grid in grids
        for step in grid.steps
        if (name := grid.named(step)) in scores or name in final
    ]  # fmt: skip


def write_csv(tried: Sequence[Tried], folder: Path) -> Path:
    """Write ``tried.csv`` into a folder, a row for each step size; its path."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(Tried._fields)
    rows.writerows([*t[:2], json.dumps(dict(t.options)), *t[3:]] for t in tried)
    path = folder / "tried.csv"
    write_atomically(path, text.getvalue().encode())
    return path
