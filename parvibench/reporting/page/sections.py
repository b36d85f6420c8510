"""Sections of the page: a task with its ranking, figures and certificate; a method with its settings and citation."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from parvibench.core import registry
from parvibench.core.reference import Reference
from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts.findings import average_ranks
from parvibench.reporting.facts.floor_comparison import floor_of, floored_of
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.figures.curves import MAX_LINES, anytime
from parvibench.reporting.figures.density_scatter import particles, trajectories
from parvibench.reporting.figures.figure import Drawing, Styles, TaskCells, distinct
from parvibench.reporting.figures.high_dimensional import corner
from parvibench.reporting.figures.predictive_intervals import predictions
from parvibench.reporting.tables.table import Table, fragment
from parvibench.reporting.tables.task_tables import equal_budget_tables, path_table, ranking_table
from parvibench.reporting.text import described
from parvibench.targets.posteriordb import native_of

#: Most tasks with figures in one report; ``parvibench report --task NAME`` draws the others.
MAX_DRAWN = 12


@dataclass(frozen=True)
class TaskSection:
    """Everything the page shows of a task."""

    name: str  #: of the task
    anchor: str  #: fragment of its section
    group: str  #: see ``board.task_group``
    about: str  #: summary, dimension and tags
    sentences: Mapping[str, str]  #: who is among the best, of all (key ``""``) and of each kind
    certificate: Mapping[str, str]  #: names and texts about its reference
    table: Table  #: the ranking, by samples of equal number
    paths: Table | None  #: Markov chains by their whole path, or None without any
    budgets: Sequence[Table]  #: at equal score evaluations, and at equal sequential steps
    drawings: Sequence[Drawing]  #: its figures
    note: str  #: why figures are missing, or empty
    absent: Mapping[tuple[str, str], Sequence[str]]  #: metric that does not apply, reason -> labels of methods


def task_sections(facts: Facts, styles: Styles) -> list[TaskSection]:
    """One section per task, in the order of the run."""
    said = {kind: view.sentences for kind, view in facts.views.items()}
    own: dict[str, dict[str, list[lb.Row]]] = {}
    for found in list(facts.views.values())[1:]:  # kinds first, then divisions
        ranked = found.board.loc[~found.board["anchor"].astype(bool), ["task", "label", "rank", "best"]]
        for row in ranked.to_dict("records"):
            own.setdefault(row["task"], {}).setdefault(row["label"], []).append(row)
    sections = []
    boards = {str(task): rows for task, rows in facts.board.groupby("task", sort=False)}
    for i, (task, cells) in enumerate(facts.by_task.items()):
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
                about=described.task(known) if (known := registry.tasks().get(task)) else _own_task(task),
                sentences={kind: found[task] for kind, found in said.items() if task in found},
                certificate=_certificate(task),
                table=ranking_table(cells, rows, own.get(task, {}), facts.marks),
                paths=path_table(cells),
                budgets=equal_budget_tables(facts, task, str(rows["metric"].iloc[0])),
                drawings=[*task_drawings(facts, rows, task, styles)] if i < MAX_DRAWN else (),
                note="" if i < MAX_DRAWN else described.NOT_DRAWN.format(most=MAX_DRAWN),
                absent=absent,
            )
        )
    return sections


def task_drawings(facts: Facts, rows: pd.DataFrame, task: str, styles: Styles) -> Iterator[Drawing]:
    """A task's figures, each drawn when it is reached: the ``MAX_LINES`` best methods and the anchors."""
    best, anchors = rows.loc[rows["rank"].notna(), "label"], rows.loc[rows["anchor"], "label"]
    labels = [*map(str, best.head(MAX_LINES)), *map(str, anchors)]
    shown = TaskCells(facts, task, distinct(styles, labels), labels)
    metric, samples = str(rows["metric"].iloc[0]), int(rows["samples"].max())
    plane = ["kl_knn"] if getattr(registry.tasks().get(task), "dim", None) == 2 else []
    for m in dict.fromkeys([metric, "rmse", *plane]):
        yield from anytime(shown, m, floor_of(task, m, samples), alone=m != metric)
    for draw in (particles, trajectories, corner, predictions):
        yield from draw(shown)


def _own_task(task: str) -> str:
    found = floored_of(task)
    return described.own_task(() if found is None else found.certificate.get("coordinates", ()), native_of(task))


def _certificate(task: str) -> dict[str, str]:
    """The certificate of a task's reference as names and short texts; empty without one."""
    found = floored_of(task)
    if found is None:
        return {}
    what = described.PREDICTIONS
    if isinstance(found, Reference):
        what = described.reference(len(found.draws), exact=found.exact, grade=found.grade)
    shown = ("method", "checks", "run", "seed", "created", "versions", "sha256")
    failed = {"failed tests": failed} if (failed := "; ".join(getattr(found, "failed_gates", ()))) else {}
    known = {"reference": what} | failed | {k: found.certificate[k] for k in shown if k in found.certificate}
    return {k: described.value(v)[:1500] for k, v in known.items()}


@dataclass(frozen=True)
class MethodSection:
    """Everything the page shows of a method."""

    name: str  #: its label
    anchor: str  #: fragment of its section
    kind: str  #: of the method
    about: str  #: summary, kind, needs and citation
    settings: Mapping[str, str]  #: names and values


def method_sections(facts: Facts) -> list[MethodSection]:
    """One section per method, anchors excepted; best average rank first."""
    ranks = average_ranks(facts.board)
    sections = []
    for label in map(str, ranks.index[~ranks["anchor"].astype(bool)]):
        cells = [c for c in facts.cells if c.label == label]
        row = registry.algorithms().get(cells[0].algorithm)
        about = described.method(row) if row else described.PLUG_IN.format(algorithm=cells[0].algorithm)
        if reason := lb.suite_entry(facts.suite, label).get("reason"):
            about += described.IN_THIS_SUITE.format(reason=reason)
        known = [c.settings for c in cells if c.settings]
        keys = dict.fromkeys(key for own in known for key in own)
        settings = {k: described.setting([*dict.fromkeys(json.dumps(own.get(k)) for own in known)]) for k in keys}
        sections.append(MethodSection(label, fragment("method", label), facts.kinds[label], about, settings))
    return sections
