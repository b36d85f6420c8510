"""The methods among the best of every task, as of ``board.table``. Medians alone decide nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench import statistics
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.text import leaders

from . import board as lb

Scores = Mapping[tuple[str, str], NDArray[np.float64]]


@dataclass(frozen=True)
class Best:
    """The methods that no other method significantly beats on a task."""

    where: str  #: the task
    compared: int  #: methods with a finite result
    beaten: int  #: methods significantly worse than another
    rows: pd.DataFrame  #: of the board: of these methods, lowest rank first

    @property
    def sentence(self) -> str:
        """The outcome on a task; a second sentence where KSD or predictions alone rank the methods."""
        rows = self.rows[["label", "marks", "median", "low", "high", "floor_ratio"]].to_dict("records")
        shown = [(str(r["label"]), lb.shown_interval(r), ", ".join(lb.warnings(r["marks"]))) for r in rows]
        unit = lb.unit(self.rows.iloc[0]) if len(self.rows) else ""
        beats, pairs = self.rows[["beats", "pairs"]].iloc[0] if len(self.rows) else (0, 0)
        text = leaders.on_task(self.where, shown, unit, self.compared, self.beaten, int(beats), int(pairs))
        return text + leaders.caveat(unit)


@dataclass(frozen=True)
class View:
    """Outcomes of the tests among some methods: all, those of one kind, those of one division."""

    board: pd.DataFrame  #: of ``board.table``
    scores: Scores  #: of ``board.scores``
    tasks: tuple[Best, ...]  #: of every task, in the order of the run

    @classmethod
    def of(cls, results: StoredRun, measured: lb.Measured | None = None) -> View:
        """Run all tests; ``measured`` as in ``board.table``."""
        board = lb.table(results, measured)
        tasks = []
        for task, rows in board.groupby("task", sort=False):
            best = rows[rows["best"].astype(bool)].sort_values("rank", kind="stable")
            tasks.append(Best(str(task), int(lb.competing(rows).sum()), int(rows["beaten"].sum()), best))
        return cls(board, lb.scores(results, board), tuple(tasks))

    def means(self, tasks: Sequence[str]) -> pd.DataFrame:
        """Interquartile means of the ratio to the floor over tasks, all replicates pooled; best first.

        Index label; columns ``value``, ``low``, ``high`` (95%). Methods ranked on all the tasks only.
        """
        ranked = self.board[self.board["task"].isin(tasks) & self.board["rank"].notna()]
        count = ranked.groupby("label", sort=False)["task"].nunique()
        labels = [str(label) for label in count.index[count == len(tasks)]]
        rows = {label: _pooled(tuple(self.scores[task, label].tobytes() for task in tasks)) for label in labels}
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"], dtype=float)
        return frame.rename_axis("label").sort_values("value", kind="stable")


@lru_cache(maxsize=4096)
def _pooled(tasks: tuple[bytes, ...]) -> statistics.Aggregate:
    """Interquartile mean over tasks, float64; the same in the view of all methods and in that of a kind."""
    values = [np.frombuffer(task) for task in tasks]
    return statistics.interquartile_mean(values, np.random.default_rng([len(v) for v in values]))
