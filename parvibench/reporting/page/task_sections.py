"""A task's section of the page: facts, ranking, figures and certificate."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from parvibench.core import registry
from parvibench.core.reference import Reference
from parvibench.core.result import CellRecord
from parvibench.harness import verification
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.figures.anytime_curves import MAX_LINES, anytime
from parvibench.reporting.figures.autocorrelations import autocorrelations
from parvibench.reporting.figures.density_scatter import particles, trajectories
from parvibench.reporting.figures.figure import Drawing, Styles, TaskCells
from parvibench.reporting.figures.high_dimensional import marginals
from parvibench.reporting.figures.predictive_intervals import predictions
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables.curve_tables import equal_budget_tables
from parvibench.reporting.tables.floor_comparison import floor_of, floored_of
from parvibench.reporting.tables.table import Table, fragment
from parvibench.reporting.tables.task_tables import path_table, ranking_table
from parvibench.reporting.tables.winners import Findings
from parvibench.reporting.text import facts
from parvibench.targets.posteriordb import native_of

#: Most tasks with figures in one report; ``parvibench report --task NAME`` draws the others.
MAX_DRAWN = 12
#: Tag of a paper's tasks -> metric of the figure in that paper, and the figure.
_PAPER_CURVES = {
    "sifg": ("kl_knn", "SIFG, Figure 3"),
    "ksivi": ("kl_knn", "KSIVI, Figure 2"),
    "srld": ("mmd2", "SRLD, Figure 2"),
}


@dataclass(frozen=True)
class TaskSection:
    """Everything the page shows of a task."""

    name: str  #: of the task
    anchor: str  #: fragment of its section
    group: str  #: see ``leaderboard.task_group``
    facts: str  #: summary, dimension and tags
    sentences: dict[str, str]  #: who is among the best, of all (key ``""``) and of each kind
    certificate: tuple[tuple[str, str], ...]  #: names and texts about its reference
    table: Table  #: the ranking, by samples of equal number
    paths: Table | None = None  #: Markov chains by their whole path, or None without any
    budgets: tuple[Table, ...] = ()  #: at equal score evaluations, and at equal sequential steps
    drawings: tuple[Drawing, ...] = ()  #: its figures
    note: str = ""  #: why figures are missing, or empty
    absent: tuple[tuple[str, str, str], ...] = ()  #: metrics that do not apply: metric, methods, reason


def task_sections(findings: Findings, kinds: Mapping[str, Findings], styles: Styles) -> list[TaskSection]:
    """One section per task, in the order of the run; ``kinds`` from ``Findings.by_kind``."""
    results = findings.results
    best = {kind: {b.where: b for b in f.tasks} for kind, f in {"": findings, **kinds}.items()}
    verified = verification.marks(results)
    own: dict[str, dict[str, list[lb.Row]]] = {}
    for found in kinds.values():  # kinds first, then divisions
        for row in found.board[~found.board["anchor"].astype(bool)].to_dict("records"):
            own.setdefault(row["task"], {}).setdefault(row["label"], []).append(row)
    sections = []
    boards = {str(task): rows for task, rows in findings.board.groupby("task", sort=False)}
    for i, (task, cells) in enumerate(results.by_task.items()):
        rows = boards[task]
        drawn = i < MAX_DRAWN
        section = TaskSection(
            name=task,
            anchor=fragment("task", task),
            group=lb.task_group(task),
            facts=_facts(task),
            sentences={kind: found[task].sentence for kind, found in best.items() if task in found},
            certificate=_certificate(task),
            table=ranking_table(cells, rows, own.get(task, {}), verified),
            paths=path_table(cells),
            budgets=equal_budget_tables(results, cells, str(rows["metric"].iloc[0])),
            drawings=tuple(_drawings(results, rows, task, styles)) if drawn else (),
            note="" if drawn else facts.NOT_DRAWN.format(most=MAX_DRAWN),
            absent=_absent(cells),
        )
        sections.append(section)
    return sections


def _drawings(results: StoredRun, rows: pd.DataFrame, task: str, styles: Styles) -> list[Drawing]:
    """A task's figures: the ``MAX_LINES`` best methods and the anchors."""
    metric = str(rows["metric"].iloc[0])
    anchors = [str(v) for v in rows.loc[rows["anchor"], "label"]]
    labels = [str(v) for v in rows.loc[rows["rank"].notna(), "label"]][:MAX_LINES] + anchors
    tags = getattr(registry.tasks().get(task), "tags", ())
    samples = int(rows["samples"].max())
    sources = {metric: "", "rmse": ""} | {m: note for tag, (m, note) in _PAPER_CURVES.items() if tag in tags}
    shown = TaskCells(results, task, styles, labels)
    found: list[Drawing] = []
    for m, source in sources.items():
        curves = anytime(shown, m, floor_of(task, m, samples), source, most=None if m == metric else 1)
        found += curves if m == metric else [replace(curve, axis="") for curve in curves]
    found += [*particles(shown), *trajectories(shown)]
    return [*found, *marginals(shown), *autocorrelations(shown), *predictions(shown)]


def _absent(cells: list[CellRecord]) -> tuple[tuple[str, str, str], ...]:
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for metric, reason in cell.absent.items():
            found.setdefault((metric, reason), []).append(cell.label)
    return tuple((metric, ", ".join(labels), reason) for (metric, reason), labels in found.items())


def _facts(task: str) -> str:
    row = registry.tasks().get(task)
    if row is not None:
        return facts.task(row.summary, row.dim, row.tags)
    found = floored_of(task)
    return facts.own_task(() if found is None else found.certificate.get("coordinates", ()), native_of(task))


def _certificate(task: str) -> tuple[tuple[str, str], ...]:
    """The certificate of a task's reference as names and short texts; empty without one."""
    found = floored_of(task)
    if found is None:
        return ()
    what = facts.PREDICTIONS
    if isinstance(found, Reference):
        what = facts.reference(len(found.draws), exact=found.exact, grade=found.grade)
    shown = ("method", "checks", "run", "seed", "created", "versions", "sha256")
    failed = {"failed tests": failed} if (failed := "; ".join(getattr(found, "failed_gates", ()))) else {}
    known = {"reference": what} | failed | {k: found.certificate[k] for k in shown if k in found.certificate}
    return tuple((k, facts.value(v)[:1500]) for k, v in known.items())
