"""The step sizes that tuning tries: a grid for each method, task and choice of options; and the values measured there."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from parvibench.core import registry
from parvibench.core.algorithm import Method

from .cells import Cell
from .entries import TuneSpec

ADDED = 2  #: Values by which a grid grows beyond an end.


@dataclass
class Grid:
    """The values tried for one (task, label) under one choice of its options."""

    cell: Cell  #: of the suite, options set
    options: dict[str, Any]  #: chosen with the step, such as ``{"rule": "adagrad"}``
    steps: list[float]  #: ascending

    def named(self, step: float) -> str:
        """``task/label @ value``, with the options."""
        chosen = "".join(f" {k}={v}" for k, v in self.options.items())
        return f"{self.cell.task}/{self.cell.label} @ {step:g}{chosen}"

    def best(self, scores: Mapping[str, float]) -> float | None:
        """The value with the lowest score, the smallest of several; None where none was measured."""
        if not any(self.named(s) in scores for s in self.steps):
            return None
        return min(self.steps, key=lambda s: scores.get(self.named(s), np.inf))

    def beyond(self, step: float, values: int = 1) -> list[float]:
        """Values added beyond the one at an end; none for one inside."""
        end = -1 if step == self.steps[0] else 1 if step == self.steps[-1] else 0
        if not end:
            return []
        ratio = self.steps[1] / self.steps[0]
        added = [rounded(step * ratio ** (end * (i + 1))) for i in range(values)]
        self.steps = sorted({*self.steps, *added})
        return added

    def below(self, step: float) -> list[float]:
        """The next smaller value, added where there is none."""
        return [s for s in self.steps if s < step][-1:] or self.beyond(step)


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


def grids_of(spec: TuneSpec, cell: Cell) -> Iterator[Grid]:
    """The grids of a cell, one for every choice of its options."""
    own, algorithm = spec.options.get(cell.label, {}), cell.load()[1]
    for values in itertools.product(*own.values()):
        options = dict(zip(own, values, strict=True))
        settings = algorithm.make_settings({**cell.settings, **options}).model_dump(mode="json")
        yield Grid(cell.varied(settings=settings), options, grid(spec, step_unit(algorithm, settings)))


class Tried(NamedTuple):
    """One step size of a method on a task."""

    task: str
    label: str
    options: Mapping[str, Any]  #: chosen with the step
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
    found = []
    for grid, step in ((g, s) for g in grids for s in g.steps):
        name = grid.named(step)
        share, whole = (sign(metric) * of[name] if name in of else None for of in (scores, final))
        if (share, whole) != (None, None):
            found.append(
                Tried(grid.cell.task, grid.cell.label, grid.options, step, metric, share, whole, name == chosen)
            )
    return found
