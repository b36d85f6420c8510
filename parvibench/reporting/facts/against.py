"""Published results beside those of a run: on each common task one board, pairs by seed, and what differs."""

from __future__ import annotations

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
    """Results as ``Facts.values`` makes them: of a suite that ships, a file's, or an address's; ``InputError`` without any of this format."""
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

    Of ``mine``, as ``Facts.values`` makes it, and ``theirs``, as of ``published``: columns ``task``, ``label``, ``whose``
    (``yours``, ``published``), ``unit``, ``value``, ``low``, ``high`` (ratio to the floor where there is one), ``marks``. Only
    tasks and metrics that both have; ``InputError`` without any.
    """
    mine = mine.merge(theirs[["task", "metric"]].drop_duplicates())
    theirs = theirs[theirs["task"].isin(mine["task"])]
    if not len(mine):
        raise InputError(comparing.NO_COMMON_TASK)
    rows, said, published = [], [], dict(list(theirs.groupby(["task", "label"], sort=False)))
    for whose, frame in (("yours", mine), ("published", theirs)):
        for (task, label), cell in frame.groupby(["task", "label"], sort=False):
            first = cell.iloc[0]
            sign = -1 if first["direction"] == "higher" else 1
            middle, *ends = median_interval((sign * _shown(cell)).tolist())
            ends = [sign * end for end in ends][::sign]
            rows.append((task, label, whose, _unit(cell), sign * middle, *ends, first["marks"], middle))
            other = published.get((task, label))
            if whose == "yours" and other is not None and not first["anchor"]:
                pairs = {c: (first[c], other[c].iloc[0]) for c in _TOLD}
                unequal = {c: (a, b) for c, (a, b) in pairs.items() if a != b and not (pd.isna(a) and pd.isna(b))}
                differs = ", ".join(f"{c} {a} against {b}" for c, (a, b) in unequal.items())
                more = f"; differs: {differs}" if differs else ""
                said.append(comparing.AGAINST.format(label=label, task=task, found=_pair(cell, other), differs=more))
    columns = ["task", "label", "whose", "unit", "value", "low", "high", "marks", "place"]
    board = pd.DataFrame(rows, columns=columns).sort_values(["task", "place"], kind="stable")
    return board.drop(columns="place").reset_index(drop=True), said


def _shown(cell: pd.DataFrame) -> pd.Series[float]:
    """Values of a cell as the leaderboard shows them; lost replicates are the worst."""
    worst = -math.inf if cell["direction"].iloc[0] == "higher" else math.inf
    floor = cell["floor"].iloc[0]
    return cell["value"].astype(float).fillna(worst) / (1.0 if math.isnan(floor) else floor)


def _unit(cell: pd.DataFrame) -> str:
    return str(cell["metric"].iloc[0]) if math.isnan(cell["floor"].iloc[0]) else "× floor"


def _pair(cell: pd.DataFrame, other: pd.DataFrame) -> str:
    """The same method twice: equal, or by how much it differs, paired where seeds match, in the unit of the table."""
    both = cell.assign(shown=_shown(cell)).merge(
        other.assign(shown=_shown(other)), on="replicate", suffixes=("", "_other")
    )
    x, y = (both[c].to_numpy(dtype=float) for c in ("shown", "shown_other"))
    if any(cell[c].iloc[0] != other[c].iloc[0] for c in _SAME) or not len(both):
        return comparing.UNPAIRED
    if np.array_equal(x, y, equal_nan=True):
        return comparing.EQUAL.format(n=len(both))
    found = paired_difference(x, y)
    ends = {"mean": number(found.mean), "low": number(found.low), "high": number(found.high)}
    return comparing.PAIRED.format(n=found.n, unit=_unit(cell), **ends)
