"""A board over its tasks: the methods among the best, means and average ranks, and the tasks that methods have in common.

Who is among the best is as of ``board.table``: medians alone decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench import statistics
from parvibench.core.result import Status
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.text import leaders

from . import board as lb

Scores = Mapping[tuple[str, str], NDArray[np.float64]]
#: As of ``View.methods``.
Method = tuple[str, pd.Series, dict[str, lb.Row]]


@dataclass(frozen=True)
class View:
    """Outcomes of the tests among some methods: all, those of one kind, those of one division."""

    board: pd.DataFrame  #: of ``board.table``
    scores: Scores  #: of ``board.scores``

    @classmethod
    def of(cls, results: StoredRun, measured: lb.Measured | None = None) -> View:
        """Run all tests; ``measured`` as in ``board.table``."""
        board = lb.table(results, measured)
        return cls(board, lb.scores(results, board))

    @cached_property
    def sentences(self) -> dict[str, str]:
        """Task -> who is among the best of it; a second sentence where KSD or predictions alone rank the methods."""
        found = {}
        for task, rows in self.board.groupby("task", sort=False):
            best = rows[rows["best"].astype(bool)].sort_values("rank", kind="stable").to_dict("records")
            shown = [(str(r["label"]), lb.shown_interval(r), ", ".join(lb.warnings(r["marks"]))) for r in best]
            unit, beats, pairs = (lb.unit(best[0]), best[0]["beats"], best[0]["pairs"]) if best else ("", 0, 0)
            compared, beaten = int(lb.competing(rows).sum()), int(rows["beaten"].sum())
            text = leaders.on_task(str(task), shown, unit, compared, beaten, int(beats), int(pairs))
            found[str(task)] = text + leaders.caveat(unit)
        return found

    @cached_property
    def rows(self) -> dict[str, dict[str, lb.Row]]:
        """Label -> task -> row of the board, without the medians of other metrics."""
        found: dict[str, dict[str, lb.Row]] = {}
        for row in self.board[list(lb.COLUMNS)].to_dict("records"):
            found.setdefault(str(row["label"]), {})[str(row["task"])] = row
        return found

    @cached_property
    def methods(self) -> list[Method]:
        """Label, row of ``average_ranks`` and, by task, rows of the board of every method: best first, anchors last."""
        return [(str(label), rank, self.rows[str(label)]) for label, rank in average_ranks(self.board).iterrows()]

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


def common_tasks(board: pd.DataFrame) -> list[str]:
    """Tasks of a board, in its order, that all methods ran on that ran on half of the tasks.

    Averages over them are of the same tasks for all methods: a method that loses to another on all of them cannot be
    listed above it.
    """
    rows = board[~board["anchor"].astype(bool) & ~board["status"].isin([str(s) for s in lb.NOT_RUN])]
    ran = {str(label): set(mine["task"]) for label, mine in rows.groupby("label", sort=False)}
    names = [str(t) for t in dict.fromkeys(rows["task"])]
    counted = [mine for mine in ran.values() if 2 * len(mine) >= len(names)]
    return [t for t in names if all(t in mine for mine in counted)]


def average_ranks(board: pd.DataFrame) -> pd.DataFrame:
    """Rank of every method of a board averaged over the tasks that rank it; best first, anchors last.

    Index label; columns ``anchor``, ``average_rank`` (ties share the mean of their ranks), ``n_tasks`` (that rank the
    method) and ``n_failed`` (of these, without a result).
    """
    rows = board[["task", "label", "anchor", "status", "rank"]].copy()
    # ``rank`` gives ties the best of their places; an average needs the middle.
    rows["rank"] = rows.groupby("task")["rank"].rank(method="average")
    failed = rows["rank"].notna() & (rows["status"] != Status.OK)
    frame = rows.assign(failed=failed).groupby("label", sort=False).agg(
        anchor=("anchor", "first"), average_rank=("rank", "mean"), n_tasks=("rank", "count"), n_failed=("failed", "sum")
    )  # fmt: skip
    return frame.sort_values(["anchor", "average_rank"], kind="stable")
