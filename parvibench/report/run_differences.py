"""Comparison of two runs, cell by cell: differences of the primary metric, paired where replicates are shared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, Status, to_json_number
from parvibench.harness.store.results import Results, metric_values
from parvibench.statistics import holm, paired_difference

from . import leaderboard as lb
from .figures.figure import GREY, Drawing, LabelStyle, slug
from .figures.over_tasks import forest
from .formatting import name
from .winners import overlap

_COLUMNS = (
    "task", "label", "metric", "unit", "paired", "n", "a", "b", "difference", "low", "high", "p_value", "verdict", "note",
)  # fmt: skip
_ALPHA = 0.05


def compare(a: Results, b: Results, metric: str | None = None) -> pd.DataFrame:
    """Differences b - a of every cell that both runs have, in each task's primary metric or in ``metric``.

    Replicates of one task share their streams within a seed: with equal seeds the difference is paired by replicate
    (Student's t, splits corrected for their overlap), else the means are compared (Welch). Values are ratios to the
    floor where there is one (``unit`` is then ``floors``).

    Returns:
        One row per cell of both runs: means ``a`` and ``b`` over finite replicates, ``difference`` with its 95%
            interval ``low``, ``high``, ``p_value`` (Holm over the table), ``verdict`` (``better``, ``worse``, ``open``:
            b against a, by the metric's direction; ``changed`` where neither direction is better; ``not comparable``
            with a note).

    Raises:
        InputError: the runs share no cell.
    """
    others = {(c.task, c.label): c for c in b.cells}
    shared = [(c, others[c.task, c.label]) for c in a.cells if (c.task, c.label) in others]
    if not shared:
        raise InputError(f"runs {a.run.id} and {b.run.id} share no task and method: nothing to compare")
    primary = {task: metric or lb.primary_metric(a, task) for task in lb.task_names(a)}
    frame = pd.DataFrame([_row(x, y, primary[x.task]) for x, y in shared], columns=list(_COLUMNS))
    known = frame["p_value"].notna()
    frame.loc[known, "p_value"] = holm(frame.loc[known, "p_value"].tolist())
    for i in frame.index[known]:
        frame.loc[i, "verdict"] = _verdict(frame.loc[[i]].iloc[0])
    return frame


def _row(x: CellRecord, y: CellRecord, metric: str) -> tuple[Any, ...]:
    known = lb.floor(x.task, metric, x.samples) if x.samples == y.samples else None
    unit = "floors" if known else metric
    scale = known.median if known else 1.0
    paired = x.spec.seed == y.spec.seed and x.particles == y.particles
    note = _obstacle(x, y, metric)
    if note:
        return (x.task, x.label, metric, unit, paired, 0, *[math.nan] * 6, "not comparable", note)
    u, v = (np.array(metric_values(metric, c.values[metric])) / scale for c in (x, y))
    lost = [int((~np.isfinite(w)).sum()) for w in (u, v)]
    note = f"replicates without a value: {lost[0]} and {lost[1]}" if any(lost) else ""
    if paired:
        n = min(len(u), len(v))
        count, *numbers = paired_difference(v[:n], u[:n], overlap=overlap(x.task))
    else:
        count, *numbers = _unpaired(u[np.isfinite(u)], v[np.isfinite(v)])
    means = [float(w[np.isfinite(w)].mean()) if np.isfinite(w).any() else math.nan for w in (u, v)]
    return (x.task, x.label, metric, unit, paired, count, *means, *numbers, "open", note)


def _obstacle(x: CellRecord, y: CellRecord, metric: str) -> str:
    """Why two cells are not comparable; empty where they are."""
    for which, c in (("the first", x), ("the second", y)):
        if c.status is not Status.OK:
            return f"{which} is {c.status}: {c.reason}"[:300]
        if metric not in c.values:
            return f"{which} has no {metric or 'metric'}"
    if x.spec.task_version != y.spec.task_version:
        return f"the task changed: version {x.spec.task_version} and {y.spec.task_version}"
    return ""


def _unpaired(u: np.ndarray, v: np.ndarray) -> tuple[int, float, float, float, float]:
    """Welch's test of v - u: replicates (of the fewer), difference, 95% interval, p-value."""
    n, difference = min(len(u), len(v)), float(v.mean() - u.mean()) if len(u) and len(v) else math.nan
    if n < 2 or not (u.std() or v.std()):
        return n, difference, math.nan, math.nan, math.nan
    test = stats.ttest_ind(v, u, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return n, difference, float(low), float(high), float(test.pvalue)


def _verdict(row: pd.Series) -> str:
    if row["p_value"] > _ALPHA:
        return "open"
    if lb.direction(str(row["metric"])) == "neutral":
        return "changed"
    return "better" if (row["difference"] < 0) != lb.higher_is_better(str(row["metric"])) else "worse"


def drawings(frame: pd.DataFrame) -> list[Drawing]:
    """Differences with their intervals, one figure per unit; the 24 with the smallest p-values."""
    found = []
    for unit, rows in frame[frame["low"].notna()].groupby("unit", sort=False):
        rows = rows.sort_values("p_value", kind="stable")
        cells = [f"{name(t)}: {name(m)}" for t, m in zip(rows["task"], rows["label"], strict=True)]
        table = rows[["difference", "low", "high"]].set_axis(["value", "low", "high"], axis=1)
        table.index = pd.Index(cells, name="cell")
        colours = ["#0173b2" if p <= _ALPHA else GREY for p in rows["p_value"]]
        styles = {cell: LabelStyle(colour) for cell, colour in zip(cells, colours, strict=True)}
        title = f"second run less first, {unit}"
        note = "Mean differences over replicates, 95% intervals; blue: significant after Holm's correction."
        found += forest(slug("difference", str(unit)), title, table, title, note, styles, zero=True)
    return found


def write(frame: pd.DataFrame, out: Path) -> list[Path]:
    """Write the table and the figures: ``differences.csv``, ``difference-UNIT.svg``."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "differences.csv"]
    frame.to_csv(paths[0], index=False)
    for drawing in drawings(frame):
        paths.append(out / f"{drawing.name}.svg")
        paths[-1].write_bytes(drawing.pictures[0].content)
    return paths


def document(a: Results, b: Results, frame: pd.DataFrame, files: Sequence[Path]) -> dict[str, Any]:
    """The table as a JSON document; null where a number is missing."""
    rows = [
        {k: to_json_number(v) if isinstance(v, float) else v for k, v in row.items()}
        for row in frame.to_dict("records")
    ]
    return {"run_a": a.run.id, "run_b": b.run.id, "files": [str(p) for p in files], "cells": rows}
