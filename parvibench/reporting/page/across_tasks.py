"""Parts of the page over tasks: who is among the best of what, aggregates with their figures, for all methods or of one kind."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from parvibench.core import registry
from parvibench.reporting.figures.figure import Drawing, Styles, cost_axes, slug
from parvibench.reporting.figures.over_tasks import forest, quality_and_cost
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables.aggregate_tables import means_table, ranks_table, winners_table
from parvibench.reporting.tables.matrix import average_ranks
from parvibench.reporting.tables.table import Table
from parvibench.reporting.tables.winners import Findings, aggregates
from parvibench.reporting.text import captions


@dataclass(frozen=True)
class Aggregates:
    """Summary of the tasks that one quantity ranks."""

    title: str  #: the quantity
    tables: tuple[Table, ...]  #: aggregates, average ranks
    drawings: tuple[Drawing, ...]  #: its figures


@dataclass(frozen=True)
class View:
    """What the page shows over tasks for all methods, or for those of one kind."""

    kind: str  #: the kind, or empty
    headline: str  #: who is among the best of all tasks
    answers: dict[str, str]  #: kind of target -> who is among the best
    winners: Table  #: the methods among the best by target
    aggregates: tuple[Aggregates, ...]  #: over tasks; figures only in the view of all methods


def views(findings: Findings, kinds: Mapping[str, Findings], links: Mapping[str, str], styles: Styles) -> list[View]:
    """The view of all methods, then those of each kind; ``links``: task -> fragment of its section."""
    return [
        View(
            kind, headline(found), {b.where: b.sentence for b in found.groups}, winners_table(found, links),
            tuple(aggregated(found, styles if not kind else None)),
        )
        for kind, found in {"": findings, **kinds}.items()
    ]  # fmt: skip


def headline(findings: Findings) -> str:
    """Who is among the best of all tasks; empty where nothing was requested."""
    return findings.whole.sentence if findings.whole.tasks else ""


def full_names(findings: Findings) -> dict[str, str]:
    """Label -> summary of the method; labels of plug-ins are left out."""
    rows = registry.algorithms()
    return {c.label: rows[c.algorithm].summary for c in findings.results.cells if c.algorithm in rows}


def aggregated(findings: Findings, styles: Styles | None) -> list[Aggregates]:
    """One part per quantity that ranks tasks; ranks of a single task are left out; figures only with ``styles``."""
    found = []
    for group in lb.groups(findings.board):
        board = findings.board[findings.board["task"].isin(group.tasks)]
        tables, drawings = [], list[Drawing]()
        if group.ratio:
            tables.append(means_table(findings, group.tasks))
            drawings += _ratio_drawings(findings, styles, group) if styles is not None else []
        elif len(group.tasks) > 1 and styles is not None:
            drawings += _rank_drawings(board, styles, group)
        if common := ranks_table(board):
            tables.append(common)
        if tables or drawings:
            found.append(Aggregates(group.title, tuple(tables), tuple(drawings)))
    return found


def _ratio_drawings(findings: Findings, styles: Styles, group: lb.Group) -> list[Drawing]:
    means = aggregates(findings.board, findings.scores, group.tasks)
    title, label = "interquartile mean over the floor", "sliced 2-Wasserstein distance over its floor"
    drawn = forest(slug("interquartile-mean"), title, means, label, captions.MEANS, styles)
    return [*drawn, *quality_and_cost(findings.board, means, group.tasks, styles, cost_axes(findings.results))]


def _rank_drawings(board: pd.DataFrame, styles: Styles, group: lb.Group) -> list[Drawing]:
    ranks = average_ranks(board)
    shown = ranks[~ranks["anchor"].astype(bool) & (ranks["n_tasks"] == len(group.tasks))]
    title, label = f"average rank by {group.metric}", f"average rank over {len(group.tasks)} tasks"
    table = shown.rename(columns={"average_rank": "value"})[["value"]]
    return forest(slug("average-rank", group.metric), title, table, label, captions.AVERAGE_RANKS, styles)
