"""The best method per task, per group of tasks and over all tasks, with margins and tests; medians alone decide nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench import statistics
from parvibench.core import registry
from parvibench.core.result import Status
from parvibench.data.splits import training_rows
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.formatting import name
from parvibench.reporting.text import averages, leaders
from parvibench.statistics import Aggregate

from . import leaderboard as lb

_NO_VALUE = Aggregate(math.nan, math.nan, math.nan)
Scores = Mapping[tuple[str, str], NDArray[np.float64]]


@dataclass(frozen=True)
class Winner:
    """The best method on a task or a group of tasks."""

    where: str  #: task or group
    tasks: tuple[str, ...]  #: the tasks covered
    label: str  #: the method; empty where none has converged with a finite result better than ``initial``'s
    quantity: str  #: name of ``value``
    value: Aggregate  #: its median or aggregate, with a 95% interval
    next: str = ""  #: the second best, or empty
    margin: str = ""  #: difference from the second best, as text
    #: methods that it is not significantly better than, best first; this set with the leader holds the truly best
    #: method in at least 95 of 100 cases
    rivals: tuple[str, ...] = ()
    beaten: int = 0  #: number of methods it is significantly better than
    score_evaluations: float = math.nan  #: charged per replicate, mean over tasks
    seconds: float = math.nan  #: per replicate, mean over tasks
    indistinguishable: bool = False  #: from exact draws, on every one of the tasks
    n_diverged: int = 0  #: its diverged replicates, over all tasks
    n_replicates: int = 0  #: all of its replicates there
    nobody: str = leaders.NO_RESULT  #: why there is no best method, where there is none
    unfinished: str = ""  #: methods with a better value that are not the best since they have not converged, as text
    field: tuple[tuple[str, float], ...] = ()  #: all methods with a finite value, converged or not, lowest first

    @property
    def unit(self) -> str:
        """Unit of ``value``."""
        return leaders.FLOORS if "floor" in self.quantity else self.quantity

    @property
    def confidence(self) -> str:
        """The outcome of the tests and the number of diverged replicates, as text."""
        if not self.label:
            return self.nobody
        return leaders.confidence(
            second=self.next, finite=len(self.field), beaten=self.beaten, rivals=self.rivals, unfinished=self.unfinished,
            lost=self.n_diverged, replicates=self.n_replicates,
        )  # fmt: skip

    @property
    def sentence(self) -> str:
        """Everything in one sentence."""
        if not self.label:
            return leaders.NOBODY_LEADS.format(where=name(self.where), why=self.nobody)
        behind, exact = leaders.distance(self.margin, self.next), self.indistinguishable
        return leaders.leads(self.where, self.label, self.quantity, self.value, behind, self.confidence, exact=exact)


@dataclass(frozen=True)
class Findings:
    """The tests of a run, from which figures, tables and sentences are made."""

    results: StoredRun  #: the run
    board: pd.DataFrame  #: of ``leaderboard.table``
    scores: Scores  #: of ``leaderboard.scores``
    tasks: tuple[Winner, ...]  #: the best method of every task, in the order of the run
    groups: tuple[Winner, ...]  #: the best method of every group of at least two tasks with a ratio to the floor

    @classmethod
    def of(cls, results: StoredRun, board: pd.DataFrame | None = None) -> Findings:
        """Run all tests; ``board`` is that of ``leaderboard.table``, if already made."""
        board = lb.table(results) if board is None else board
        scores = lb.scores(results, board)
        tasks = [_task_winner(str(t), rows, scores) for t, rows in board.groupby("task", sort=False)]
        return cls(results, board, scores, tuple(tasks), tuple(_group_winners(board, scores)))

    @property
    def answered(self) -> list[Winner]:
        """The groups, and of groups that nothing aggregates the tasks, for which a page names a method to use."""
        groups = {w.where: w for w in self.groups}
        asked = (groups.get(lb.task_group(w.where), w) for w in self.tasks)
        return list({w.where: w for w in asked}.values())

    def by_kind(self) -> dict[str, Findings]:
        """The same tests among the methods of each kind alone, by kind."""
        kinds = lb.method_kinds(self.results)
        found = {}
        for kind in dict.fromkeys(k for k in kinds.values() if k != "anchor"):
            cells = tuple(c for c in self.results.cells if kinds[c.label] in (kind, "anchor"))
            found[kind] = Findings.of(replace(self.results, cells=cells))
        return found


def overlap(task: str) -> float:
    """Test rows over training rows where replicates are random splits of one data set, else 0."""
    row = registry.tasks().get(task)
    one_split = row is not None and {"variant", "srld"} & set(row.tags) == {"variant"}
    if row is None or "regression" not in row.tags or one_split:
        return 0.0
    return (10 - training_rows(10)) / training_rows(10)


def _task_winner(task: str, rows: pd.DataFrame, scores: Scores) -> Winner:
    finite = np.isfinite(rows["median"].astype(float))
    found = rows[~rows["anchor"].astype(bool) & (rows["status"] == Status.OK) & finite]
    ok = found[found["rank"].notna() & ~found["marks"].map(lb.disqualifies).astype(bool)]
    ratio = bool(rows["floor_ratio"].notna().any())
    quantity = "a ratio to the floor of" if ratio else f"{rows['metric'].iloc[0] or 'no metric'}"
    found = found.sort_values("rank", kind="stable")
    field = _field(found["label"], found["floor_ratio" if ratio else "median"])
    if not len(ok):
        lowest = found[["label", "marks"]].astype(str).head(1).to_numpy()
        why = leaders.none_converged(*lowest[0]) if len(lowest) else leaders.NO_RESULT
        return Winner(task, (task,), "", quantity, _NO_VALUE, nobody=why, field=field)
    # At equal medians the cheaper method leads.
    ok = ok.sort_values(["rank", "seconds"], kind="stable")
    lead = ok.iloc[0]
    labels = [str(label) for label in ok["label"]]
    values = aligned([scores[task, label] for label in labels])
    positive = bool((values > 0).all())
    held = statistics.contest(np.log(values) if positive else values, 0, overlap=overlap(task))
    unit = lead["floor_ratio"] / lead["median"] if ratio else 1.0
    value = Aggregate(*(float(v) * unit for v in lead[["median", "low", "high"]]))
    rivals = tuple(labels[i] for i in held.rivals())
    margin = _margin(ok["median"], relative=ratio)
    ahead = found[(found["rank"] < lead["rank"]) & ~found["label"].isin(labels)]
    note = leaders.better_but_unfinished(
        [(str(label), str(marks)) for label, marks in ahead[["label", "marks"]].to_numpy()]
    )
    won = _winner(task, (task,), quantity, value, labels, margin, rivals, ok.head(1))
    return replace(won, unfinished=note, field=field)


def _field(labels: Iterable[str], values: Iterable[float]) -> tuple[tuple[str, float], ...]:
    return tuple((str(label), float(v)) for label, v in zip(labels, values, strict=True))


def finished_labels(board: pd.DataFrame, tasks: Sequence[str]) -> set[str]:
    """Methods none of whose cells on these tasks is unfinished or no better than the start."""
    rows = board[board["task"].isin(tasks)]
    return {str(v) for v in rows["label"]} - {
        str(v) for v in rows.loc[rows["marks"].map(lb.disqualifies).astype(bool), "label"]
    }


def _winner(
    where: str, tasks: tuple[str, ...], quantity: str, value: Aggregate, labels: list[str], margin: str,
    rivals: tuple[str, ...], rows: pd.DataFrame,
) -> Winner:  # fmt: skip
    """The first of ``labels`` as the best; ``rows`` of the board are its own."""
    return Winner(
        where, tasks, labels[0], quantity, value, next="".join(labels[1:2]), margin=margin, rivals=rivals,
        beaten=len(labels) - 1 - len(rivals), score_evaluations=float(rows["score_evaluations"].mean()),
        seconds=float(rows["seconds"].mean()), indistinguishable=bool((rows["verdict"] == "indistinguishable").all()),
        n_diverged=int(rows["n_diverged"].sum()), n_replicates=int(rows["replicates"].sum()),
    )  # fmt: skip


def aligned(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The replicates that all methods have, in order: (methods, replicates)."""
    shared = min(len(v) for v in values)
    return np.array([v[:shared] for v in values])


def _margin(values: pd.Series, *, relative: bool) -> str:
    """Difference of the first value from the second, before the second's name; empty without a second."""
    return leaders.margin(*map(float, values.iloc[:2]), relative=relative) if len(values) > 1 else ""


def complete_labels(board: pd.DataFrame, tasks: Sequence[str]) -> list[str]:
    """Methods that are ranked on all of these tasks, in the board's order."""
    rows = board[board["task"].isin(tasks) & board["rank"].notna()]
    count = rows.groupby("label", sort=False)["task"].nunique()
    return [str(label) for label in count.index[count == len(tasks)]]


def aggregates(board: pd.DataFrame, scores: Scores, tasks: Sequence[str]) -> pd.DataFrame:
    """Interquartile means of the ratio to the floor over tasks, all replicates pooled; best first.

    Index label; columns ``value``, ``low``, ``high`` (95%), ``p_value`` (that the leader is no better, see
    ``statistics.Contest``; NaN for the leader). Methods ranked on all the tasks only.
    """
    labels = complete_labels(board, tasks)
    columns = ["value", "low", "high", "p_value"]
    if not labels:
        return pd.DataFrame(columns=columns)
    found, held = statistics.interquartile_means([[scores[task, label] for task in tasks] for label in labels])
    rows = [(*a, p) for a, p in zip(found, held.p_values, strict=True)]
    frame = pd.DataFrame(rows, index=pd.Index(labels, name="label"), columns=columns)
    return frame.sort_values(["value"], kind="stable")


def _group_winners(board: pd.DataFrame, scores: Scores) -> list[Winner]:
    found = []
    for group, rows in board[board["floor_ratio"].notna()].groupby("group", sort=False):
        tasks = tuple(str(t) for t in rows["task"].unique())
        if len(tasks) > 1:
            found.append(_group_winner(str(group), tasks, board, scores))
    return found


def _group_winner(group: str, tasks: tuple[str, ...], board: pd.DataFrame, scores: Scores) -> Winner:
    table = aggregates(board, scores, tasks)
    table = table[np.isfinite(table["value"].astype(float))]
    field = _field(table.index, table["value"])
    quantity = "an interquartile mean over the floor of"
    finished = finished_labels(board, tasks)
    nobody = leaders.NONE_ON_ALL if len(table) else leaders.NO_RESULT
    table = table[[str(label) in finished for label in table.index]]
    if not len(table):
        return Winner(group, tasks, "", quantity, _NO_VALUE, nobody=nobody, field=field)
    if not (table["p_value"].isna()).any():  # the lowest of all is not finished: test the best of those that are
        table = aggregates(board[board["label"].isin(finished)], scores, tasks)
    labels = [str(label) for label in table.index]
    rows = board[board["task"].isin(tasks) & (board["label"] == labels[0])]
    rivals = tuple(str(label) for label in table.index[1:][table["p_value"].iloc[1:] > 0.05])
    value = Aggregate(*(float(v) for v in table.iloc[0][["value", "low", "high"]]))
    margin = _margin(table["value"], relative=True)
    return replace(_winner(group, tasks, quantity, value, labels, margin, rivals, rows), field=field)


@dataclass(frozen=True)
class Ranks:
    """Average ranks over tasks, with Friedman's test."""

    tasks: tuple[str, ...]  #: the tasks ranked on
    table: pd.DataFrame  #: index label, column ``average_rank``; methods that are ranked on all the tasks, best first
    p_value: float  #: of Friedman's test that all these methods are equal; NaN where the test cannot be made

    @property
    def sentence(self) -> str:
        """The outcome of Friedman's test."""
        return averages.friedman(len(self.table), len(self.tasks), self.p_value)


def friedman(board: pd.DataFrame, tasks: Sequence[str]) -> Ranks:
    """Average ranks of the methods ranked on all of these tasks; tasks without a ranked method are left out."""
    some = set(board.loc[board["rank"].notna(), "task"])
    tasks = [t for t in tasks if t in some]
    labels = complete_labels(board, tasks)
    if not labels:
        return Ranks(tuple(tasks), pd.DataFrame(columns=["average_rank"]), math.nan)
    ranks = board.pivot_table(index="task", columns="label", values="rank", dropna=False)
    found = statistics.average_ranks(ranks.loc[tasks, labels].to_numpy())
    table = pd.DataFrame({"average_rank": found.ranks}, index=pd.Index(labels, name="label"))
    return Ranks(tuple(tasks), table.sort_values("average_rank", kind="stable"), found.p_value)


def differences(board: pd.DataFrame, scores: Scores, tasks: Sequence[str], leader: str) -> pd.DataFrame:
    """Paired differences of every method's primary metric from the leader's, per task; positive: worse than the leader.

    Columns ``label``, ``task``, ``n``, ``mean``, ``low``, ``high``, ``p_value`` (Student's t for overlapping splits,
    adjusted over all rows by Holm), in the order of the board.
    """
    rows = []
    ranked = board[board["task"].isin(tasks) & board["rank"].notna()]
    for task, label in ranked[["task", "label"]].to_numpy():
        if label != leader and (task, leader) in scores:
            pair = aligned([scores[task, label], scores[task, leader]])
            d = statistics.paired_difference(*pair, overlap=overlap(task))
            rows.append((label, task, d.n, d.mean, d.low, d.high, d.p_t))
    frame = pd.DataFrame(rows, columns=["label", "task", "n", "mean", "low", "high", "p_value"])
    known = frame["p_value"].notna()
    frame.loc[known, "p_value"] = statistics.holm(frame.loc[known, "p_value"].tolist())
    return frame
