"""Tables of a task: the ranking of its methods, and Markov chains judged by their whole path after burn-in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.marks.transient import MAX_RHAT
from parvibench.harness.run.checkpoints import SEQUENTIAL
from parvibench.harness.store.results import metric_values
from parvibench.reporting.formatting import interval, number
from parvibench.reporting.text import marks
from parvibench.statistics import median_interval

from .table import Column, Entry, Row, Table, method, numeric, p_value, sortable, whole
from .winners import Winner

#: Columns of the table, in order.
PATH_METRICS = ("path_equivalent_n", "path_primary", "ess_per_evaluation")
_RATIO_HELP = "median over the median of independent exact draws: 1 is as good as exact sampling"
_VERDICT_HELP = "test against exact draws at 5%, all metrics with a floor combined by weighted Holm"
_EQUIVALENT_HELP = (
    "number of exact draws with the same error [95% interval, for independent samples], replicates pooled"
)
_CONVERGENCE_HELP = (
    "transient: chains with R-hat above 1.05 or a bulk ESS below a quarter of the samples; still improving: the primary metric "
    "fell by more than 5% over the last doubling of the budget, and samples are distinguishable from exact draws; neither can be the best of a task"
)
_VERIFIED_HELP = "whether `parvibench verify` reran replicates and reproduced the record (seconds excluded)"
_START = {"task": "task's", "own": "own"}
_RIVAL_HELP = "whether the leader is significantly better: two-sided tests paired by replicate at 5%, Bonferroni"


def ranking_table(
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
        Column("worst", f"{metric or 'metric'} of the worst finite replicate, including those that blew up"),
        Column("convergence", _CONVERGENCE_HELP, numeric=False),
        Column("may be best", _RIVAL_HELP, numeric=False),
        *([Column("against exact draws", _VERDICT_HELP, numeric=False)] if with_verdict else []),
        *([Column("equivalent n", _EQUIVALENT_HELP)] if with_equivalent else []),
        *([Column("verified", _VERIFIED_HELP, numeric=False)] if verified else []),
        Column("start", "initial points: the task's, or the method's own", numeric=False),
        Column("iterations", "per replicate"),
        Column("score evaluations", "counted per replicate"),
        Column("seconds", "steady-state compute time per replicate, s"),
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
    return Entry(
        f"{mark}{row['verdict']}", help=marks.VERDICT_P.format(p=p.text or "unknown", basis=row["verdict_basis"])
    )


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
        return Entry(
            marks.DIVERGED.format(lost=cell.n_diverged, of=cell.n_replicates), look="status", help=cell.reason[:300]
        )
    return Entry("ok", note="flagged" if cell.flags else "", help="; ".join(cell.flags)[:300])


def _in_another_column(metric: str) -> bool:
    """Costs have separate columns, whole paths a separate table."""
    row = registry.metrics().get(metric)
    return metric in (*PATH_METRICS, SEQUENTIAL) or (row is not None and row.need == "cost")


def _help(metric: str) -> str:
    row = registry.metrics().get(metric)
    return metric if row is None else f"{row.summary}; {row.goal}"


def rank_entry(row: pd.Series, own: pd.Series | None = None) -> Entry:
    """Entry with the rank of a row of the leaderboard, and of its row ``own`` in that of its kind; empty where not ranked."""
    among = None if own is None else rank_entry(own)
    return (
        Entry("", own=among)
        if math.isnan(row["rank"])
        else Entry(f"{row['rank']:.0f}", sortable(row["rank"]), own=among)
    )


def may_be_best(row: pd.Series, winner: Winner) -> Entry:
    """Entry that says whether a row of the leaderboard may be the best of its task."""
    if row["label"] == winner.label:
        return Entry("leads", look="best")
    if math.isnan(row["rank"]) or row["marks"]:
        words = [w for w in str(row["marks"]).split(", ") if w not in ("edge", "untuned")]
        if math.isnan(row["rank"]) or words:
            return Entry(", ".join(words), look="quiet")
    return Entry("not ruled out") if row["label"] in winner.rivals else Entry("no")


def path_table(cells: Sequence[CellRecord]) -> Table | None:
    """Chains of one task whose path has converged, best equivalent n first, then the others; None without any path."""
    judged = [c for c in cells if c.kind == "chains" and c.status is Status.OK and "path_primary" in c.values]
    if not judged:
        return None
    ordered = sorted(judged, key=lambda c: (not _converged(c), *_path_order(c)))
    primary = "primary metric of the path"
    columns = (
        Column("method", numeric=False),
        Column("R-hat", f"rank-normalised split R-hat of the worst coordinate; converged at {MAX_RHAT} or less"),
        Column("equivalent n", "number of exact draws with the same error as up to 1,000 states spread evenly over the path"),
        Column(primary, "the task's primary metric on these states; median [95% interval]"),
        Column("min ESS per 1,000 scores", "bulk effective sample size of the worst coordinate over 1,000 score evaluations"),
        Column("burn-in", "discarded part of the run: a share if below 1, else iterations"),
        Column("score evaluations", "counted per replicate"),
    )  # fmt: skip
    return Table("Markov chains by their whole path after burn-in", columns, tuple(_path_row(c) for c in ordered))


def _path_row(cell: CellRecord) -> Row:
    converged = _converged(cell)
    rhat = Entry("", note="unknown") if _median_of(cell, "rhat") is None else numeric(_median_of(cell, "rhat"))
    if not converged:
        rhat = Entry(rhat.text, rhat.sort, note="not converged")
    values = [_summary(cell, m) if converged else Entry("") for m in PATH_METRICS]
    burn_in = cell.spec.burn_in
    return Row(
        (method(cell.label), rhat, *values, Entry(f"{burn_in:g}", sortable(burn_in)), whole(cell.score_evaluations)),
        kind=cell.kind,
        look="" if converged else "quiet",
    )


def _converged(cell: CellRecord) -> bool:
    rhat = _median_of(cell, "rhat")
    return rhat is not None and rhat <= MAX_RHAT


def _path_order(cell: CellRecord) -> tuple[float, float]:
    """Sort key: largest equivalent n first; without one, by the primary metric."""
    size, primary = _median_of(cell, "path_equivalent_n"), _median_of(cell, "path_primary")
    return (-(size or 0.0), float("inf") if primary is None else primary)


def _median_of(cell: CellRecord, metric: str) -> float | None:
    if metric not in cell.values:
        return None
    return median_interval(metric_values(metric, cell.values[metric]))[0]


def _summary(cell: CellRecord, metric: str) -> Entry:
    if metric not in cell.values:
        return Entry("", help=cell.absent.get(metric, ""))
    scale = 1000 if metric == "ess_per_evaluation" else 1
    median, low, high = (scale * v for v in median_interval(metric_values(metric, cell.values[metric])))
    entry = numeric(median)
    return Entry(f"{entry.text} [{interval(low, high)}]", entry.sort)
