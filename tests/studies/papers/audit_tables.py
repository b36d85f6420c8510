"""Tables of the audit: verdicts by suite, what rows of figures gave, and where suites depart from their papers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from parvibench.core import registry
from parvibench.harness.suite.entries import Row as SuiteRow
from parvibench.harness.suite.suite import Suite
from parvibench.reporting.tables.paper_comparison import Comparison, SuiteComparison, Verdict, our_entry
from parvibench.reporting.tables.paper_measured import Known, Ours, protocols
from parvibench.reporting.tables.table import Column, Entry, Row, Table, whole


def summary_table(found: Iterable[SuiteComparison]) -> Table:
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
    shown = our_entry(found)
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
