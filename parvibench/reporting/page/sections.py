"""Sections of the page: a task with its ranking, figures and certificate; a method with its results, settings and citation."""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from parvibench.core import registry
from parvibench.core.reference import Reference
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.figures.curves import MAX_LINES, anytime, autocorrelations
from parvibench.reporting.figures.density_scatter import particles, trajectories
from parvibench.reporting.figures.figure import Drawing, Styles, TaskCells
from parvibench.reporting.figures.high_dimensional import marginals
from parvibench.reporting.figures.predictive_intervals import predictions
from parvibench.reporting.formatting import interval
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables.curve_tables import equal_budget_tables
from parvibench.reporting.tables.floor_comparison import floor_of, floored_of
from parvibench.reporting.tables.matrix import average_ranks, by_label
from parvibench.reporting.tables.table import Column, Entry, Row, Table, fragment, numeric, setting
from parvibench.reporting.tables.task_tables import among_best, path_table, rank_entry, ranking_table
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
_COLUMNS = (
    Column("task", numeric=False),
    Column("group", numeric=False, more=True),
    Column("rank"),
    Column("result", "ratio to the floor where there is one, else the primary metric; median [95%]"),
    Column("among the best", "no: significantly worse than another method, or than exact draws", numeric=False),
    Column("step size", "eta in x + eta score + sqrt(2 eta) noise"),
    Column("effective step", "the factor that multiplies the velocity", more=True),
    Column("seconds", "steady-state compute time per replicate"),
)


@dataclass(frozen=True)
class TaskSection:
    """Everything the page shows of a task."""

    name: str  #: of the task
    anchor: str  #: fragment of its section
    group: str  #: see ``leaderboard.task_group``
    facts: str  #: summary, dimension and tags
    sentences: Mapping[str, str]  #: who is among the best, of all (key ``""``) and of each kind
    certificate: Mapping[str, str]  #: names and texts about its reference
    table: Table  #: the ranking, by samples of equal number
    paths: Table | None  #: Markov chains by their whole path, or None without any
    budgets: Sequence[Table]  #: at equal score evaluations, and at equal sequential steps
    drawings: Sequence[Drawing]  #: its figures
    note: str  #: why figures are missing, or empty
    absent: Mapping[tuple[str, str], Sequence[str]]  #: metric that does not apply, reason -> labels of methods


def task_sections(findings: Findings, kinds: Mapping[str, Findings], styles: Styles) -> list[TaskSection]:
    """One section per task, in the order of the run; ``kinds`` from ``Findings.by_kind``."""
    results = findings.results
    best = {kind: {b.where: b for b in f.tasks} for kind, f in {"": findings, **kinds}.items()}
    own: dict[str, dict[str, list[lb.Row]]] = {}
    for found in kinds.values():  # kinds first, then divisions
        for row in found.board[~found.board["anchor"].astype(bool)].to_dict("records"):
            own.setdefault(row["task"], {}).setdefault(row["label"], []).append(row)
    sections = []
    boards = {str(task): rows for task, rows in findings.board.groupby("task", sort=False)}
    for i, (task, cells) in enumerate(results.by_task.items()):
        rows = boards[task]
        absent: dict[tuple[str, str], list[str]] = {}
        for cell in cells:
            for absence in cell.absent.items():
                absent.setdefault(absence, []).append(cell.label)
        sections.append(
            TaskSection(
                name=task,
                anchor=fragment("task", task),
                group=lb.task_group(task),
                facts=_task_facts(task),
                sentences={kind: found[task].sentence for kind, found in best.items() if task in found},
                certificate=_certificate(task),
                table=ranking_table(cells, rows, own.get(task, {}), results.marks),
                paths=path_table(cells),
                budgets=equal_budget_tables(results, cells, str(rows["metric"].iloc[0])),
                drawings=[*task_drawings(results, rows, task, styles)] if i < MAX_DRAWN else (),
                note="" if i < MAX_DRAWN else facts.NOT_DRAWN.format(most=MAX_DRAWN),
                absent=absent,
            )
        )
    return sections


def task_drawings(results: StoredRun, rows: pd.DataFrame, task: str, styles: Styles) -> Iterator[Drawing]:
    """A task's figures, each drawn when it is reached: the ``MAX_LINES`` best methods and the anchors."""
    best, anchors = rows.loc[rows["rank"].notna(), "label"], rows.loc[rows["anchor"], "label"]
    shown = TaskCells(results, task, styles, [*map(str, best.head(MAX_LINES)), *map(str, anchors)])
    metric, samples = str(rows["metric"].iloc[0]), int(rows["samples"].max())
    of_papers = {m: source for tag, (m, source) in _PAPER_CURVES.items() if tag in shown.tags}
    for m, source in ({metric: "", "rmse": ""} | of_papers).items():
        yield from anytime(shown, m, floor_of(task, m, samples), source, alone=m != metric)
    for draw in (particles, trajectories, marginals, autocorrelations, predictions):
        yield from draw(shown)


def _task_facts(task: str) -> str:
    row = registry.tasks().get(task)
    if row is not None:
        return facts.task(row.summary, row.dim, row.tags)
    found = floored_of(task)
    return facts.own_task(() if found is None else found.certificate.get("coordinates", ()), native_of(task))


def _certificate(task: str) -> dict[str, str]:
    """The certificate of a task's reference as names and short texts; empty without one."""
    found = floored_of(task)
    if found is None:
        return {}
    what = facts.PREDICTIONS
    if isinstance(found, Reference):
        what = facts.reference(len(found.draws), exact=found.exact, grade=found.grade)
    shown = ("method", "checks", "run", "seed", "created", "versions", "sha256")
    failed = {"failed tests": failed} if (failed := "; ".join(getattr(found, "failed_gates", ()))) else {}
    known = {"reference": what} | failed | {k: found.certificate[k] for k in shown if k in found.certificate}
    return {k: facts.value(v)[:1500] for k, v in known.items()}


@dataclass(frozen=True)
class MethodSection:
    """Everything the page shows of a method."""

    name: str  #: its label
    anchor: str  #: fragment of its section
    kind: str  #: of the method
    facts: str  #: summary, kind, needs and citation
    sentences: Mapping[str, str]  #: kind of target -> results there
    settings: Mapping[str, str]  #: names and values
    table: Table  #: its results, one row per task


def method_sections(findings: Findings) -> list[MethodSection]:
    """One section per method, anchors excepted; best average rank first."""
    results, board = findings.results, findings.board
    ranks = average_ranks(board) if len(board) else pd.DataFrame({"anchor": []})
    kinds, rows = lb.method_kinds(results), by_label(board)
    cells: dict[str, dict[str, CellRecord]] = {}
    for cell in results.cells:
        cells.setdefault(cell.label, {})[cell.task] = cell
    return [
        MethodSection(
            name=label,
            anchor=fragment("method", label),
            kind=kinds[label],
            facts=_method_facts(label, next(iter(cells[label].values())).algorithm, results),
            sentences=_sentences(rows[label].values()),
            settings=_settings(cells[label].values()),
            table=Table(
                f"{label} task by task", _COLUMNS, tuple(_row(r, cells[label][t]) for t, r in rows[label].items())
            ),
        )
        for label in map(str, ranks.index[~ranks["anchor"].astype(bool)])
    ]


def _row(row: lb.Row, cell: CellRecord) -> Row:
    group = str(row["group"])
    steps = setting(cell.settings.get("step_size")), setting(cell.effective_step)
    found = rank_entry(row), _result(row), among_best(row)
    return Row((Entry(cell.task), Entry(group), *found, *steps, numeric(row["seconds"])), group=group)


def _result(row: lb.Row) -> Entry:
    if row["status"] != Status.OK:
        return Entry(lb.entry(row), look="status", help=str(row["reason"])[:300])
    value = lb.shown(row)
    unit = value / row["median"] if row["median"] and math.isfinite(value / row["median"]) else 1.0
    return numeric(value, note=f"{lb.unit(row)} [{interval(row['low'] * unit, row['high'] * unit)}]")


def _method_facts(label: str, algorithm: str, results: StoredRun) -> str:
    """What the method is, and why the suite fixes settings of it, in its words."""
    row = registry.algorithms().get(algorithm)
    if row is None:
        known = facts.PLUG_IN.format(algorithm=algorithm)
    else:
        known = facts.method(row.summary, row.kind, row.needs, row.citation)
    own = (a for a in results.run.suite.get("algorithms", ()) if label == (a.get("label") or a["name"]))
    reason = next((a.get("reason") for a in own), "")
    return known + (facts.IN_THIS_SUITE.format(reason=reason) if reason else "")


def _sentences(rows: Iterable[lb.Row]) -> dict[str, str]:
    """The method's results by kind of target, where it is ranked."""
    groups: dict[str, list[lb.Row]] = {}
    for row in rows:
        if not math.isnan(row["rank"]):
            groups.setdefault(row["group"], []).append(row)
    found = {}
    for group, mine in groups.items():
        best = [str(r["task"]) for r in mine if r["best"]]
        exact = [str(r["task"]) for r in mine if r["verdict"] == "indistinguishable"]
        found[group] = facts.results(group, float(np.mean([r["rank"] for r in mine])), len(mine), best, exact)
    return found


def _settings(cells: Collection[CellRecord]) -> dict[str, str]:
    """Names and values of the settings; at most 12 values where tasks differ."""
    return {
        key: facts.setting(list(dict.fromkeys(json.dumps(c.settings.get(key)) for c in cells if c.settings)))
        for key in dict.fromkeys(k for c in cells for k in c.settings)
    }
