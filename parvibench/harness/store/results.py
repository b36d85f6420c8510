"""A run's results as tables: what the API returns, the report draws and ``--json`` prints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.core.errors import DamagedError
from parvibench.core.result import RUNNING, STOPPED, CellRecord, Status, to_json_number
from parvibench.harness.marks import blown_up
from parvibench.statistics import median_interval

from .cell_files import CurveGrid
from .store import CURVE_COLUMNS, RunCell, RunRecord, Store, Trajectories

TIMED_METRICS = ("seconds", "ess_per_second")  #: Metrics that mean nothing across different hardware.


_ABSENT = {
    "": "the run ended before this cell; the same command resumes it",
    RUNNING: f"{RUNNING}: this cell has no result yet",
    STOPPED: f"{STOPPED}: the run was stopped before this cell; the same command resumes it",
}


@dataclass(frozen=True)
class StoredRun:
    """The cells of one run, in the requested order."""

    store: Store
    run: RunRecord
    cells: tuple[CellRecord, ...]  #: labelled as the run labels them
    unfinished: str = ""  #: ``still running`` or ``not finished``; empty of a run that has ended
    marks: Mapping[str, str] = field(default_factory=dict)  #: of a board: cell key -> mark of a submission's row
    _grids: dict[tuple[str, str], CurveGrid] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, store: Store, run_id: str | None = None) -> Self:
        """Read a run, by default the latest; ``StoreError`` without it. A cell without a record counts as interrupted."""
        run = store.run(run_id)
        state = "" if run.finished else RUNNING if store.is_being_written(run.id) else STOPPED
        cells = tuple(_record(store, c, _ABSENT[state]) for c in run.cells)
        primary = {task: primary_metric(mine, task) for task, mine in _by_task(cells).items()}
        cells = blown_up.counted(cells, primary.__getitem__)
        if len({c.hardware for c in cells if c.hardware}) > 1:
            cells = tuple(_without_seconds(c) for c in cells)
        return cls(store, run, cells, state)

    @cached_property
    def timed(self) -> bool:
        """Whether seconds can be compared: they all come from the same hardware."""
        return not any(math.isnan(c.seconds) for c in self.cells)

    @property
    def failed(self) -> bool:
        """Whether any cell ended in a way that makes the command exit 1."""
        return any(c.status.failed for c in self.cells)

    @cached_property
    def by_task(self) -> dict[str, list[CellRecord]]:
        """The cells of every task, in the order of the run."""
        return _by_task(self.cells)

    def of_task(self, task: str, labels: Sequence[str]) -> list[CellRecord]:
        """Cells of a task with these labels, in the labels' order."""
        found = [c for c in self.by_task.get(task, ()) if c.label in labels]
        return sorted(found, key=lambda c: labels.index(c.label))

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Long table over all cells: task, label, then the columns of a cell's curve."""
        found = ((c, self.curve(c)) for c in self.cells)
        frames = [curve.assign(task=c.task, label=c.label) for c, curve in found if len(curve)]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["task", "label"])

    def curve(self, cell: CellRecord) -> pd.DataFrame:
        """A cell's metric values at every checkpoint; empty where there are none or the cell is damaged."""
        if cell.status is Status.DAMAGED:
            return pd.DataFrame(columns=list(CURVE_COLUMNS))
        return self.store.curve(cell.key)

    def curve_grid(self, cell: CellRecord) -> CurveGrid:
        """``curve`` as arrays; read once."""
        name = cell.task, cell.label
        if name not in self._grids:
            lost = cell.status is Status.DAMAGED
            self._grids[name] = CurveGrid.of(self.curve(cell) if lost else self.store.curve_columns(cell.key))
        return self._grids[name]

    def samples(self, cell: CellRecord) -> NDArray[np.float32] | None:
        """Samples of a cell's last checkpoint, (R, n, D), or None; None of a damaged cell."""
        return None if cell.status is Status.DAMAGED else self.store.samples(cell.key)

    def trajectories(self, cell: CellRecord) -> Trajectories | None:
        """Trajectories of some particles of a cell, or None; None of a damaged cell."""
        return None if cell.status is Status.DAMAGED else self.store.trajectories(cell.key)

    def document(self, report: str = "") -> dict[str, Any]:
        """The ``run --json`` document."""
        return {
            "run_id": self.run.id,
            "out": str(self.store.root),
            "report": report,
            "cells": [_cell_document(c) for c in self.cells],
        }


def metric_values(metric: str, stored: Sequence[float | None]) -> list[float]:
    """Stored values; a replicate that failed (null, NaN) counts as the worst value there is."""
    lost = worst(metric)
    return [lost if v is None or math.isnan(v) else float(v) for v in stored]


def interval_of(cell: CellRecord, metric: str) -> tuple[float, float, float]:
    """Median over a cell's replicates with its 95% interval; NaN without values."""
    return _interval(metric, tuple(cell.values.get(metric, ())))


@lru_cache(maxsize=2**17)  # a report asks several times for each of thousands of cells
def _interval(metric: str, stored: tuple[float | None, ...]) -> tuple[float, float, float]:
    return median_interval(metric_values(metric, stored))


def median_of(cell: CellRecord, metric: str) -> float | None:
    """Median over a cell's replicates; None where the metric was not measured."""
    return interval_of(cell, metric)[0] if cell.values.get(metric) else None


@cache
def worst(metric: str) -> float:
    """What a replicate without a value counts as: +inf where lower is better, -inf where higher is."""
    return -math.inf if registry.direction(metric) == "higher" else math.inf


def primary_metric(cells: Sequence[CellRecord], task: str) -> str:
    """The metric that ranks a task: its declared one, else the first recorded; empty without any.

    Where a suite measures the distance to certified predictions, that ranks: the prize is for sampling. ``cells`` are all
    of that task.
    """
    present = dict.fromkeys(m for c in cells for m in c.values)
    own, _ = declared(task)
    return next((m for m in ("predictive_w2", own, "sliced_w2", "nll", *present) if m in present), own)


@cache
def declared(task: str) -> tuple[str, tuple[str, ...]]:
    """The primary metric of a task and all of its metrics, as it declares them; none where it cannot be loaded."""
    try:
        found = registry.load_task(task)
    except Exception:  # a plug-in's module may fail in any way
        return "", ()
    return found.primary, found.metrics


def _by_task(cells: Sequence[CellRecord]) -> dict[str, list[CellRecord]]:
    found: dict[str, list[CellRecord]] = {}
    for cell in cells:
        found.setdefault(cell.task, []).append(cell)
    return found


def _record(store: Store, asked: RunCell, absent: str) -> CellRecord:
    """The stored record; one without values where there is none or it is damaged."""
    status, reason = Status.INTERRUPTED, absent
    try:
        if (found := store.find_for(asked)) is not None:
            return found
    except DamagedError as error:
        status, reason = Status.DAMAGED, f"{error}; the same command runs this cell again"
    return CellRecord(spec=asked.spec, label=asked.label, kind="", status=status, reason=reason)


def _without_seconds(cell: CellRecord) -> CellRecord:
    """The cell without what it took: its seconds were measured on other hardware than the others'."""
    values = {m: v for m, v in cell.values.items() if m not in TIMED_METRICS}
    lost = {m: "measured on different hardware" for m in cell.values if m in TIMED_METRICS}
    return cell.model_copy(update={"values": values, "absent": cell.absent | lost, "seconds": math.nan})


_DOCUMENTED = (
    "task", "algorithm", "label", "status", "reason", "n_replicates", "n_diverged", "worst", "start", "tuned",
    "iterations", "seconds", "score_evaluations",
)  # fmt: skip


def _cell_document(cell: CellRecord) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for name, stored in cell.values.items():
        ends = zip(("median", "low", "high"), map(to_json_number, interval_of(cell, name)), strict=True)
        metrics[name] = dict(ends) | {"values": [v if v is not None and math.isfinite(v) else None for v in stored]}
    facts = {name.replace("n_rep", "rep"): getattr(cell, name) for name in _DOCUMENTED}
    return facts | {"status": str(cell.status), "seconds": to_json_number(cell.seconds), "metrics": metrics}
