"""The page's first sections: the best method by target, and aggregates over tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from parvibench import statistics
from parvibench.core.result import Status
from parvibench.harness.marks.convergence import UNFINISHED

from . import leaderboard as lb
from .figures.figure import Drawing, Styles, budget_axes, slug
from .figures.over_tasks import forest, quality_and_cost, runtime_profiles
from .formatting import interval, name, number
from .page_tables import ALL_GROUPS, Column, Entry, Row, Table, method, numeric, p_value, sortable, whole
from .winners import Findings, Scores, Winner, aggregates, aligned, differences, finished_labels, friedman, join

_WINNER_COLUMNS = (
    Column("target", "a task, or shaded a group of tasks", numeric=False),
    Column("best method", numeric=False),
    Column("result", "ratio to the floor (1: as good as exact draws) or the metric named; 95% interval"),
    Column("margin", "against the second best", numeric=False),
    Column(
        "how sure",
        "two-sided paired tests against every other method at 5%, Bonferroni; the leader and the methods named form a set that "
        "holds the truly best method in 95 of 100 cases",
        numeric=False,
    ),
    Column("score evaluations", "charged per replicate"),
    Column("seconds", "steady compute time per replicate"),
)


#: Share of resamples that must keep a first place for it to be claimed.
_CLAIMED = 0.95


@dataclass(frozen=True)
class Aggregates:
    """Summary of the tasks that one quantity ranks."""

    title: str  #: the quantity
    sentences: tuple[tuple[str, str], ...]  #: outcomes of the tests, each with the group of targets it is about
    tables: tuple[Table, ...]  #: aggregates, paired differences
    drawings: tuple[Drawing, ...]  #: its figures


def winners_table(findings: Findings, anchors: Mapping[str, str]) -> Table:
    """The best method of every group of tasks and of every task, each with the ``anchors`` of its section."""
    groups = {w.where: w for w in findings.groups}
    tasks: dict[str, list[Winner]] = {}
    for winner in findings.tasks:
        tasks.setdefault(lb.task_group(winner.where), []).append(winner)
    rows = []
    for group, found in tasks.items():
        if group in groups:
            rows.append(_winner_row(groups[group], group, f"{group} ({len(groups[group].tasks)} tasks)", ""))
        rows += [_winner_row(w, group, w.where, anchors.get(w.where, "")) for w in found]
    return Table("best method by target", _WINNER_COLUMNS, tuple(rows))


def _winner_row(winner: Winner, group: str, title: str, link: str) -> Row:
    look = "" if link else "group"
    ratio = "floor" in winner.quantity
    if not winner.label:
        blank = Entry("")
        return Row((Entry(title, link=link), Entry("none", look="status"), blank, blank, Entry(winner.confidence), blank, blank), group=group, look=look)  # fmt: skip
    value = winner.value
    unit = "× floor" if ratio else winner.quantity
    exact = ", ≈ indistinguishable" if winner.indistinguishable else ""
    note = f"{unit} [{interval(value.low, value.high)}]{exact}"
    margin = f"{winner.margin} {name(winner.next)}" if winner.next else ""
    target = Entry(title, link=link, note=group if link else "")
    best = Entry(winner.label, look="best" if winner.rivals else "best strong")
    result = numeric(value.value, note=note), Entry(margin), Entry(winner.confidence)
    cost = whole(winner.score_evaluations), numeric(winner.seconds)
    return Row((target, best, *result, *cost), group=group, look=look)


def headline(board: pd.DataFrame, scores: Scores | None = None) -> str:
    """The method with the best average rank, and Friedman's test; empty when nothing is ranked.

    Methods are compared on ``leaderboard.common_tasks``, and only those with a rank on all of them, where there are any.
    Where runs are not finished, the sentence begins with that. With ``scores``, a first place is only claimed that at
    least 95% of the resamples of the replicates keep.
    """
    ranks = lb.average_ranks(board) if len(board) else pd.DataFrame(columns=["anchor", "average_rank"])
    ranked = ranks[~ranks["anchor"].astype(bool) & ranks["average_rank"].notna()]
    if not len(ranked):
        return ""
    if len(ranked) == 1:
        return f"{_finished(board)}{name(str(ranked.index[0]))} is the only method with a rank."
    common = lb.common_tasks(board)
    found = friedman(board, common)
    places = found.table["average_rank"] if len(found.table) else ranked["average_rank"]
    leaders = [str(v) for v in places.index[places == places.iloc[0]]]
    n_tasks = len(common) if len(found.table) else int((board["rank"].notna() & (board["label"] == leaders[0])).sum())
    over = f"{number(float(places.iloc[0]))} over {n_tasks} task{'s' * (n_tasks > 1)}"
    if len(leaders) > 1:
        lead = f"{name(leaders[0])} and {len(leaders) - 1} more share the best average rank, {over}"
    else:
        lead = f"{name(leaders[0])} has the best average rank, {over}"
    if scores is not None and len(leaders) == 1 and len(found.table) > 1:
        lead += _stability(scores, common, [str(v) for v in found.table.index])
    partly = len(ranked) - len(found.table)
    left_out = f" ({partly} methods that have no rank on some of them are left out.)"
    note = left_out if partly and len(found.table) else ""
    told = f"{lead}. {found.sentence}{note}" if board["task"].nunique() > 1 else f"{lead}."
    return f"{_finished(board)}{told}"


def _stability(scores: Scores, tasks: Sequence[str], labels: Sequence[str]) -> str:
    """How often the first of these methods keeps the best average rank, in words after the sentence that names it."""
    values = [aligned([scores[task, label] for label in labels]) for task in tasks]
    kept = statistics.first_places(values, np.random.default_rng(0))
    share = f"{100 * kept[0]:.0f}% of {statistics.RESAMPLES:,} resamples of the replicates"
    if kept[0] >= _CLAIMED:
        return f", kept in {share}"
    rivals = [f"{name(labels[i])} {100 * kept[i]:.0f}%" for i in np.argsort(kept)[::-1] if i and kept[i] >= 0.05]
    others = f" ({join(rivals[:3])})" if rivals else ""
    return f", but no first place is claimed: it is kept in {share}{others}"


def _finished(board: pd.DataFrame) -> str:
    """How many cells have converged, where not all have; that none has comes first."""
    judged = board[~board["anchor"].astype(bool) & (board["status"] == Status.OK) & (board["convergence"] != "")]
    unfinished = int(judged["convergence"].isin(UNFINISHED).sum())
    if len(judged) and unfinished == len(judged):
        return "Nothing has converged: these numbers are of unfinished runs, and no method is the best of any target. "
    return f"{len(judged) - unfinished} of {len(judged)} results have converged. " if unfinished else ""


def headlines(findings: Findings) -> dict[str, str]:
    """``headline`` over all tasks (key ``""``) and over those of each group."""
    board = findings.board
    groups = board.groupby("group", sort=False) if len(board) else ()
    scores = findings.scores
    return {"": headline(board, scores)} | {str(group): headline(rows, scores) for group, rows in groups}


def aggregated(findings: Findings, styles: Styles | None) -> list[Aggregates]:
    """One part per quantity that ranks tasks; ranks of a single task are left out; figures only with ``styles``."""
    found = []
    for group in lb.groups(findings.board):
        made = _ratios if group.ratio else _ranks
        if group.ratio or len(group.tasks) > 1:
            found.append(made(findings, styles, group))
    return found


def _ratios(findings: Findings, styles: Styles | None, group: lb.Group) -> Aggregates:
    results, board, scores = findings.results, findings.board, findings.scores
    tasks = group.tasks
    whole_table = aggregates(board, scores, tasks)
    by_group = {"all": tasks} | {
        str(g): tuple(str(t) for t in rows["task"].unique())
        for g, rows in board[board["task"].isin(tasks)].groupby("group", sort=False)
    }
    parts = {g: aggregates(board, scores, t) for g, t in by_group.items()}
    finished = {g: finished_labels(board, t) for g, t in by_group.items()}
    columns = [Column("method", numeric=False)] + [
        Column(
            g,
            f"interquartile mean over {', '.join(t)}"[:300],
            group=ALL_GROUPS if g == "all" else g,
            sub=f"{len(t)} task{'s' * (len(t) > 1)}",
        )
        for g, t in by_group.items()
    ]
    labels = list(dict.fromkeys(str(label) for part in parts.values() for label in part.index))
    body = [
        Row((method(label), *[_aggregate_entry(parts[g], label, label in finished[g]) for g in parts]))
        for label in labels
    ]
    caption = "interquartile mean of the ratio to the floor [95%]"
    ranked = [str(v) for v in whole_table.index]
    note = (
        "Mean of the middle half of all replicates of all tasks; bars: 95%, replicates resampled within tasks. 1: as good as "
        "exact draws."
    )
    title, label = "interquartile mean over the floor", "sliced 2-Wasserstein distance over its floor"
    drawings = (
        []
        if styles is None
        else [
            *forest(slug("interquartile-mean"), title, whole_table, label, note, styles),
            *runtime_profiles(results, tasks, ranked, styles),
            *quality_and_cost(board, whole_table, tasks, styles, budget_axes(results.timed)),
        ]
    )
    sentences = [
        (ALL_GROUPS, _aggregate_sentence(whole_table, tasks, finished_labels(board, tasks))),
        *[(w.where, w.sentence) for w in findings.groups],
    ]
    table = Table(caption, tuple(columns), tuple(body))
    return Aggregates(group.title, tuple(s for s in sentences if s[1]), (table,), tuple(drawings))


def _aggregate_entry(part: pd.DataFrame, label: str, finished: bool) -> Entry:
    if label not in part.index:
        return Entry("")
    row = part.loc[[label]].iloc[0]
    lead = part["value"].iloc[0] == row["value"]
    help = "leads" if lead else f"p = {number(row['p_value'])} that the leader is no better"
    alone = bool((part["p_value"].iloc[1:] <= 0.05).all())
    look = "" if not lead or not finished else "best strong" if alone else "best"
    return numeric(float(row["value"]), look, help, note=f"[{interval(row['low'], row['high'])}]")


def _aggregate_sentence(table: pd.DataFrame, tasks: Sequence[str], finished: set[str]) -> str:
    finite = table[np.isfinite(table["value"].astype(float))]
    if len(finite) < 2:
        return ""
    if str(finite.index[0]) not in finished:
        return f"Over {len(tasks)} task{'s' * (len(tasks) > 1)} {name(str(finite.index[0]))} has the lowest interquartile mean, but has not converged on all of them."
    rivals = [name(str(v)) for v in finite.index[finite["p_value"] > 0.05]]
    lead = finite.iloc[0]
    value = f"{number(lead['value'])} [{interval(lead['low'], lead['high'])}]"
    sure = f"significantly better than all {len(finite) - 1} others"
    if rivals:
        sure = f"best, but not significantly better than {join(rivals[:5])}"
    return f"Over {len(tasks)} task{'s' * (len(tasks) > 1)} {name(str(finite.index[0]))} has the lowest interquartile mean, {value} floors: {sure}."


def _ranks(findings: Findings, styles: Styles | None, group: lb.Group) -> Aggregates:
    board, scores = findings.board, findings.scores
    ranks = friedman(board, lb.common_tasks(board, group.tasks))
    ranked = lb.average_ranks(board[board["task"].isin(group.tasks)])
    methods = [str(v) for v in ranked.index[~ranked["anchor"].astype(bool) & ranked["average_rank"].notna()]]
    sentences, tables = [ranks.sentence], []
    if methods:
        leader = str(ranks.table.index[0]) if len(ranks.table) else methods[0]
        found = differences(board, scores, group.tasks, leader)
        sentences.append(_difference_sentence(found, leader, len(group.tasks)))
        tables.append(_difference_table(found, leader, group))
    title, label = f"average rank by {group.metric}", f"average rank over {len(ranks.tasks)} tasks"
    note = f"Methods that are ranked on every one of the tasks. {ranks.sentence}"
    shown = ranks.table.rename(columns={"average_rank": "value"})
    name_ = slug("average-rank", group.metric)
    drawings = [] if styles is None else forest(name_, title, shown, label, note, styles)
    of = {lb.task_group(t) for t in group.tasks}
    about = of.pop() if len(of) == 1 else ALL_GROUPS
    return Aggregates(group.title, tuple((about, s) for s in sentences), tuple(tables), tuple(drawings))


def _difference_sentence(found: pd.DataFrame, leader: str, n_tasks: int) -> str:
    sure = found[found["p_value"] <= 0.05]
    counts = [sure[side].groupby("label", sort=False).size() for side in (sure["mean"] > 0, sure["mean"] < 0)]
    beaten, lost = ([f"{name(str(k))} on {v}" for k, v in count.items()] for count in counts)
    first = f"{name(leader)} has the best average rank. Of {n_tasks} tasks it is significantly better than "
    second = f", and significantly worse than {join(lost)}" if lost else ""
    return f"{first}{join(beaten) if beaten else 'no other method on any'}{second}."


def _difference_table(found: pd.DataFrame, leader: str, group: lb.Group) -> Table:
    rows = {(r["label"], r["task"]): r for r in found.to_dict("records")}
    counted = "tasks with a significant difference from the leader, Holm over the table"
    columns = [
        Column("method", numeric=False),
        Column("worse / open / better", counted, numeric=False, group=ALL_GROUPS),
        *[Column(t, "mean paired difference [95%]; bold: significant", group=lb.task_group(t)) for t in group.tasks],
    ]
    body = []
    for label in found["label"].unique():
        mine = [rows.get((label, t)) for t in group.tasks]
        verdict = [
            ("" if r is None else "?" if not r["p_value"] <= 0.05 else "w" if r["mean"] > 0 else "b") for r in mine
        ]
        score = f"{verdict.count('w')} / {verdict.count('?')} / {verdict.count('b')}"
        entries = [Entry("") if r is None else _difference_entry(r) for r in mine]
        body.append(Row((method(str(label)), Entry(score, sortable(float(verdict.count("w")))), *entries)))
    caption = (
        f"paired differences in {group.metric} from {name(leader)} (above 0: worse), splits corrected for their overlap"
    )
    return Table(caption, tuple(columns), tuple(body))


def _difference_entry(row: dict[Any, Any]) -> Entry:
    if not row["n"]:
        return Entry("no pair", look="status", help="no replicate in which both are finite")
    p = p_value(row["p_value"])
    help = f"{row['n']} pairs, adjusted p {p.text or 'unknown'}"
    return numeric(row["mean"], p.look, help, f"[{interval(row['low'], row['high'])}]")
