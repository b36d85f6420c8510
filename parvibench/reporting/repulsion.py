"""What self-repulsion brings: SRLD less the same chain without repulsion, paired by replicate."""

from __future__ import annotations

import pandas as pd

from parvibench import statistics
from parvibench.core.result import CellRecord
from parvibench.harness.store.results import StoredRun

from . import leaderboard as lb
from .formatting import interval
from .page_tables import Column, Entry, Row, Table, numeric, p_value, setting
from .winners import Scores, overlap

_ALGORITHM = "srld"


def repulsion_table(results: StoredRun, board: pd.DataFrame, scores: Scores) -> Table | None:
    """Every SRLD less LD (alpha 0) on every task; None where no run has both."""
    cells = [c for c in results.cells if c.algorithm == _ALGORITHM and (c.task, c.label) in scores]
    plain = {c.task: c for c in cells if c.settings.get("alpha") == 0}
    rows = [
        _row(c, plain[c.task], board, scores, results)
        for c in cells
        if c.task in plain and c.settings.get("alpha") != 0
    ]
    if not rows:
        return None
    columns = (
        Column("task", numeric=False),
        Column("method", numeric=False),
        Column("difference", "mean of SRLD less LD over the replicates both have [95%]; below 0: repulsion helps"),
        Column("p", "paired t test, splits corrected for their overlap; not adjusted for the number of rows"),
        Column("quantity", numeric=False),
        Column("step", "eta of SRLD"),
        Column("step of LD", "eta of LD"),
    )
    return Table("SRLD less LD, the same chain without repulsion", columns, tuple(rows))


def _row(cell: CellRecord, plain: CellRecord, board: pd.DataFrame, scores: Scores, results: StoredRun) -> Row:
    a, b = scores[cell.task, cell.label], scores[cell.task, plain.label]
    shared = min(len(a), len(b))
    found = statistics.paired_difference(a[:shared], b[:shared], overlap=overlap(cell.task))
    row = board[(board["task"] == cell.task) & (board["label"] == cell.label)].iloc[0]
    quantity = "× floor" if pd.notna(row["floor_ratio"]) else str(row["metric"])
    mean = numeric(found.mean, p_value(found.p_t).look, f"{found.n} pairs", f"[{interval(found.low, found.high)}]")
    equal = cell.settings.get("step_size") == plain.settings.get("step_size")
    as_far = any(a.get("match_drift") and a.get("label") == cell.label for a in results.run.suite.get("algorithms", ()))
    steps = setting(cell.settings.get("step_size")), setting(plain.settings.get("step_size"))
    note = Entry(cell.label, note="moving as far" if as_far else "at equal step" if equal else "each at its own step")
    return Row(
        (Entry(cell.task), note, mean, p_value(found.p_t), Entry(quantity), *steps), group=lb.task_group(cell.task)
    )
