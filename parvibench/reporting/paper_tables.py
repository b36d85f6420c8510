"""Tables of our rows beside published numbers, for the page of a run and the audit of all papers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

import pandas as pd

from parvibench.core import registry
from parvibench.harness.suite.entries import Row as SuiteRow
from parvibench.harness.suite.suite import Suite

from .formatting import interval, number
from .page_tables import Column, Entry, Row, Table, numeric, sortable, whole
from .paper_comparison import Comparison, Findings, Verdict
from .paper_measured import Known, Ours, protocols

_COLUMNS = (
    Column("number", "dataset, method and metric in the paper's words", numeric=False),
    Column("row", "ours: task and label", numeric=False),
    Column("follows", "the paper's text, or its authors' program where they differ", numeric=False),
    Column("published", "mean, and the spread that the paper prints; of times the ratio to another row's"),
    Column("ours", "mean over replicates, its 95% interval, and how many"),
    Column("difference", "ours less published"),
    Column("tolerance", "two published standard deviations, one printed unit or 2%: the largest"),
    Column("verdict", numeric=False),
    Column("remarks", numeric=False),
)
_LOOKS = {Verdict.AGREES: "best", Verdict.DIFFERS: "status", Verdict.INCOMPARABLE: "quiet", Verdict.NOT_RUN: "quiet"}


#: What the verdicts mean, in words.
RULE = (
    "Fixed beforehand: a row agrees where the 95% interval of our mean lies within the tolerance of the published number "
    "(the largest of two published standard deviations, one printed unit and 2%), differs where it lies outside, and is "
    "inconclusive where it does both. A difference has a cause where changing that alone closes at least half of the gap. "
    "Times are compared as ratios of two rows of one machine. Numbers that contradict others of their paper are not judged."
)


def paper_tables(found: Findings) -> list[Table]:
    """The numbers of a suite beside ours, and what single changes changed; none without numbers."""
    numbers = comparison_table(found.comparisons) if found.comparisons else None
    return [table for table in (numbers, effect_table(found)) if table is not None]


def comparison_table(found: Sequence[Comparison]) -> Table:
    """Published | ours | difference | verdict, a line for each number and row."""
    return Table("our numbers beside the published ones", _COLUMNS, tuple(map(_line, found)))


def _line(c: Comparison) -> Row:
    n = c.number
    printed = n.printed if c.published == n.value else f"{number(c.published)} (ratio)"
    cause = c.cause or ("unexplained" if c.verdict is Verdict.DIFFERS else "")
    verdict = f"{c.verdict}: {cause}" if cause else str(c.verdict)
    note = n.note if n.note not in c.reason else ""
    remarks = "; ".join(filter(None, ["suspicious" if n.suspicious else "", c.reason, note]))
    return Row(
        (
            Entry(f"{n.dataset}, {n.algorithm}, {n.metric}"),
            Entry(c.title),
            Entry("" if c.row is None else c.row.follows),
            Entry(printed, sortable(c.published), "status" if n.suspicious else ""),
            _ours(c.ours),
            numeric(c.gap),
            numeric(c.tolerance),
            Entry(verdict, look=f"reason {_LOOKS.get(c.verdict, '')}".strip()),
            Entry(remarks, look="reason"),
        )
    )


def _ours(ours: Ours | None) -> Entry:
    if ours is None:
        return Entry("")
    known = f"[{interval(ours.low, ours.high)}] " if math.isfinite(ours.low) else ""
    return numeric(ours.mean, note=f"{known}({ours.n})")


def summary_table(found: Iterable[Findings]) -> Table:
    """How many numbers of every suite have which verdict."""
    names = ("agree", "differ, cause shown", "differ, unexplained", "inconclusive", "cannot be compared", "not run")
    columns = (
        Column("suite", numeric=False),
        Column("numbers"),
        *map(Column, names),
        Column("explained of those judged"),
    )
    by_suite = {f.suite.name: f.comparisons for f in found}
    everything = {"all": tuple(c for part in by_suite.values() for c in part)} if len(by_suite) > 1 else {}
    rows = []
    for name, comparisons in {**by_suite, **everything}.items():
        counts = Counter(_kind(c) for c in comparisons)
        judged = [c for c in comparisons if c.verdict in (Verdict.AGREES, Verdict.DIFFERS)]
        share = f"{sum(c.explained for c in judged)} of {len(judged)}" if judged else ""
        first = Entry(name, link=name if name in by_suite else "")
        rows.append(Row((first, whole(len(comparisons)), *(whole(counts[n]) for n in names), Entry(share))))
    return Table("verdicts by suite", columns, tuple(rows))


def _kind(c: Comparison) -> str:
    if c.verdict is Verdict.DIFFERS:
        return "differ, cause shown" if c.cause else "differ, unexplained"
    return {Verdict.AGREES: "agree"}.get(c.verdict, str(c.verdict))


def effect_table(found: Findings) -> Table | None:
    """What single changes of rows changed; None where none was run."""
    columns = (
        Column("row", numeric=False), Column("change", numeric=False), Column("number", numeric=False),
        Column("published"), Column("row's own"), Column("changed"),
        Column("of the gap closed", "negative: the change widens it"),
    )  # fmt: skip
    rows = [
        Row((
            Entry(e.base.title), Entry(e.reason, look="reason"),
            Entry(f"{e.base.number.dataset}, {e.base.number.algorithm}, {e.base.number.metric}"),
            numeric(e.base.published), _ours(e.base.ours), _ours(e.changed),
            Entry("" if math.isnan(e.closes) else f"{100 * e.closes:.0f}%", sortable(e.closes)),
        ))
        for e in found.effects
    ]  # fmt: skip
    return Table("what single changes changed", columns, tuple(rows)) if rows else None


def measured_table(suite: Suite, known: Known) -> Table | None:
    """What was measured of the rows at their ends, for figures, which print no numbers; None where nothing was run."""
    keys = protocols(suite)
    held = [(row, known[keys[row.title]]) for row in suite.rows if keys[row.title] in known]
    metrics = list(dict.fromkeys(m for _, gave in held for m in suite.metrics or () if m in gave.numbers))
    if not metrics:
        return None
    rows = [Row((Entry(row.title), *(_measured(gave.numbers.get(m)) for m in metrics))) for row, gave in held]
    return Table("ours at the end of each row", (Column("row", numeric=False), *map(Column, metrics)), tuple(rows))


def _measured(found: Ours | str | None) -> Entry:
    """The mean over the replicates with a finite value, and how many those are of all."""
    if not isinstance(found, Ours):
        return Entry("")
    shown = _ours(found)
    lost = f"({found.n} of {found.n + found.lost} finite)"
    return replace(shown, note=f"{shown.note.rpartition('(')[0]}{lost}") if found.lost else shown


def departures(suite: Suite) -> list[str]:
    """Where the rows of a suite depart from what they repeat."""
    found = list(suite.departures)
    said: dict[str, list[str]] = {}  # what, and of which rows
    for row in suite.rows:
        method = registry.load_method(row.algorithm)
        preset = method.presets[row.preset] if row.preset else {}
        chosen = chosen_step(suite, row)
        guessed = [
            k
            for k, v in preset.items()
            if v.source == "ours" and k not in row.settings and not (chosen and k == "step_size")
        ]
        if chosen:
            said.setdefault(chosen, []).append(row.title)
        if guessed:
            said.setdefault(f"unpublished and chosen by us: {', '.join(guessed)}", []).append(row.title)
        if row.reason and not row.varies:
            said.setdefault(row.reason, []).append(row.title)
    found += [f"{', '.join(rows)}: {text}" for text, rows in said.items()]
    for task in dict.fromkeys(row.task for row in suite.rows):
        found += [f"{task}: {text}" for text in registry.load_task(task).departures]
    return list(dict.fromkeys(found))


def chosen_step(suite: Suite, row: SuiteRow) -> str:
    """Which of the step sizes that its suite lists a row has, how it was chosen and for how much; empty without a list."""
    listed = suite.tune.choices.get(row.display) if suite.tune else None
    step = suite.tuned.step_size.get(row.task, {}).get(row.display) if suite.tuned else None
    if listed is None or step is None or "step_size" in row.settings:
        return ""
    spent = suite.tuned.score_evaluations.get(row.task, {}).get(row.display) if suite.tuned else None
    cost = f", for {spent:,.0f} score evaluations" if spent else ""
    return f"step size {step:g}, of {', '.join(f'{v:g}' for v in listed)} the best on a validation fifth of the training rows{cost}"


def plain_rows(found: Findings) -> pd.DataFrame:
    """The comparisons for machines, a row each."""
    rows = []
    for c in found.comparisons:
        ours = {} if c.ours is None else {f"ours_{k}": v for k, v in asdict(c.ours).items()}
        follows = "" if c.row is None else c.row.follows
        head = {"suite": c.suite, "pointer": c.number.pointer, "row": c.title, "follows": follows, "metric": c.metric}
        numbers = {"published": c.published, "tolerance": c.tolerance, **ours}
        said = {"verdict": str(c.verdict), "cause": c.cause, "reason": c.reason, "suspicious": c.number.suspicious}
        rows.append({**head, **numbers, **said})
    return pd.DataFrame(rows)
