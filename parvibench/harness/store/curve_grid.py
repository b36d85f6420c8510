"""Curves of a cell as arrays: every metric on the grid checkpoints x replicates.

A report reads the curves of thousands of cells several times each; arrays answer without a table being filtered and grouped.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core.errors import StoreError

from .cell_files import CURVE_COLUMNS

MAX_ENTRIES = 20_000_000  #: Most values of a cell, as many as rows are read of a curve.
SPENT = ("iteration", "score_evaluations", "seconds")  #: What had been spent at a checkpoint.


@dataclass(frozen=True)
class MetricCurve:
    """One metric at the checkpoints that have it, C of them, for R replicates."""

    replicates: NDArray[np.int64]  #: (R,), ids
    rows: NDArray[np.intp]  #: (C,), positions of these checkpoints in the grid
    values: NDArray[np.float64]  #: (C, R); NaN where nothing was measured or the metric is undefined
    measured: NDArray[np.bool_]  #: (C, R); False where a replicate had stopped before
    spent: Mapping[str, NDArray[np.float64]]  #: axis of ``SPENT`` -> (C, R)

    def __len__(self) -> int:
        return len(self.values)

    def at(self, checkpoint: int, diverged: Collection[int]) -> list[float | None]:
        """Values of the replicates at the checkpoint of this position; None for each that diverged before it."""
        here = self.measured[checkpoint]
        stopped = len(set(diverged) - set(self.replicates[here].tolist()))
        return [*self.values[checkpoint, here].tolist(), *[None] * stopped]


@dataclass(frozen=True)
class CurveGrid:
    """All metrics of a cell."""

    replicates: NDArray[np.int64]  #: (R,), ids
    spent: Mapping[str, NDArray[np.float64]]  #: axis of ``SPENT`` -> (C, R)
    names: Mapping[str, int]  #: metric -> position in ``values`` and ``measured``
    values: NDArray[np.float64]  #: (M, C, R)
    measured: NDArray[np.bool_]  #: (M, C, R)

    @classmethod
    def of(cls, curve: pd.DataFrame) -> Self:
        """From a curve in long form, columns ``CURVE_COLUMNS``.

        ``StoreError`` for few rows that name so many replicates and checkpoints that their grid would fill the memory.
        """
        columns = {name: curve[name].to_numpy() for name in CURVE_COLUMNS}
        replicates, r = np.unique(columns["replicate"].astype(np.int64), return_inverse=True)
        checkpoints, c = np.unique(columns["checkpoint"].astype(np.int64), return_inverse=True)
        metrics, names = pd.factorize(curve["metric"])
        shape = (len(checkpoints), len(replicates))
        if len(names) * math.prod(shape) > MAX_ENTRIES:
            sizes = f"{len(names)} metrics, {len(checkpoints)} checkpoints and {len(replicates)} replicates"
            raise StoreError(f"a curve of {sizes} is too large")
        spent = {axis: np.full(shape, np.nan) for axis in SPENT}
        for axis in SPENT:
            spent[axis][c, r] = columns[axis]
        values = np.full((len(names), *shape), np.nan)
        measured = np.zeros(values.shape, dtype=bool)
        values[metrics, c, r] = columns["value"]
        measured[metrics, c, r] = True
        return cls(replicates, spent, {name: i for i, name in enumerate(names)}, values, measured)

    def metric(self, name: str) -> MetricCurve:
        """The curve of a metric; of no checkpoints where it was not measured."""
        values, measured = self._of(name)
        rows = np.flatnonzero(measured.any(1))
        spent = {axis: costs[rows] for axis, costs in self.spent.items()}
        return MetricCurve(self.replicates, rows, values[rows], measured[rows], spent)

    def medians(self, name: str) -> NDArray[np.float64]:
        """Medians of a metric over replicates at every checkpoint of the grid; NaN where it was not measured."""
        values, measured = self._of(name)
        here = measured & ~np.isnan(values)
        ordered = np.sort(np.where(here, values, math.nan), axis=1)  # what was not measured comes last
        count = here.sum(1)
        middle = [np.take_along_axis(ordered, at[:, None], 1)[:, 0] for at in ((count - 1) // 2, count // 2)]
        return np.where(middle[0] == middle[1], middle[0], np.mean(middle, axis=0))

    def _of(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        at = self.names.get(name)
        if at is None:
            none = np.zeros(self.values.shape[1:], bool)
            return np.where(none, 0.0, math.nan), none
        return self.values[at], self.measured[at]
