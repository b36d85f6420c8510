"""The values that tuning measured: at every step size tried, under every choice of options."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parvibench.core import registry
from parvibench.harness.store.files import write_atomically

from .grids import Grid


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
    return -1.0 if registry.metrics()[metric].direction == "higher" else 1.0


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
