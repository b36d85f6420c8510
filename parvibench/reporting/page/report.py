"""The report of a run: all that its page, its figures and its files show, computed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pandas as pd

from parvibench.harness.store.results import StoredRun
from parvibench.reporting.figures.figure import Drawing, Styles, cost_axes, label_styles, slug
from parvibench.reporting.figures.over_tasks import forest, performance_profiles, quality_and_cost
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables.aggregate_tables import means_table, ranks_table, winners_table
from parvibench.reporting.tables.matrix import average_ranks, leaderboard
from parvibench.reporting.tables.paper_comparison import SuiteComparison, of_run
from parvibench.reporting.tables.table import Table
from parvibench.reporting.tables.winners import Findings, aggregates
from parvibench.reporting.text import captions, marks

from .provenance import StepSizes, step_sizes, validity_checks
from .sections import MAX_DRAWN, MethodSection, TaskSection, method_sections, task_drawings, task_sections


@dataclass(frozen=True)
class Aggregates:
    """Summary of the tasks that one quantity ranks."""

    title: str  #: the quantity
    tables: Sequence[Table]  #: aggregates, average ranks
    drawings: Sequence[Drawing]  #: its figures


@dataclass(frozen=True)
class View:
    """What the page shows over tasks for all methods, or for those of one kind."""

    kind: str  #: the kind, or empty
    findings: Findings  #: outcomes of the tests among these methods
    winners: Table  #: the methods among the best by target
    aggregates: Sequence[Aggregates]  #: over tasks; figures only in the view of all methods


@dataclass(frozen=True)
class Report:
    """All parts of a report, before they are rendered."""

    findings: Findings  #: outcomes of the tests
    picture: Sequence[Drawing]  #: performance profiles
    views: Sequence[View]  #: over tasks: of all methods, then of those of each kind
    matrix: Table  #: methods x tasks
    tasks: Sequence[TaskSection]  #: one section per task
    methods: Sequence[MethodSection]  #: one section per method
    steps: StepSizes | None  #: the step sizes and where they come from
    checks: Mapping[str, str]  #: validity checks of the leaderboard: title and result
    published: SuiteComparison | None  #: our numbers beside a paper's, in a run of its rows

    @classmethod
    def of(cls, results: StoredRun, board: pd.DataFrame | None = None) -> Report:
        """Run the tests, make the tables, draw the figures; ``board``: of ``leaderboard.table``, if already made."""
        findings = Findings.of(results, board)
        kinds, styles = findings.by_kind(), label_styles(results.cells)
        tasks = task_sections(findings, kinds, styles)
        links = {t.name: t.anchor for t in tasks}
        steps = step_sizes(results)
        return cls(
            findings,
            performance_profiles(results, findings.board, styles),
            [
                View(kind, found, winners_table(found, links), _aggregated(found, None if kind else styles))
                for kind, found in {"": findings, **kinds}.items()
            ],
            leaderboard(results, findings.board),
            tasks,
            method_sections(findings),
            steps,
            validity_checks(results, findings.board, steps),
            of_run(results),
        )

    def drawings(self) -> list[Drawing]:
        """Every figure: those over tasks, then those of each task."""
        over_tasks = (part.drawings for part in self.views[0].aggregates)
        return [*chain(self.picture, *over_tasks, *(task.drawings for task in self.tasks))]

    @property
    def counts(self) -> str:
        """The number of cells by status."""
        cells = self.findings.results.cells
        return f"{len(cells)} cells: {marks.by_status(cells)}" if cells else "no cells"


def drawings(findings: Findings, name: str = "") -> Iterator[Drawing]:
    """Every figure as in ``Report.drawings``, each drawn when it is reached; those of the task in ``name`` come first."""
    results, board, styles = findings.results, findings.board, label_styles(findings.results.cells)

    def over_tasks() -> Iterator[Drawing]:
        yield from performance_profiles(results, board, styles)
        for group in lb.groups(board):
            yield from _drawings(findings, board[board["task"].isin(group.tasks)], styles, group)

    tasks = sorted(list(results.by_task)[:MAX_DRAWN], key=lambda task: slug(task) not in name)
    each = (d for t in tasks for d in task_drawings(results, board[board["task"] == t], t, styles))
    return chain(each, over_tasks()) if any(slug(t) in name for t in tasks) else chain(over_tasks(), each)


def headline(findings: Findings) -> str:
    """Who is among the best of all tasks; empty where nothing was requested."""
    return findings.whole.sentence if findings.whole.tasks else ""


def _aggregated(findings: Findings, styles: Styles | None) -> list[Aggregates]:
    """One part per quantity that ranks tasks; ranks of a single task are left out; figures only with ``styles``."""
    found = []
    for group in lb.groups(findings.board):
        board = findings.board[findings.board["task"].isin(group.tasks)]
        drawn = [] if styles is None else _drawings(findings, board, styles, group)
        tables = [means_table(findings, group.tasks)] if group.ratio else []
        if common := ranks_table(board):
            tables.append(common)
        if tables or drawn:
            found.append(Aggregates(group.title, tables, drawn))
    return found


def _drawings(findings: Findings, board: pd.DataFrame, styles: Styles, group: lb.Group) -> list[Drawing]:
    """Means over the floor and their cost where there is one, else the average ranks over several tasks."""
    if group.ratio:
        means = aggregates(findings.board, findings.scores, group.tasks)
        title, label = "interquartile mean over the floor", "sliced 2-Wasserstein distance over its floor"
        drawn = forest(slug("interquartile-mean"), title, means, label, captions.MEANS, styles)
        return drawn + quality_and_cost(findings.board, means, group.tasks, styles, cost_axes(findings.results))
    if len(group.tasks) == 1:
        return []
    ranks = average_ranks(board)
    shown = ranks[~ranks["anchor"].astype(bool) & (ranks["n_tasks"] == len(group.tasks))]
    title, label = f"average rank by {group.metric}", f"average rank over {len(group.tasks)} tasks"
    table = shown.rename(columns={"average_rank": "value"})[["value"]]
    return forest(slug("average-rank", group.metric), title, table, label, captions.AVERAGE_RANKS, styles)
