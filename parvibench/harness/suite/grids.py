"""The step sizes that tuning tries: a grid for each method, task and choice of options."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from parvibench.core.algorithm import Method

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
