"""The report of a run: all that its page, its figures and its files show, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from parvibench.harness.store.results import StoredRun
from parvibench.reporting.figures.figure import Drawing, label_styles
from parvibench.reporting.figures.over_tasks import performance_profiles
from parvibench.reporting.tables.matrix import leaderboard
from parvibench.reporting.tables.paper_comparison import SuiteComparison, of_run
from parvibench.reporting.tables.table import Table
from parvibench.reporting.tables.winners import Findings
from parvibench.reporting.text import marks

from .across_tasks import View, views
from .method_sections import MethodSection, method_sections
from .provenance import StepSizes, step_sizes
from .task_sections import TaskSection, task_sections
from .validity_checks import validity_checks


@dataclass(frozen=True)
class Report:
    """All parts of a report, before they are rendered."""

    findings: Findings  #: outcomes of the tests
    kinds: dict[str, Findings]  #: the same among the methods of each kind
    picture: tuple[Drawing, ...]  #: performance profiles
    views: tuple[View, ...]  #: over tasks: of all methods, and of those of each kind
    matrix: Table  #: methods x tasks
    tasks: tuple[TaskSection, ...]  #: one section per task
    methods: tuple[MethodSection, ...]  #: one section per method
    steps: StepSizes | None  #: the step sizes and where they come from
    checks: dict[str, str]  #: validity checks of the leaderboard: title and result
    published: SuiteComparison | None  #: our numbers beside a paper's, in a run of its rows

    @classmethod
    def of(cls, results: StoredRun, board: pd.DataFrame | None = None) -> Report:
        """Run the tests, make the tables, draw the figures; ``board``: of ``leaderboard.table``, if already made."""
        findings = Findings.of(results, board)
        kinds, styles = findings.by_kind(), label_styles(results.cells)
        tasks = task_sections(findings, kinds, styles)
        methods = method_sections(findings)
        over_tasks = views(findings, kinds, {t.name: t.anchor for t in tasks}, styles)
        steps = step_sizes(results)
        return cls(
            findings,
            kinds,
            tuple(performance_profiles(results, findings.board, styles)),
            tuple(over_tasks),
            leaderboard(results, findings.board),
            tuple(tasks),
            tuple(methods),
            steps,
            validity_checks(results, findings.board, steps),
            of_run(results),
        )

    def drawings(self) -> Iterator[tuple[str, Drawing]]:
        """Every figure with its task (empty for figures over tasks)."""
        yield from (("", d) for d in self.picture)
        for part in self.views[0].aggregates:
            yield from (("", d) for d in part.drawings)
        for task in self.tasks:
            yield from ((task.name, d) for d in task.drawings)

    @property
    def counts(self) -> str:
        """The number of cells by status."""
        cells = self.findings.results.cells
        return f"{len(cells)} cells: {marks.by_status(cells)}" if cells else "no cells"
