"""A method's section of the page: results by kind of target, settings, step sizes and citation."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.formatting import interval
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables.matrix import average_ranks, by_label
from parvibench.reporting.tables.table import Column, Entry, Row, Table, fragment, numeric, setting
from parvibench.reporting.tables.task_tables import among_best, rank_entry
from parvibench.reporting.tables.winners import Findings
from parvibench.reporting.text import facts

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
class MethodSection:
    """Everything the page shows of a method."""

    name: str  #: its label
    anchor: str  #: fragment of its section
    kind: str  #: of the method
    facts: str  #: summary, kind, needs and citation
    sentences: tuple[tuple[str, str], ...]  #: kind of target and its results there
    settings: tuple[tuple[str, str], ...]  #: names and values
    table: Table  #: its results, one row per task


def method_sections(findings: Findings) -> list[MethodSection]:
    """One section per method, anchors excepted; best average rank first."""
    results, board = findings.results, findings.board
    ranks = average_ranks(board) if len(board) else pd.DataFrame({"anchor": []})
    labels = ranks.index[~ranks["anchor"].astype(bool)]
    kinds = lb.method_kinds(results)
    rows = by_label(board)
    cells: dict[str, dict[str, CellRecord]] = {}
    for cell in results.cells:
        cells.setdefault(cell.label, {})[cell.task] = cell
    return [_section(str(label), kinds[label], results, cells[label], list(rows[label].values())) for label in labels]


def _section(
    label: str, kind: str, results: StoredRun, cells: Mapping[str, CellRecord], rows: Sequence[lb.Row]
) -> MethodSection:
    body = []
    for row in rows:
        task, cell = str(row["task"]), cells[row["task"]]
        group, seconds = str(row["group"]), numeric(row["seconds"])
        steps = setting(cell.settings.get("step_size")), setting(cell.effective_step)
        found = rank_entry(row), _result(row), among_best(row)
        body.append(Row((Entry(task), Entry(group), *found, *steps, seconds), group=group))
    algorithm = next(iter(cells.values())).algorithm
    return MethodSection(
        name=label,
        anchor=fragment("method", label),
        kind=kind,
        facts=_facts(algorithm) + _reason(label, results),
        sentences=tuple(_sentences(rows)),
        settings=_settings(list(cells.values())),
        table=Table(f"{label} task by task", _COLUMNS, tuple(body)),
    )


def _result(row: lb.Row) -> Entry:
    if row["status"] != Status.OK:
        return Entry(lb.entry(row), look="status", help=str(row["reason"])[:300])
    value = lb.shown(row)
    unit = value / row["median"] if row["median"] and math.isfinite(value / row["median"]) else 1.0
    return numeric(value, note=f"{lb.unit(row)} [{interval(row['low'] * unit, row['high'] * unit)}]")


def _reason(label: str, results: StoredRun) -> str:
    """Why the suite fixes settings of the method, in its words."""
    own = (a for a in results.run.suite.get("algorithms", ()) if label == (a.get("label") or a["name"]))
    reason = next((a.get("reason") for a in own), "")
    return facts.IN_THIS_SUITE.format(reason=reason) if reason else ""


def _facts(algorithm: str) -> str:
    row = registry.algorithms().get(algorithm)
    return (
        facts.PLUG_IN.format(algorithm=algorithm)
        if row is None
        else facts.method(row.summary, row.kind, row.needs, row.citation)
    )


def _sentences(rows: Sequence[lb.Row]) -> list[tuple[str, str]]:
    groups: dict[str, list[lb.Row]] = {}
    for row in rows:
        if not math.isnan(row["rank"]):
            groups.setdefault(row["group"], []).append(row)
    found = []
    for group, mine in groups.items():
        best = [str(r["task"]) for r in mine if r["best"]]
        exact = [str(r["task"]) for r in mine if r["verdict"] == "indistinguishable"]
        found.append((group, facts.results(group, float(np.mean([r["rank"] for r in mine])), len(mine), best, exact)))
    return found


def _settings(cells: list[CellRecord]) -> tuple[tuple[str, str], ...]:
    """Names and values of the settings; at most 12 values where tasks differ."""
    names = dict.fromkeys(k for c in cells for k in c.settings)
    found = []
    for key in names:
        values = list(dict.fromkeys(json.dumps(c.settings.get(key)) for c in cells if c.settings))
        found.append((key, facts.setting(values)))
    return tuple(found)
