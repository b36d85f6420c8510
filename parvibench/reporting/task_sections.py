"""A task's section of the page: facts, ranking, figures and certificate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from parvibench.core import registry
from parvibench.core.reference import Reference
from parvibench.core.result import CellRecord, Status
from parvibench.harness import verification
from parvibench.harness.run.checkpoints import SEQUENTIAL
from parvibench.harness.store.results import StoredRun, metric_values
from parvibench.statistics import median_interval

from . import leaderboard as lb
from .equal_budgets import equal_budget_tables
from .figures.anytime_curves import MAX_LINES, anytime
from .figures.autocorrelations import autocorrelations
from .figures.density_scatter import particles, trajectories
from .figures.figure import Drawing, Styles, TaskCells
from .figures.high_dimensional import marginals
from .figures.predictive_intervals import predictions
from .floor_comparison import floor_of, floored_of
from .formatting import interval, number
from .page_tables import (
    Column,
    Entry,
    Row,
    Table,
    fragment,
    may_be_best,
    method,
    numeric,
    p_value,
    rank_entry,
    sortable,
    whole,
)
from .path_table import PATH_METRICS, path_table
from .winners import Findings, Winner

#: Most tasks with figures in one report; ``parvibench report --task NAME`` draws the others.
MAX_DRAWN = 12
_RATIO_HELP = "median over the median of independent exact draws: 1 is as good as exact sampling"
_VERDICT_HELP = "test against exact draws at 5%, all metrics with a floor combined by weighted Holm"
_EQUIVALENT_HELP = "a global measure: how many exact draws do as well [95% interval, of independent samples], pooled"
_CONVERGENCE_HELP = (
    "transient: chains with R-hat above 1.05 or a bulk ESS below a quarter of the samples; still improving: the primary metric "
    "fell by more than 5% over the last doubling of the budget, and not to that of exact draws; neither is the best of a task"
)
_VERIFIED_HELP = "whether `parvibench verify` ran replicates of it again and found the record: never of seconds"
_START = {"task": "task's", "own": "own"}
_RIVAL_HELP = "whether the leader is significantly better: two-sided tests paired by replicate at 5%, Bonferroni"
#: Tag of a paper's tasks -> metric of its own figure, and that figure.
_PAPER_CURVES = {
    "sifg": ("kl_knn", "as in SIFG, Figure 3"),
    "ksivi": ("kl_knn", "as in KSIVI, Figure 2"),
    "srld": ("mmd2", "as in SRLD, Figure 2"),
}


@dataclass(frozen=True)
class TaskSection:
    """Everything the page shows of a task."""

    name: str  #: of the task
    anchor: str  #: fragment of its section
    group: str  #: see ``leaderboard.task_group``
    facts: str  #: summary, dimension and tags
    sentences: dict[str, str]  #: which method leads, of all (key ``""``) and of each kind
    certificate: tuple[tuple[str, str], ...]  #: names and texts about its reference
    table: Table  #: the ranking, by samples of equal number
    paths: Table | None = None  #: Markov chains by their whole path, or None without any
    budgets: tuple[Table, ...] = ()  #: at equal score evaluations, and at equal sequential steps
    drawings: tuple[Drawing, ...] = ()  #: its figures
    note: str = ""  #: why figures are missing, or empty
    absent: tuple[tuple[str, str, str], ...] = ()  #: metrics that do not apply: metric, methods, reason


def task_sections(findings: Findings, kinds: Mapping[str, Findings], styles: Styles) -> list[TaskSection]:
    """One section per task, in the order of the run; ``kinds`` from ``Findings.by_kind``."""
    results, board = findings.results, findings.board
    leaders = {kind: {w.where: w for w in f.tasks} for kind, f in {"": findings, **kinds}.items()}
    own = {
        (r["task"], r["label"]): (kind, r)
        for kind, f in kinds.items()
        for _, r in f.board.iterrows()
        if not r["anchor"]
    }
    sections = []
    verified = verification.marks(results)
    hint = f"This report draws {MAX_DRAWN} tasks; parvibench report --task draws this one."
    for i, task in enumerate(lb.task_names(results)):
        cells = [c for c in results.cells if c.task == task]
        rows = board[board["task"] == task]
        drawn = i < MAX_DRAWN
        sections.append(
            TaskSection(
                name=task,
                anchor=fragment("task", task),
                group=lb.task_group(task),
                facts=_facts(task),
                sentences={kind: found[task].sentence for kind, found in leaders.items() if task in found},
                certificate=_certificate(task),
                table=_ranking_table(
                    cells,
                    rows,
                    leaders[""][task],
                    {k: (r, leaders[kind][t]) for (t, k), (kind, r) in own.items() if t == task},
                    verified,
                ),
                paths=path_table(cells),
                budgets=equal_budget_tables(results, cells, str(rows["metric"].iloc[0])),
                drawings=tuple(_drawings(results, rows, task, styles)) if drawn else (),
                note="" if drawn else hint,
                absent=_absent(cells),
            )
        )
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
        found += anytime(shown, m, floor_of(task, m, samples), source)
    found += [*particles(shown), *trajectories(shown)]
    return [*found, *marginals(shown), *autocorrelations(shown), *predictions(shown)]


def _ranking_table(
    cells: list[CellRecord],
    rows: pd.DataFrame,
    winner: Winner,
    own: Mapping[str, tuple[pd.Series, Winner]],
    verified: Mapping[tuple[str, str], str],
) -> Table:
    """The ranking; ``own``: label -> its row among methods of its kind, and their leader; ``verified`` of ``marks``."""
    metric = str(rows["metric"].iloc[0])
    by_label = {c.label: c for c in cells}
    measured = dict.fromkeys(m for c in cells for m in c.values)
    others = [m for m in measured if m != metric and not _in_another_column(m)]
    with_ratio, with_equivalent = (bool(rows[c].notna().any()) for c in ("floor_ratio", "equivalent"))
    with_verdict = bool((rows["verdict"] != "").any())
    columns = [
        Column("method", numeric=False),
        Column("rank"),
        Column("status", numeric=False),
        Column(metric or "metric", f"{_help(metric)}; median over replicates [95% interval]"),
        *([Column("×\u00a0floor", _RATIO_HELP)] if with_ratio else []),
        Column("worst", f"{metric or 'metric'} of the worst replicate that is finite, blown-up ones among them"),
        Column("convergence", _CONVERGENCE_HELP, numeric=False),
        Column("may be best", _RIVAL_HELP, numeric=False),
        *([Column("against exact draws", _VERDICT_HELP, numeric=False)] if with_verdict else []),
        *([Column("equivalent n", _EQUIVALENT_HELP)] if with_equivalent else []),
        *([Column("verified", _VERIFIED_HELP, numeric=False)] if verified else []),
        Column("start", "where it began: at the task's initial points, or at points of its own", numeric=False),
        Column("iterations", "of a replicate"),
        Column("score evaluations", "charged per replicate"),
        Column("seconds", "steady compute time per replicate, s"),
        *[Column(m, f"{_help(m)}; median over replicates, its 95% interval on hovering") for m in others],
    ]
    body = []
    for _, row in rows.iterrows():
        cell = by_label[row["label"]]
        median = numeric(row["median"], look="best" if row["best"] else "")
        if not math.isnan(row["median"]):
            median = Entry(f"{median.text} [{interval(row['low'], row['high'])}]", median.sort, median.look)
        entries = (
            method(cell.label, anchor=bool(row["anchor"])),
            rank_entry(row, own[cell.label][0] if cell.label in own else None),
            _status(cell),
            median,
            *([numeric(row["floor_ratio"])] if with_ratio else []),
            numeric(row["worst"]),
            Entry(str(row["convergence"])),
            replace(may_be_best(row, winner), own=may_be_best(*own[cell.label]) if cell.label in own else None),
            *([_verdict(row)] if with_verdict else []),
            *([_equivalent(row)] if with_equivalent else []),
            *([Entry(verified.get((cell.task, cell.label), ""))] if verified else []),
            Entry(_START.get(cell.start, "")),
            whole(cell.iterations),
            replace(whole(cell.score_evaluations), note="self-reported" if cell.kind == "external" else ""),
            numeric(row["seconds"]),
            *[_metric_entry(cell, m) for m in others],
        )
        body.append(Row(entries, kind="anchor" if row["anchor"] else cell.kind))
    return Table(f"ranked by {metric}" if metric else "no metric", tuple(columns), tuple(body))


def _verdict(row: pd.Series) -> Entry:
    if not row["verdict"]:
        return Entry("", help=row["verdict_basis"])
    mark = "≈ " if row["verdict"] == "indistinguishable" else ""
    p = p_value(float(row["p_value"]))
    return Entry(f"{mark}{row['verdict']}", help=f"adjusted p {p.text or 'unknown'}; {row['verdict_basis']}")


def _equivalent(row: pd.Series) -> Entry:
    """Equivalent n with its interval."""
    if math.isnan(row["equivalent"]):
        return Entry("")
    cap = 4 * row["samples"]
    text = f"≥ {cap:,.0f}" if row["equivalent"] >= cap else number(row["equivalent"])
    if not math.isnan(row["equivalent_low"]):
        text += f" [{interval(row['equivalent_low'], row['equivalent_high'])}]"
    return Entry(text, sortable(row["equivalent"]))


def _metric_entry(cell: CellRecord, metric: str) -> Entry:
    if metric not in cell.values:
        return Entry("", help=cell.absent.get(metric, ""))
    median, low, high = median_interval(metric_values(metric, cell.values[metric]))
    help = f"[{interval(low, high)}]"
    row = registry.metrics().get(metric)
    if row is not None and row.unit == "count" and math.isfinite(median):
        return Entry(f"{median:g}", sortable(median), help=help)
    return numeric(median, help=help)


def _status(cell: CellRecord) -> Entry:
    if cell.status is not Status.OK:
        return Entry(str(cell.status), look="status", help=cell.reason[:300])
    if cell.n_diverged:
        text = f"{cell.n_diverged} of {cell.n_replicates} diverged"
        return Entry(text, look="status", help=cell.reason[:300])
    return Entry("ok", note="flagged" if cell.flags else "", help="; ".join(cell.flags)[:300])


def _absent(cells: list[CellRecord]) -> tuple[tuple[str, str, str], ...]:
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for metric, reason in cell.absent.items():
            found.setdefault((metric, reason), []).append(cell.label)
    return tuple((metric, ", ".join(labels), reason) for (metric, reason), labels in found.items())


def _facts(task: str) -> str:
    row = registry.tasks().get(task)
    if row is None:
        found = floored_of(task)
        names = found.certificate.get("coordinates", ()) if found is not None else ()
        return "A task of one's own." + (f" Coordinates: {', '.join(names)}." if names else "")
    summary = row.summary[:1].upper() + row.summary[1:]
    parts = [summary, f"{row.dim} dimensions" if row.dim else "", ", ".join(row.tags)]
    return ". ".join(p for p in parts if p) + "."


def _certificate(task: str) -> tuple[tuple[str, str], ...]:
    """The certificate of a task's reference as names and short texts; empty without one."""
    found = floored_of(task)
    if found is None:
        return ()
    known = found.certificate
    if isinstance(found, Reference):
        kind = "independent exact draws" if found.exact else "a certified long run"
        kind = kind if found.certified else "draws that were given, not certified"
        plain: dict[str, Any] = {"reference": f"{len(found.draws):,} rows from {kind}"}
    else:
        plain = {"reference": "certified posterior predictions at held-out points"}
    shown = ("method", "checks", "run", "seed", "created", "versions", "sha256")
    plain |= {k: known[k] for k in shown if k in known}
    return tuple((k, _in_words(v)[:1500]) for k, v in plain.items())


def _in_words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


def _in_another_column(metric: str) -> bool:
    """Costs have columns of their own, whole paths a table."""
    row = registry.metrics().get(metric)
    return metric in (*PATH_METRICS, SEQUENTIAL) or (row is not None and row.need == "cost")


def _help(metric: str) -> str:
    row = registry.metrics().get(metric)
    return metric if row is None else f"{row.summary}; {row.goal}"
