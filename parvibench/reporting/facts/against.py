"""Published results beside those of a run: on each common task one board, pairs by seed, and what differs."""

import math
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd

from parvibench.core.errors import InputError
from parvibench.reporting.formatting import number
from parvibench.reporting.text import comparing
from parvibench.statistics import median_interval, paired_difference

#: What two cells have to share for their replicates to be the same problem and start.
_SAME = ("task_version", "seed", "samples", "particles")
#: What is said to differ.
_TOLD = ("task_version", "algorithm_version", "budget", "samples", "particles", "seed", "start", "step_size")


def published(where: str) -> pd.DataFrame:
    """Results as ``report_files.values`` makes them: of a suite that ships, a file's, or an address's.

    Raises:
        InputError: there are none, or they are from before this format.
    """
    try:
        shipped = files("parvibench.results") / where / "results.parquet"
        if where.startswith("https://"):
            frame = pd.read_parquet(where)
        else:
            frame = pd.read_parquet(BytesIO((shipped if shipped.is_file() else Path(where)).read_bytes()))
    except (OSError, ValueError, ImportError) as error:
        raise InputError(comparing.NO_RESULTS.format(where=where, why=str(error)[:200])) from None
    if missing := {"primary", "floor", *_TOLD} - set(frame):
        raise InputError(comparing.OLD_RESULTS.format(where=where, columns=", ".join(sorted(missing))))
    return frame[frame["primary"].fillna(False).astype(bool)]


def beside(mine: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One row per method and task, best first, and sentences on pairs and differences.

    Args:
        mine: of ``report_files.values``.
        theirs: of ``published``.

    Returns:
        Columns ``task``, ``label``, ``whose`` (``yours``, ``published``), ``unit``, ``value``, ``low``, ``high`` (ratio to the
        floor where there is one), ``marks``. Only tasks and metrics that both have.

    Raises:
        InputError: no task and metric in common.
    """
    mine = mine.merge(theirs[["task", "metric"]].drop_duplicates())
    theirs = theirs[theirs["task"].isin(mine["task"])]
    if not len(mine):
        raise InputError(comparing.NO_COMMON_TASK)
    rows, said = [], []
    for whose, frame in (("yours", mine), ("published", theirs)):
        for (task, label), cell in frame.groupby(["task", "label"], sort=False):
            first = cell.iloc[0]
            higher, floor = first["direction"] == "higher", first["floor"]
            unit = first["metric"] if math.isnan(floor) else "× floor"
            values = cell["value"].astype(float).fillna(-math.inf if higher else math.inf)
            scaled = (-values if higher else values) / (1.0 if math.isnan(floor) else floor)
            shown = [-v if higher else v for v in median_interval(scaled.tolist())]
            rows.append((task, label, whose, unit, *shown, first["marks"]))
    for (task, label), cell in mine.groupby(["task", "label"], sort=False):
        other = theirs[(theirs["task"] == task) & (theirs["label"] == label)]
        if len(other) and not cell["anchor"].iloc[0]:
            said.append(
                comparing.AGAINST.format(
                    label=label, task=task, found=_pair(cell, other), differs=_differs(cell, other)
                )
            )
    board = pd.DataFrame(rows, columns=["task", "label", "whose", "unit", "value", "low", "high", "marks"])
    sign = np.where(board["task"].isin(mine.loc[mine["direction"] == "higher", "task"]), -1, 1)
    order = board.assign(place=sign * board["value"]).sort_values(["task", "place"], kind="stable").index
    return board.loc[order].reset_index(drop=True), said


def _pair(cell: pd.DataFrame, other: pd.DataFrame) -> str:
    """The same method twice: equal, or by how much it differs, paired where seeds match."""
    both = cell.merge(other, on="replicate", suffixes=("", "_other"))
    x, y = (both[c].to_numpy(dtype=float) for c in ("value", "value_other"))
    if any(cell[c].iloc[0] != other[c].iloc[0] for c in _SAME) or not len(both):
        return comparing.UNPAIRED
    if np.array_equal(x, y, equal_nan=True):
        return comparing.EQUAL.format(n=len(both))
    found = paired_difference(x, y)
    return comparing.PAIRED.format(n=found.n, mean=number(found.mean), low=number(found.low), high=number(found.high))


def _differs(cell: pd.DataFrame, other: pd.DataFrame) -> str:
    pairs = {c: (cell[c].iloc[0], other[c].iloc[0]) for c in _TOLD}
    told = [f"{c} {a} against {b}" for c, (a, b) in pairs.items() if a != b and not (pd.isna(a) and pd.isna(b))]
    return f"; differs: {', '.join(told)}" if told else ""
