"""Tables of a task: the ranking of its methods, at equal budgets too, and Markov chains judged by their whole path after burn-in."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts.courses import at_equal_budgets
from parvibench.reporting.facts.run import FAR, FAR_SPREAD, MAX_RHAT, SEQUENTIAL, Facts, interval_of, median_of
from parvibench.reporting.formatting import interval, named, number
from parvibench.reporting.text import marks
from parvibench.reporting.text.trusting import KSD, Answer

from .table import Column, Entry, Row, Table, estimate, method, numeric, sortable, whole

#: Columns of the table, in order.
PATH_METRICS = ("path_equivalent_n", "path_primary", "ess_per_evaluation")
_RATIO_HELP = "median over the median of independent exact draws: 1 is as good as exact sampling"
_VERDICT_HELP = "test against exact draws at 5%, all metrics with a floor combined by weighted Holm"
_EQUIVALENT_HELP = (
    "number of exact draws with the same error [95% interval, for independent samples], replicates pooled"
)
_CONVERGENCE_HELP = (
    "transient: chains with R-hat above 1.05 or a bulk ESS below a quarter of the samples; still improving: the primary metric "
    "fell by more than 5% over the last doubling of the budget, and samples are distinguishable from exact draws; converged: chains by R-hat and "
    "ESS; flat: other methods whose metric no longer falls, which no test of convergence says"
)
_SUBMISSION_HELP = "of submitted rows. verified: computed by the maintainers with the package's code; rerun: the submitted source, run by the maintainers; unverified: as submitted"
_WORST_HELP = "{metric} of the worst finite replicate, including those that blew up"
_BEST_HELP = (
    "no other method is significantly better: moderated t tests paired by replicate, Holm over all pairs on all tasks of this kind, 5%; "
    "it does not lose significantly more replicates than the others; "
    f"nor is it significantly worse than exact draws, with over {FAR:g} times the medians of the methods that pass for them (not "
    f"tested where logarithms of replicates have standard deviations above {FAR_SPREAD:g})"
)


def ranking_table(
    cells: list[CellRecord], rows: pd.DataFrame, own: Mapping[str, Sequence[lb.Row]], submitted: Mapping[str, str]
) -> Table:
    """The ranking; ``own``: label -> its rows among methods of its kind and of its division; ``submitted``: cell key -> mark of a submission's row."""
    metric, by_label = str(rows["metric"].iloc[0]), {c.label: c for c in cells}
    usual = str(rows["verdict_basis"].mode().iloc[0])
    # Costs have columns of their own, paths a table.
    costs = {m for m, row in registry.metrics().items() if row.need == "cost"}
    elsewhere = {metric, *PATH_METRICS, SEQUENTIAL, *costs}
    others = dict.fromkeys(m for c in cells for m in c.values if m not in elsewhere)
    shown: list[tuple[bool, Column, Callable[[lb.Row, CellRecord], Entry]]] = [
        (True, Column("method", numeric=False), lambda r, c: method(c.label, anchor=bool(r["anchor"]))),
        (True, Column("rank"), lambda r, c: rank_entry(r, own.get(c.label, ()))),
        (True, Column("status", numeric=False), lambda r, c: _status(c)),
        (True, Column(metric or "metric", f"{_help(metric)}; median over replicates [95% interval]"), lambda r, c: _median(r)),
        (bool(rows["floor_ratio"].notna().any()), Column("×\u00a0floor", _RATIO_HELP), lambda r, c: numeric(r["floor_ratio"])),
        (True, Column("worst", _WORST_HELP.format(metric=metric or "metric")), lambda r, c: numeric(r["worst"])),
        (True, Column("convergence", _CONVERGENCE_HELP, numeric=False), lambda r, c: Entry(str(r["convergence"]))),
        (True, Column("among the best", _BEST_HELP, numeric=False), lambda r, c: among_best(r, own.get(c.label, ()))),
        (bool((rows["verdict"] != "").any()), Column("against exact draws", f"{_VERDICT_HELP}; {usual}", numeric=False), lambda r, c: _verdict(r, usual)),
        (bool(rows["equivalent"].notna().any()), Column("equivalent n", _EQUIVALENT_HELP), lambda r, c: _equivalent(r)),
        (any(c.key in submitted for c in cells), Column("submission", _SUBMISSION_HELP, numeric=False), lambda r, c: Entry(submitted.get(c.key, ""))),
        (True, Column("start", "initial points: the task's, draws from the prior or of a fit, warm (one reference draw, scattered), or the method's own", numeric=False), lambda r, c: Entry("task's" if c.start == "task" else c.start)),
        (True, Column("iterations", "per replicate"), lambda r, c: whole(c.iterations)),
        (True, Column("score evaluations", "counted per replicate"), lambda r, c: whole(c.score_evaluations)._replace(note="self-reported" * (c.kind == "external"))),
        (True, Column("seconds", "steady-state compute time per replicate, s"), lambda r, c: numeric(r["seconds"])),
        *[(True, Column(m, f"{_help(m)}; median over replicates, its 95% interval on hovering", more=True), partial(_metric_entry, m)) for m in others],
    ]  # fmt: skip
    columns, makers = zip(*[(column, entry) for wanted, column, entry in shown if wanted], strict=True)
    body = []
    for row in rows[list(lb.COLUMNS)].to_dict("records"):
        cell = by_label[row["label"]]
        entries = tuple(entry(row, cell) for entry in makers)
        body.append(Row(entries, kind="anchor" if row["anchor"] else cell.kind))
    return Table(f"ranked by {metric}" if metric else "no metric", columns, tuple(body))


def trust_table(answer: Answer) -> Table:
    """What is known of the methods of a task without reference."""
    per = "score evaluations, of the slowest coordinate; median over replicates"
    columns = (
        Column("method", numeric=False),
        Column("KSD", KSD),
        Column("by chance", KSD),
        Column("p", "of KSD against its values by chance"),
        Column("R-hat", f"of the worst coordinate, median over replicates; passes at {MAX_RHAT} or less"),
        Column("bulk ESS per 1,000", per),
        Column("per second", "bulk ESS of all replicates"),
        Column("tail ESS per 1,000", per),
        Column("per second", "tail ESS of all replicates"),
        Column("divergences", "transitions of HMC that diverged; passes at 0.1% or less"),
        Column("diagnostics", "whether R-hat, ESS and divergences pass, and no replicate was lost", numeric=False),
        Column("agrees with", "means and standard deviations of all coordinates, at 1% over all pairs", numeric=False),
        Column("differs from", "in a mean or a standard deviation; neither: too few effective draws to tell", numeric=False),
    )  # fmt: skip
    rows = []
    for m in answer.methods:
        diverged = (
            Entry("") if math.isnan(m.divergences) else Entry(f"{100 * m.divergences:.2g}%", sortable(m.divergences))
        )
        numbers = m.ksd, m.ksd_by_chance, m.ksd_p_value, m.rhat, m.ess_bulk, m.ess_bulk_per_second, m.ess_tail
        passes = "pass" if m.passes else "none" if math.isnan(m.rhat) else "fail"
        words = passes, *(named(labels, 6) or "none" for labels in (m.agrees, m.differs))
        entries = *map(numeric, (*numbers, m.ess_tail_per_second)), diverged, *map(Entry, words)
        rows.append(Row((method(m.label), *entries)))
    return Table("methods without a reference", columns, tuple(rows))


def _median(row: lb.Row) -> Entry:
    look = "best strong" if row["best"] else ""
    return Entry("", look=look) if math.isnan(row["median"]) else estimate(row["median"], row["low"], row["high"], look)


def _verdict(row: lb.Row, usual: str) -> Entry:
    """Verdict against exact draws; its basis where that is not the usual one."""
    basis = "" if row["verdict_basis"] == usual else row["verdict_basis"]
    if not row["verdict"]:
        return Entry("", help=basis)
    mark = "≈ " if row["verdict"] == "indistinguishable" else ""
    p = row["p_value"]
    told = "" if math.isnan(p) else "adjusted p < 0.001" if p < 0.001 else f"adjusted p {p:.3f}"
    return Entry(f"{mark}{row['verdict']}", help="; ".join(filter(None, [told, basis])))


def _equivalent(row: lb.Row) -> Entry:
    """Equivalent n with its interval."""
    if math.isnan(row["equivalent"]):
        return Entry("")
    cap = 4 * row["samples"]
    text = f"≥ {cap:,.0f}" if row["equivalent"] >= cap else number(row["equivalent"])
    if not math.isnan(row["equivalent_low"]):
        text += f" [{interval(row['equivalent_low'], row['equivalent_high'])}]"
    return Entry(text, sortable(row["equivalent"]))


def _metric_entry(metric: str, _: lb.Row, cell: CellRecord) -> Entry:
    if metric not in cell.values:
        return Entry("", help=cell.absent.get(metric, ""))
    median, low, high = interval_of(cell, metric)
    help = f"[{interval(low, high)}]"
    row = registry.metrics().get(metric)
    if row and row.unit == "count" and math.isfinite(median):
        return Entry(f"{median:g}", sortable(median), help=help)
    return numeric(median, help=help)


def _status(cell: CellRecord) -> Entry:
    if cell.status is not Status.OK:
        return Entry(marks.status_word(cell.status, cell.reason), look="status", help=cell.reason[:300])
    if cell.n_diverged:
        text = f"{cell.n_diverged} of {cell.n_replicates} diverged"
        return Entry(text, look="status", help=cell.reason[:300])
    flags = {re.sub(r"\d+", "", flag): flag for flag in cell.flags}  # chunks differ in numbers
    return Entry("ok", note="flagged" if flags else "", help="; ".join(flags.values())[:300])


def _help(metric: str) -> str:
    row = registry.metrics().get(metric)
    return f"{row.summary}; {row.goal}" if row else metric


def rank_entry(row: lb.Row, own: Sequence[lb.Row] = ()) -> Entry:
    """Entry with the rank of a row of the leaderboard, and of its rows ``own`` in those of parts; empty where not ranked."""
    shown = "" if math.isnan(row["rank"]) else f"{row['rank']:.0f}"
    return Entry(shown, sortable(row["rank"]), own=tuple(map(rank_entry, own)))


def among_best(row: lb.Row, own: Sequence[lb.Row] = ()) -> Entry:
    """Entry that says whether a row of the leaderboard is among the best of its task, and its rows ``own`` among parts."""
    text = "yes" if row["best"] else "" if math.isnan(row["rank"]) else "no"
    return Entry(text, look="best strong" if row["best"] else "", own=tuple(map(among_best, own)))


def path_table(cells: Sequence[CellRecord]) -> Table | None:
    """Chains of one task whose path has converged, best equivalent n first, then the others; None without any path."""
    judged = [c for c in cells if c.kind == "chains" and c.status is Status.OK and "path_primary" in c.values]
    if not judged:
        return None

    def order(cell: CellRecord) -> tuple[bool, float, float]:
        """Largest equivalent n first; without one, by the primary metric."""
        size, value = median_of(cell, "path_equivalent_n"), median_of(cell, "path_primary")
        return not _converged(cell), -(size or 0.0), float("inf") if value is None else value

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
    return Table(
        "Markov chains by their whole path after burn-in", columns, tuple(map(_path_row, sorted(judged, key=order)))
    )


def _path_row(cell: CellRecord) -> Row:
    converged = _converged(cell)
    rhat = numeric(median_of(cell, "rhat"))
    if not converged:
        rhat = rhat._replace(note="not converged")
    values = [_summary(cell, m) if converged else Entry("") for m in PATH_METRICS]
    burn_in = cell.spec.burn_in
    return Row(
        (method(cell.label), rhat, *values, Entry(f"{burn_in:g}", sortable(burn_in)), whole(cell.score_evaluations)),
        kind=cell.kind,
        look="" if converged else "quiet",
    )


def _converged(cell: CellRecord) -> bool:
    rhat = median_of(cell, "rhat")
    return rhat is not None and rhat <= MAX_RHAT


def _summary(cell: CellRecord, metric: str) -> Entry:
    if metric not in cell.values:
        return Entry("", help=cell.absent.get(metric, ""))
    scale = 1000 if metric == "ess_per_evaluation" else 1
    median, low, high = interval_of(cell, metric)
    return estimate(scale * median, scale * low, scale * high)


def equal_budget_tables(facts: Facts, task: str, metric: str) -> list[Table]:
    """A table for score evaluations and one for sequential steps."""
    known, tables = lb.floor(task, metric, facts.by_task[task][0].samples), []
    for axis, (level, rows) in at_equal_budgets(facts, facts.by_task[task], metric).items():
        spent = axis.replace("_", " ")
        columns = (
            Column("method", numeric=False),
            Column("rank", "among the methods at this budget; 1 is best"),
            Column("× floor" if known else metric, "median over replicates [95% interval]"),
            Column(spent, "per replicate, at the checkpoint nearest to the level"),
            Column("iterations", "per replicate, at that checkpoint"),
        )
        body = []
        for r in rows:
            cost = whole(r.spent)._replace(note="end of its run" if r.ended else "")
            shown = method(r.cell.label), numeric(r.rank), estimate(*r.values), cost, whole(r.iterations)
            body.append(Row(shown, kind=r.cell.kind))
        tables.append(Table(f"At equal {spent}: {number(level)} per replicate", columns, tuple(body)))
    return tables
