"""The methods among the best of every task, as of ``board.table``. Medians alone decide nothing."""

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

Scores = Mapping[tuple[str, str], NDArray[np.float64]]


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
