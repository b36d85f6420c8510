"""Parts of the page over tasks: recommended methods, headlines, aggregates with their figures, for all methods or of one kind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from parvibench import statistics
from parvibench.core import registry
from parvibench.harness.marks.convergence import UNFINISHED
from parvibench.reporting.figures.figure import Drawing, Styles, budget_axes, slug
from parvibench.reporting.figures.over_tasks import forest, quality_and_cost, runtime_profiles
from parvibench.reporting.formatting import count, name
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables.aggregate_tables import difference_table, means_table, winners_table
from parvibench.reporting.tables.matrix import average_ranks, common_tasks
from parvibench.reporting.tables.table import ALL_GROUPS, Table
from parvibench.reporting.tables.winners import (
    Findings,
    Scores,
    Winner,
    aggregates,
    aligned,
    differences,
    finished_labels,
    friedman,
)  # fmt: skip
from parvibench.reporting.text import averages, captions, leaders


class Advice(NamedTuple):
    """The method to use for one kind of target."""

    winner: Winner  #: of a group of tasks, or of one
    full_name: str  #: of the method
    link: str  #: fragment of the method's section
    result: str  #: with interval and unit
    verb: str  #: how far it is recommended
    caution: str  #: what speaks against it, or empty
    cost: str  #: per replicate


@dataclass(frozen=True)
class Aggregates:
    """Summary of the tasks that one quantity ranks."""

    title: str  #: the quantity
    sentences: tuple[tuple[str, str], ...]  #: outcomes of the tests, each with the group of targets it is about
    tables: tuple[Table, ...]  #: aggregates, paired differences
    drawings: tuple[Drawing, ...]  #: its figures


@dataclass(frozen=True)
class View:
    """What the page shows over tasks for all methods, or for those of one kind."""

    kind: str  #: the kind, or empty
    headlines: dict[str, str]  #: group of tasks, or empty for all -> sentence
    winners: Table  #: the best method by target
    aggregates: tuple[Aggregates, ...]  #: over tasks; figures only in the view of all methods


def views(findings: Findings, kinds: Mapping[str, Findings], links: Mapping[str, str], styles: Styles) -> list[View]:
    """The view of all methods, then those of each kind; ``links``: task -> fragment of its section."""
    return [
        View(
            kind, headlines(found), winners_table(found, links), tuple(aggregated(found, styles if not kind else None))
        )
        for kind, found in {"": findings, **kinds}.items()
    ]


def answers(findings: Findings, links: Mapping[str, str]) -> list[Advice]:
    """One answer for every group of tasks; of groups that nothing aggregates, one for every task.

    Args:
        findings: of the run.
        links: label -> fragment of its section.
    """
    names = full_names(findings)
    return [_advice(winner, names, links) for winner in findings.answered]


def full_names(findings: Findings) -> dict[str, str]:
    """Label -> summary of the method; labels of plug-ins are left out."""
    rows = registry.algorithms()
    return {c.label: rows[c.algorithm].summary for c in findings.results.cells if c.algorithm in rows}


def _advice(winner: Winner, names: Mapping[str, str], links: Mapping[str, str]) -> Advice:
    label, evaluations = winner.label, winner.score_evaluations
    near = winner.indistinguishable or "floor" not in winner.quantity or winner.value.value <= 1
    verb, caution = leaders.recommendation(near=near, unfinished=bool(winner.unfinished))
    result = leaders.result(winner.value, winner.unit) if label else ""
    cost = leaders.cost(evaluations, winner.seconds) if math.isfinite(evaluations) and label else ""
    return Advice(winner, names.get(label, ""), links.get(label, ""), result, verb, caution, cost)


def headlines(findings: Findings) -> dict[str, str]:
    """``headline`` over all tasks (key ``""``) and over those of each group."""
    board, scores = findings.board, findings.scores
    groups = board.groupby("group", sort=False) if len(board) else ()
    return {"": headline(board, scores)} | {str(group): headline(rows, scores) for group, rows in groups}


def headline(board: pd.DataFrame, scores: Scores | None = None) -> str:
    """The method with the best average rank, and Friedman's test; empty when nothing is ranked.

    Methods are compared on ``winners.common_tasks``, and only those with a rank on all of them, where there are any.
    Where runs are not finished, the sentence begins with that. With ``scores``, a first place is only claimed where the
    method comes first in at least 95% of the resamples of the replicates.
    """
    ranks = average_ranks(board) if len(board) else pd.DataFrame(columns=["anchor", "average_rank"])
    ranked = ranks[~ranks["anchor"].astype(bool) & ranks["average_rank"].notna()]
    if not len(ranked):
        return ""
    judged = lb.judged(board)
    begin = averages.finished(int(judged["convergence"].isin(UNFINISHED).sum()), len(judged))
    if len(ranked) == 1:
        return begin + averages.ONLY_ONE.format(label=name(str(ranked.index[0])))
    common = common_tasks(board)
    found = friedman(board, common)
    compared = [str(v) for v in found.table.index]
    places = found.table["average_rank"] if compared else ranked["average_rank"]
    first = [str(v) for v in places.index[places == places.iloc[0]]]
    n_tasks = len(common) if compared else int((board["rank"].notna() & (board["label"] == first[0])).sum())
    lead = averages.best_average(first, float(places.iloc[0]), n_tasks)
    if scores is not None and len(first) == 1 and len(compared) > 1:
        values = [aligned([scores[task, label] for label in compared]) for task in common]
        shares = statistics.first_places(values, np.random.default_rng(0))
        lead += averages.stability(list(zip(compared, shares, strict=True)), statistics.RESAMPLES)
    if board["task"].nunique() == 1:
        return f"{begin}{lead}."
    left_out = averages.left_out(len(ranked) - len(compared)) if compared else ""
    return f"{begin}{lead}. {found.sentence}{left_out}"


def aggregated(findings: Findings, styles: Styles | None) -> list[Aggregates]:
    """One part per quantity that ranks tasks; ranks of a single task are left out; figures only with ``styles``."""
    found = []
    for group in lb.groups(findings.board):
        if group.ratio or len(group.tasks) > 1:
            found.append((_ratios if group.ratio else _ranks)(findings, styles, group))
    return found


def _ratios(findings: Findings, styles: Styles | None, group: lb.Group) -> Aggregates:
    results, board, tasks = findings.results, findings.board, group.tasks
    means = aggregates(board, findings.scores, tasks)
    drawings: list[Drawing] = []
    if styles is not None:
        title, label = "interquartile mean over the floor", "sliced 2-Wasserstein distance over its floor"
        drawings += forest(slug("interquartile-mean"), title, means, label, captions.MEANS, styles)
        drawings += runtime_profiles(results, tasks, [str(v) for v in means.index], styles)
        drawings += quality_and_cost(board, means, tasks, styles, budget_axes(results.timed))
    whole = (ALL_GROUPS, _lowest_mean(means, tasks, finished_labels(board, tasks)))
    sentences = [whole, *[(w.where, w.sentence) for w in findings.groups]]
    told = tuple(s for s in sentences if s[1])
    return Aggregates(group.title, told, (means_table(findings, tasks),), tuple(drawings))


def _lowest_mean(table: pd.DataFrame, tasks: Sequence[str], finished: set[str]) -> str:
    finite = table[np.isfinite(table["value"].astype(float))]
    if len(finite) < 2:
        return ""
    label = str(finite.index[0])
    if label not in finished:
        return averages.LOWEST_UNFINISHED.format(tasks=count(len(tasks), "task"), label=name(label))
    value, low, high = (float(v) for v in finite.iloc[0][["value", "low", "high"]])
    rivals = [str(v) for v in finite.index[finite["p_value"] > 0.05]]
    return averages.lowest_mean(label, (value, low, high), len(tasks), len(finite) - 1, rivals)


def _ranks(findings: Findings, styles: Styles | None, group: lb.Group) -> Aggregates:
    board, scores, tasks = findings.board, findings.scores, group.tasks
    ranks = friedman(board, common_tasks(board, tasks))
    ranked = average_ranks(board[board["task"].isin(tasks)])
    methods = ranked.index[~ranked["anchor"].astype(bool) & ranked["average_rank"].notna()]
    sentences, tables = [ranks.sentence], []
    if len(methods):
        leader = str((ranks.table.index if len(ranks.table) else methods)[0])
        found = differences(board, scores, tasks, leader)
        sure = found[found["p_value"] <= 0.05]
        beaten, lost = (Counter(sure.loc[side, "label"].astype(str)) for side in (sure["mean"] > 0, sure["mean"] < 0))
        sentences.append(averages.paired(leader, len(tasks), beaten, lost))
        tables.append(difference_table(found, leader, group))
    drawings: list[Drawing] = []
    if styles is not None:
        title, label = f"average rank by {group.metric}", f"average rank over {len(ranks.tasks)} tasks"
        shown, note = (
            ranks.table.rename(columns={"average_rank": "value"}),
            captions.AVERAGE_RANKS.format(friedman=ranks.sentence),
        )
        drawings += forest(slug("average-rank", group.metric), title, shown, label, note, styles)
    of = {lb.task_group(t) for t in tasks}
    about = of.pop() if len(of) == 1 else ALL_GROUPS
    return Aggregates(group.title, tuple((about, s) for s in sentences), tuple(tables), tuple(drawings))
