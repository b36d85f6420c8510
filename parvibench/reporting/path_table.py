"""The second table of a task: Markov chains judged by their whole path after burn-in."""

from __future__ import annotations

from collections.abc import Sequence

from parvibench.core.result import CellRecord, Status
from parvibench.harness.marks.transient import MAX_RHAT
from parvibench.harness.store.results import metric_values
from parvibench.statistics import median_interval

from .formatting import interval
from .page_tables import Column, Entry, Row, Table, method, numeric, sortable, whole

#: Columns of the table, in order.
PATH_METRICS = ("path_equivalent_n", "path_primary", "ess_per_evaluation")


def path_table(cells: Sequence[CellRecord]) -> Table | None:
    """Chains of one task whose path has converged, best equivalent n first, then the others; None without any path."""
    judged = [c for c in cells if c.kind == "chains" and c.status is Status.OK and "path_primary" in c.values]
    if not judged:
        return None
    ordered = sorted(judged, key=lambda c: (not _converged(c), *_order(c)))
    primary = "primary metric of the path"
    columns = (
        Column("method", numeric=False),
        Column("R-hat", f"rank-normalised split R-hat of the worst coordinate; converged at {MAX_RHAT} or less"),
        Column("equivalent n", "how many exact draws do as well as at most 1,000 states spread evenly over the path"),
        Column(primary, "the task's primary metric on these states; median [95% interval]"),
        Column("min ESS per 1,000 scores", "bulk effective sample size of the worst coordinate over 1,000 score evaluations"),
        Column("burn-in", "dropped part of the run: a share below 1, else iterations"),
        Column("score evaluations", "charged per replicate"),
    )  # fmt: skip
    return Table("Markov chains by their whole path after burn-in", columns, tuple(_row(c) for c in ordered))


def _row(cell: CellRecord) -> Row:
    converged = _converged(cell)
    rhat = Entry("", note="unknown") if _median(cell, "rhat") is None else numeric(_median(cell, "rhat"))
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
    rhat = _median(cell, "rhat")
    return rhat is not None and rhat <= MAX_RHAT


def _order(cell: CellRecord) -> tuple[float, float]:
    """Sort key: largest equivalent n first; without one, by the primary metric."""
    size, primary = _median(cell, "path_equivalent_n"), _median(cell, "path_primary")
    return (-(size or 0.0), float("inf") if primary is None else primary)


def _median(cell: CellRecord, metric: str) -> float | None:
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
