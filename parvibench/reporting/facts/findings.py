"""The methods among the best: on a task, on a kind of targets, over all tasks. Medians alone decide nothing.

See ``board.table`` for who is among the best of a task; among the best of several tasks are those that are on every
one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench import statistics
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.text import leaders
from parvibench.reporting.text.marks import LOST_SOME

from . import board as lb
from .averages import average_ranks

Scores = Mapping[tuple[str, str], NDArray[np.float64]]


@dataclass(frozen=True)
class Best:
    """The methods that no other method significantly beats on a task, or on several."""

    where: str  #: task, kind of target, or empty for all tasks
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
        """Everything in one sentence; a second one where KSD or predictions alone rank the methods."""
        by = [said for name, said in leaders.BY_METRIC.items() if self.rows["metric"].str.startswith(name).all()]
        return self._outcome + ("".join(by) if len(self.rows) else "")

    @property
    def _outcome(self) -> str:
        if len(self.tasks) != 1:
            marks = self.rows.groupby("label")["marks"].agg(list)
            counts = [(label, n, _warnings(marks[label], len(self.tasks))) for label, n in self.on.items()]
            return leaders.on_tasks(self.where, len(self.tasks), counts, self.compared)
        where = self.where if self.where in ("", *self.tasks) else f"{self.where} ({self.tasks[0]})"
        rows = self.rows[["label", "marks", "median", "low", "high", "floor_ratio"]].to_dict("records")
        shown = [(str(r["label"]), lb.shown_interval(r), _warnings([r["marks"]], 1)) for r in rows]
        unit = lb.unit(self.rows.iloc[0]) if len(self.rows) else ""
        beats, pairs = self.rows[["beats", "pairs"]].iloc[0] if len(self.rows) else (0, 0)
        return leaders.on_task(where or self.tasks[0], shown, unit, self.compared, self.beaten, int(beats), int(pairs))


@dataclass(frozen=True)
class View:
    """Outcomes of the tests among some methods: all, those of one kind, those of one division."""

    board: pd.DataFrame  #: of ``board.table``
    scores: Scores  #: of ``board.scores``
    tasks: tuple[Best, ...]  #: of every task, in the order of the run
    groups: tuple[Best, ...]  #: of every kind of target
    whole: Best  #: of all tasks

    @classmethod
    def of(cls, results: StoredRun, measured: lb.Measured | None = None) -> View:
        """Run all tests; ``measured`` as in ``board.table``."""
        board = lb.table(results, measured)
        tasks, groups = ([_best(str(v), rows) for v, rows in board.groupby(c, sort=False)] for c in ("task", "group"))
        return cls(board, lb.scores(results, board), tuple(tasks), tuple(groups), _best("", board))

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """Average ranks over all tasks, as of ``average_ranks``."""
        return average_ranks(self.board)

    @property
    def headline(self) -> str:
        """Who is among the best of all tasks; empty where nothing was requested."""
        return self.whole.sentence if self.whole.tasks else ""

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


def _warnings(marks: Iterable[str], tasks: int) -> str:
    """What is amiss with a method on the tasks where it is among the best, such as ``transient on 2``."""
    words = [w for text in marks for w in str(text).split(", ") if w not in ("", "edge", "untuned")]
    if tasks == 1:
        return ", ".join(words)
    counts = Counter(LOST_SOME if w.startswith("lost ") else w for w in words)
    return ", ".join(f"{w} on {n}" for w, n in counts.items())


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
