"""The report of a run: all that its page, its figures and its files show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts.findings import View, average_ranks
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.figures.figure import Drawing, Styles, label_styles, slug
from parvibench.reporting.figures.over_tasks import forest, over_floor, performance_profiles, quality_and_cost
from parvibench.reporting.formatting import count
from parvibench.reporting.tables.matrix import leaderboard, means_table, ranks_table
from parvibench.reporting.tables.table import Table
from parvibench.reporting.text import captions, marks

from .provenance import validity_checks
from .sections import MAX_DRAWN, MethodSection, TaskSection, method_sections, task_drawings, task_sections


@dataclass(frozen=True)
class Aggregates:
    """Summary of the tasks that one quantity ranks."""

    title: str  #: the quantity
    tables: Sequence[Table]  #: aggregates, average ranks
    drawings: Sequence[Drawing]  #: its figures


@dataclass(frozen=True)
class Report:
    """All parts of a report, before they are rendered."""

    facts: Facts  #: of the run
    picture: Sequence[Drawing]  #: performance profiles
    #: over tasks: of all methods (key empty, with figures), then of those of each kind
    views: Mapping[str, Sequence[Aggregates]]
    matrix: Table  #: methods x tasks
    tasks: Sequence[TaskSection]  #: one section per task
    methods: Sequence[MethodSection]  #: one section per method
    checks: Mapping[str, str]  #: validity checks of the leaderboard: title and result

    @classmethod
    def of(cls, facts: Facts) -> Report:
        """Make the tables and draw the figures."""
        styles = label_styles(facts)
        tasks = task_sections(facts, styles)
        views = {kind: _aggregated(facts, view, None if kind else styles) for kind, view in facts.views.items()}
        profiles, methods = performance_profiles(facts, styles), method_sections(facts)
        return cls(facts, profiles, views, leaderboard(facts), tasks, methods, validity_checks(facts))

    def drawings(self) -> list[Drawing]:
        """Every figure: those over tasks, then those of each task."""
        over_tasks = (part.drawings for part in self.views[""])
        return [*chain(self.picture, *over_tasks, *(task.drawings for task in self.tasks))]

    @property
    def counts(self) -> str:
        """The number of cells by status."""
        cells = self.facts.cells
        return f"{count(len(cells), 'cell')}: {marks.by_status(cells)}" if cells else "no cells"


def drawings(facts: Facts, name: str = "") -> Iterator[Drawing]:
    """Every figure as in ``Report.drawings``, each drawn when it is reached; those of the task in ``name`` come first."""
    styles = label_styles(facts)

    def over_tasks() -> Iterator[Drawing]:
        yield from performance_profiles(facts, styles)
        for group in lb.groups(facts.board):
            yield from _drawings(facts, styles, group)

    tasks = sorted(list(facts.by_task)[:MAX_DRAWN], key=lambda task: slug(task) not in name)
    boards = {str(task): rows for task, rows in facts.board.groupby("task", sort=False)}
    each = (d for t in tasks for d in task_drawings(facts, boards[t], t, styles))
    return chain(each, over_tasks()) if any(slug(t) in name for t in tasks) else chain(over_tasks(), each)


def _aggregated(facts: Facts, view: View, styles: Styles | None) -> list[Aggregates]:
    """One part per quantity that ranks tasks; ranks of a single task are left out; figures only with ``styles``."""
    found = []
    for group in lb.groups(view.board):
        drawn = [] if styles is None else _drawings(facts, styles, group)
        tables = [means_table(view, group.tasks)] if group.ratio else []
        if common := ranks_table(view.board[view.board["task"].isin(group.tasks)]):
            tables.append(common)
        if tables or drawn:
            found.append(Aggregates(group.title, tables, drawn))
    return found


def _drawings(facts: Facts, styles: Styles, group: lb.Group) -> list[Drawing]:
    """Means over the floor and their cost where there is one, else the average ranks over several tasks."""
    if group.ratio:
        first = next(g.metric for g in lb.groups(facts.board) if g.ratio)
        own = () if group.metric == first else (group.metric,)  # names of figures are unique
        means, label = facts.all.means(group.tasks), over_floor(group.metric)
        title = "interquartile mean over the floor"
        drawn = forest(slug("interquartile-mean", *own), title, means, label, captions.MEANS, styles)
        return drawn + quality_and_cost(facts, means, group, styles, own)
    if len(group.tasks) == 1:
        return []
    ranks = average_ranks(facts.board[facts.board["task"].isin(group.tasks)])
    shown = ranks[~ranks["anchor"].astype(bool) & (ranks["n_tasks"] == len(group.tasks))]
    title, label = f"average rank by {group.metric}", f"average rank over {len(group.tasks)} tasks"
    table = shown.rename(columns={"average_rank": "value"})[["value"]]
    return forest(slug("average-rank", group.metric), title, table, label, captions.AVERAGE_RANKS, styles)
