"""Tables over tasks: best methods, aggregates, paired differences from the leader and of SRLD from LD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from parvibench import statistics
from parvibench.core.result import CellRecord
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.formatting import count, interval, name, number
from parvibench.reporting.text import averages, leaders, marks

from . import leaderboard as lb
from .table import ALL_GROUPS, Column, Entry, Row, Table, method, numeric, p_value, setting, sortable, whole
from .winners import Findings, Scores, Winner, aggregates, finished_labels, overlap

_WINNER_COLUMNS = (
    Column("target", "a task, or shaded a group of tasks", numeric=False),
    Column("best method", numeric=False),
    Column("result", "ratio to the floor (1: as good as exact draws) or the metric named; 95% interval"),
    Column("margin", "against the second best", numeric=False),
    Column(
        "significance",
        "two-sided paired tests against every other method at 5%, Bonferroni; the leader and the methods named form a set that "
        "contains the truly best method with 95% confidence",
        numeric=False,
    ),
    Column("score evaluations", "counted per replicate"),
    Column("seconds", "steady-state compute time per replicate"),
)
_REPULSION_COLUMNS = (
    Column("task", numeric=False),
    Column("method", numeric=False),
    Column("difference", "mean of SRLD less LD over their common replicates [95%]; below 0: repulsion helps"),
    Column("p", "paired t test, corrected for overlapping splits; not adjusted for the number of rows"),
    Column("quantity", numeric=False),
    Column("step", "eta of SRLD"),
    Column("step of LD", "eta of LD"),
)


def winners_table(findings: Findings, links: Mapping[str, str]) -> Table:
    """The best method of every group of tasks and of every task; ``links``: task -> fragment of its section."""
    groups = {w.where: w for w in findings.groups}
    tasks: dict[str, list[Winner]] = {}
    for winner in findings.tasks:
        tasks.setdefault(lb.task_group(winner.where), []).append(winner)
    rows = []
    for group, found in tasks.items():
        if group in groups:
            rows.append(_winner_row(groups[group], group, f"{group} ({len(groups[group].tasks)} tasks)", ""))
        rows += [_winner_row(w, group, w.where, links.get(w.where, "")) for w in found]
    return Table("best method by target", _WINNER_COLUMNS, tuple(rows))


def _winner_row(winner: Winner, group: str, title: str, link: str) -> Row:
    look, blank = "" if link else "group", Entry("")
    if not winner.label:
        none = (
            Entry(title, link=link),
            Entry("none", look="status"),
            blank,
            blank,
            Entry(winner.confidence),
            blank,
            blank,
        )
        return Row(none, group=group, look=look)
    value = winner.value
    exact = ", ≈ indistinguishable" if winner.indistinguishable else ""
    note = f"{winner.unit} [{interval(value.low, value.high)}]{exact}"
    target = Entry(title, link=link, note=group if link else "")
    best = Entry(winner.label, look="best" if winner.rivals else "best strong")
    margin = Entry(leaders.distance(winner.margin, winner.next))
    result = numeric(value.value, note=note), margin, Entry(winner.confidence)
    cost = whole(winner.score_evaluations), numeric(winner.seconds)
    return Row((target, best, *result, *cost), group=group, look=look)


def means_table(findings: Findings, tasks: Sequence[str]) -> Table:
    """Interquartile means of the ratio to the floor, over all of these tasks and over each group."""
    board = findings.board
    by_group = {"all": tuple(tasks)} | {
        str(g): tuple(str(t) for t in rows["task"].unique())
        for g, rows in board[board["task"].isin(tasks)].groupby("group", sort=False)
    }
    parts = {g: aggregates(board, findings.scores, t) for g, t in by_group.items()}
    finished = {g: finished_labels(board, t) for g, t in by_group.items()}
    columns = [
        Column(
            g,
            f"interquartile mean over {', '.join(t)}"[:300],
            group=ALL_GROUPS if g == "all" else g,
            sub=count(len(t), "task"),
        )
        for g, t in by_group.items()
    ]
    labels = dict.fromkeys(str(label) for part in parts.values() for label in part.index)
    body = [
        Row((method(label), *[_mean_entry(parts[g], label, finished=label in finished[g]) for g in parts]))
        for label in labels
    ]
    caption = "interquartile mean of the ratio to the floor [95%]"
    return Table(caption, (Column("method", numeric=False), *columns), tuple(body))


def _mean_entry(part: pd.DataFrame, label: str, *, finished: bool) -> Entry:
    if label not in part.index:
        return Entry("")
    row = part.loc[[label]].iloc[0]
    lead = part["value"].iloc[0] == row["value"]
    alone = bool((part["p_value"].iloc[1:] <= 0.05).all())
    look = "" if not lead or not finished else "best strong" if alone else "best"
    help = "leads" if lead else marks.AGAINST_LEADER.format(p=number(row["p_value"]))
    return numeric(float(row["value"]), look, help, note=f"[{interval(row['low'], row['high'])}]")


def difference_table(found: pd.DataFrame, leader: str, group: lb.Group) -> Table:
    """Paired differences of all methods from the leader; ``found`` of ``winners.differences``."""
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
    return Table(averages.DIFFERENCES.format(metric=group.metric, leader=name(leader)), tuple(columns), tuple(body))


def _difference_entry(row: dict[Any, Any]) -> Entry:
    if not row["n"]:
        return Entry("no pair", look="status", help="no replicate in which both are finite")
    p = p_value(row["p_value"])
    return numeric(
        row["mean"],
        p.look,
        marks.PAIRS_P.format(n=row["n"], p=p.text or "unknown"),
        f"[{interval(row['low'], row['high'])}]",
    )


def repulsion_table(results: StoredRun, board: pd.DataFrame, scores: Scores) -> Table | None:
    """Every SRLD less LD, the same chain with alpha 0, on every task; None where no run has both."""
    cells = [c for c in results.cells if c.algorithm == "srld" and (c.task, c.label) in scores]
    plain = {c.task: c for c in cells if c.settings.get("alpha") == 0}
    pairs = [(c, plain[c.task]) for c in cells if c.task in plain and c.settings.get("alpha") != 0]
    rows = [_repulsion_row(c, ld, board, scores, results) for c, ld in pairs]
    return Table("SRLD less LD, the same chain without repulsion", _REPULSION_COLUMNS, tuple(rows)) if rows else None


def _repulsion_row(cell: CellRecord, plain: CellRecord, board: pd.DataFrame, scores: Scores, results: StoredRun) -> Row:
    a, b = scores[cell.task, cell.label], scores[cell.task, plain.label]
    shared = min(len(a), len(b))
    found = statistics.paired_difference(a[:shared], b[:shared], overlap=overlap(cell.task))
    row = board[(board["task"] == cell.task) & (board["label"] == cell.label)].iloc[0]
    mean = numeric(found.mean, p_value(found.p_t).look, f"{found.n} pairs", f"[{interval(found.low, found.high)}]")
    eta, eta_of_ld = (c.settings.get("step_size") for c in (cell, plain))
    as_far = any(a.get("match_drift") and a.get("label") == cell.label for a in results.run.suite.get("algorithms", ()))
    note = "moving as far" if as_far else "at equal step" if eta == eta_of_ld else "each at its own step"
    what = Entry(cell.label, note=note), mean, p_value(found.p_t), Entry(lb.unit(row))
    return Row((Entry(cell.task), *what, setting(eta), setting(eta_of_ld)), group=lb.task_group(cell.task))
