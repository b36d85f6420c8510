"""The methods among the best: on a task, on a kind of targets, over all tasks. Medians alone decide nothing.

See ``leaderboard.table`` for who is among the best of a task; among the best of several tasks are those that are on every
one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench import statistics
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.formatting import count, join, name, number

from . import leaderboard as lb

Scores = Mapping[tuple[str, str], NDArray[np.float64]]
#: Start of a metric's name -> what a rank by it alone does not say.
_BY_METRIC = {
    "ksd": " Ranked by KSD alone, which sees neither a missed mode nor wrong weights of separated modes.",
    "nll": " Ranked by predictions of test rows, which do not tell how near samples are to the posterior.",
}
#: What "among the best" means, once on a page.
RULE = (
    "Among the best of a task are the methods than which no other method with a finite result is significantly better: "
    "moderated t tests paired by replicate, Holm over all pairs of methods on all tasks of a kind of target, 5% for each kind. "
    "Replicates that differ by orders of magnitude can hide from such tests; where some of these methods pass for exact draws, "
    "those are therefore left out that have over five times the medians of them all and are significantly worse than exact draws "
    "(exact rank tests against the floor, at the same level). Methods that have not converged take part and are marked."
)
#: Most methods that a sentence names; where none is among the best on every task.
_NAMED, _FEW = 6, 3
_NOBODY = "no method has a finite result better than the initial distribution."
_FAR = "than exact draws, with over five times the medians of the methods that pass for them"


@dataclass(frozen=True)
class Best:
    """The methods that no other method significantly beats on a task, or on several."""

    where: str  #: task, kind of target, or empty for all tasks
    tasks: tuple[str, ...]  #: the tasks covered
    on: Mapping[str, int]  #: method -> tasks on which it is among the best, most first; at equal numbers by rank
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
        by = [said for start, said in _BY_METRIC.items() if self.rows["metric"].str.startswith(start).all()]
        found = self._on_task() if len(self.tasks) == 1 else self._on_tasks()
        return found + ("".join(by) if len(self.rows) else "")

    def _on_task(self) -> str:
        """Who is among the best of the only task, in the order of the board."""
        (task,) = self.tasks
        on = f"On {name(self.where if self.where == task else f'{self.where} ({task})' if self.where else task)},"
        if not len(self.rows):
            return f"{on} {_NOBODY}"
        rows = self.rows.to_dict("records")
        values = [lb.result(rows[0]), *(number(lb.shown(r)) for r in rows[1:])]
        listed = _named([(r["label"], v, _warnings([r["marks"]], 1)) for r, v in zip(rows, values, strict=True)])
        compared, rest = self.compared, self.compared - len(rows)
        if compared == 1:
            return f"{on} {listed} is the only method with a finite result."
        far = rest - self.beaten  # significantly worse than exact draws alone
        tests = "paired t tests, exact rank tests" if far else "paired t tests"
        tested = f" ({tests}, Holm over {count(rows[0]['pairs'], 'comparison')}, 5%)"
        if not rest:
            return f"{on} none of {compared} methods is significantly better than another{tested}: {listed}."
        if len(rows) == 1:
            others = f"{rows[0]['beats']} of {rest} others{f', {far} worse {_FAR}' if far else ''}"
            return f"{on} {listed} is the best of {compared} methods: significantly better than {others}{tested}."
        worse = [f"{n} {than}" for n, than in ((self.beaten, "than another method"), (far, _FAR)) if n]
        than = f", {join(worse)}" if len(worse) > 1 else f" {worse[0].partition(' ')[2]}"
        others = f"the other {rest} {'is' if rest == 1 else 'are each'} significantly worse{than}"
        return f"{on} {len(rows)} of {compared} methods are among the best: {listed}; {others}{tested}."

    def _on_tasks(self) -> str:
        """Who is among the best on every one of several tasks, or on most of them."""
        n_tasks, compared = len(self.tasks), self.compared
        over = f"On {name(self.where)} ({count(n_tasks, 'task')})," if self.where else f"Over all {n_tasks} tasks,"
        if not self.on:
            return f"{over} {_NOBODY}"
        marks = self.rows.groupby("label")["marks"].agg(list)
        counts = [(label, n, _warnings(marks[label], n_tasks)) for label, n in self.on.items()]
        every = [(label, "", words) for label, n, words in counts if n == n_tasks]
        if len(every) == 1:
            return f"{over} {_named(every)} is the only one of {count(compared, 'method')} that is among the best on every task."
        if every:
            return f"{over} {len(every)} of {compared} methods are among the best on every task: {_named(every)}."
        least = counts[:_FEW][-1][1]  # those that tie with the last of the first few are counted
        most = _named([(label, str(n), words) for label, n, words in counts if n >= least], _FEW)
        return f"{over} none of {count(compared, 'method')} is among the best on every task; most often are {most}."


@dataclass(frozen=True)
class Findings:
    """The tests of a run, from which figures, tables and sentences are made."""

    results: StoredRun  #: the run
    board: pd.DataFrame  #: of ``leaderboard.table``
    scores: Scores  #: of ``leaderboard.scores``
    tasks: tuple[Best, ...]  #: of every task, in the order of the run
    groups: tuple[Best, ...]  #: of every kind of target
    whole: Best  #: of all tasks

    @classmethod
    def of(cls, results: StoredRun, board: pd.DataFrame | None = None) -> Findings:
        """Run all tests; ``board`` is that of ``leaderboard.table``, if already made."""
        board = lb.table(results) if board is None else board
        tasks, groups = ([_best(str(v), rows) for v, rows in board.groupby(c, sort=False)] for c in ("task", "group"))
        return cls(results, board, lb.scores(results, board), tuple(tasks), tuple(groups), _best("", board))

    def by_kind(self) -> dict[str, Findings]:
        """The same tests among the methods of each kind alone, and of each division."""
        kinds, divisions = lb.method_kinds(self.results), lb.divisions(self.results)
        measured = {(r["task"], r["label"]): r for r in self.board.to_dict("records")}
        found = {}
        for part in (*dict.fromkeys(k for k in kinds.values() if k != "anchor"), *(lb.DIVISIONS if divisions else ())):
            cells = tuple(
                c
                for c in self.results.cells
                if part in (kinds[c.label], divisions.get(c.label)) or kinds[c.label] == "anchor"
            )
            some = replace(self.results, cells=cells)
            found[part] = self if len(cells) == len(self.results.cells) else Findings.of(some, lb.table(some, measured))
        return found


@lru_cache(maxsize=4096)
def _pooled(tasks: tuple[bytes, ...]) -> statistics.Aggregate:
    """Interquartile mean over tasks, float64; the same in the view of all methods and in that of a kind."""
    values = [np.frombuffer(task) for task in tasks]
    return statistics.interquartile_mean(values, np.random.default_rng([len(v) for v in values]))


def _named(methods: Sequence[tuple[str, str, str]], most: int = _NAMED) -> str:
    """Methods with a value and warnings in brackets: ``a (0.6), b (0.7, transient) and 3 more``."""
    shown = []
    for label, value, words in methods[:most]:
        said = ", ".join(filter(None, [value, words]))
        shown.append(f"{name(label)} ({said})" if said else name(label))
    return join([*shown, f"{len(methods) - most} more"] if len(methods) > most else shown)


def _warnings(marks: Iterable[str], tasks: int) -> str:
    """What is amiss with a method on the tasks where it is among the best, such as ``transient on 2``."""
    counts = Counter(w for text in marks for w in str(text).split(", ") if w not in ("", "edge", "untuned"))
    return ", ".join(w if tasks == 1 else f"{w} on {n}" for w, n in counts.items())


def _best(where: str, board: pd.DataFrame) -> Best:
    rows = board[board["best"].astype(bool)]
    by_label = rows.groupby("label")["rank"].agg(["count", "mean"])
    order = by_label.sort_values(["count", "mean"], ascending=[False, True], kind="stable")["count"]
    on = {str(label): int(n) for label, n in order.items()}
    compared = board[lb.competing(board)]["label"].nunique()
    tasks, beaten = tuple(str(t) for t in board["task"].unique()), int(board["beaten"].sum())
    return Best(where, tasks, on, compared, beaten, rows)


def aggregates(board: pd.DataFrame, scores: Scores, tasks: Sequence[str]) -> pd.DataFrame:
    """Interquartile means of the ratio to the floor over tasks, all replicates pooled; best first.

    Index label; columns ``value``, ``low``, ``high`` (95%). Methods ranked on all the tasks only.
    """
    ranked = board[board["task"].isin(tasks) & board["rank"].notna()]
    ranked_on = ranked.groupby("label", sort=False)["task"].nunique()
    complete = [str(label) for label in ranked_on.index[ranked_on == len(tasks)]]
    rows = {label: _pooled(tuple(scores[task, label].tobytes() for task in tasks)) for label in complete}
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"], dtype=float)
    return frame.rename_axis("label").sort_values("value", kind="stable")
