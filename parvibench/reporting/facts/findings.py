"""The methods among the best of a task or of a kind of targets. Medians alone decide nothing.

See ``board.table`` for who is among the best of a task; among the best of several tasks are those that are on every
one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench import statistics
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.text import leaders

from . import board as lb
from .averages import average_ranks

Scores = Mapping[tuple[str, str], NDArray[np.float64]]


@dataclass(frozen=True)
class Best:
    """The methods that no other method significantly beats on a task, or on several."""

    where: str  #: task or kind of target
    tasks: tuple[str, ...]  #: the tasks covered
    on: Mapping[
        str, int
    ]  #: method -> number of tasks on which it is among the best, most first; at equal numbers by rank
    compared: int  #: methods with a finite result on one of the tasks
    beaten: int  #: on one task, methods significantly worse than another
    rows: pd.DataFrame  #: of the board: of these tasks and of the methods of ``on``, where they are among the best

    @property
    def members(self) -> list[str]:
        """Methods that are among the best on every one of the tasks."""
        return [label for label, n in self.on.items() if n == len(self.tasks)]

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
    groups: tuple[Best, ...]  #: of every kind of target

    @classmethod
    def of(cls, results: StoredRun, measured: lb.Measured | None = None) -> View:
        """Run all tests; ``measured`` as in ``board.table``."""
        board = lb.table(results, measured)
        tasks, groups = ([_best(str(v), rows) for v, rows in board.groupby(c, sort=False)] for c in ("task", "group"))
        return cls(board, lb.scores(results, board), tuple(tasks), tuple(groups))

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """Average ranks over all tasks, as of ``average_ranks``."""
        return average_ranks(self.board)

    def means(self, tasks: Sequence[str]) -> pd.DataFrame:
        """Interquartile means of the ratio to the floor over tasks, all replicates pooled; best first.

        Index label; columns ``value``, ``low``, ``high`` (95%). Methods ranked on all the tasks only.
        """
        rows = {
            label: _pooled(tuple(self.scores[task, label].tobytes() for task in tasks))
            for label in complete_labels(self.board, tasks)
        }
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"], dtype=float)
        return frame.rename_axis("label").sort_values("value", kind="stable")


@lru_cache(maxsize=4096)
def _pooled(tasks: tuple[bytes, ...]) -> statistics.Aggregate:
    """Interquartile mean over tasks, float64; the same in the view of all methods and in that of a kind."""
    values = [np.frombuffer(task) for task in tasks]
    return statistics.interquartile_mean(values, np.random.default_rng([len(v) for v in values]))


def _best(where: str, board: pd.DataFrame) -> Best:
    rows = board[board["best"].astype(bool)]
    by_label = rows.groupby("label")["rank"].agg(["count", "mean"])
    order = by_label.sort_values(["count", "mean"], ascending=[False, True], kind="stable")["count"]
    on = {str(label): int(n) for label, n in order.items()}
    compared = board[lb.competing(board)]["label"].nunique()
    tasks, beaten = tuple(str(t) for t in board["task"].unique()), int(board["beaten"].sum())
    return Best(where, tasks, on, compared, beaten, rows)


def complete_labels(board: pd.DataFrame, tasks: Sequence[str]) -> list[str]:
    """Methods that are ranked on all of these tasks, in the board's order."""
    rows = board[board["task"].isin(tasks) & board["rank"].notna()]
    count = rows.groupby("label", sort=False)["task"].nunique()
    return [str(label) for label in count.index[count == len(tasks)]]
