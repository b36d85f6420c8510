"""Tables of the audit: verdicts by suite, what rows of figures gave, and where suites depart from their papers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from parvibench.core import registry
from parvibench.harness.suite.suite import Suite
from parvibench.reporting.formatting import number as shown
from parvibench.reporting.tables.table import Column, Entry, Row, Table, whole

from .comparison import our_entry
from .kinds import JUDGED, Finding, Kind, count
from .paper_words import around
from .replicates import Known, Ours, protocols

#: Columns of the summary -> the kinds that they count; the first seven are judgements of the paper, its rule or its program.
COUNTED = {
    "agree": (Kind.AGREES,),
    "differ, cause shown": (Kind.CAUSE,),
    "differ, unexplained": (Kind.DIFFERS,),
    "agree by the rule": (Kind.RULE_AGREES,),
    "differ by the rule": (Kind.RULE_DIFFERS,),
    "agree with the program": (Kind.PROGRAM_AGREES,),
    "differ from the program": (Kind.PROGRAM_DIFFERS,),
    "inconclusive": (Kind.INCONCLUSIVE, Kind.RULE_OPEN),
    "within reach": (Kind.WITHIN,),
    "out of reach": (Kind.OUT,),
    "no number to judge": (Kind.NO_NUMBER,),
    "cannot be compared": (Kind.INCOMPARABLE,),
    "not run": (Kind.NOT_RUN,),
}


def summary_table(found: Mapping[str, Sequence[Finding]]) -> Table:
    """How many numbers of every suite have which kind of verdict."""
    columns = (Column("suite", numeric=False), Column("numbers"), Column("judged"), *map(Column, COUNTED))
    everything = {"all": tuple(f for part in found.values() for f in part)} if len(found) > 1 else {}
    rows = []
    for name, part in {**found, **everything}.items():
        counts = (whole(count(part, *kinds)) for kinds in COUNTED.values())
        rows.append(Row((Entry(name), whole(len(part)), whole(count(part, *JUDGED)), *counts)))
    return Table("verdicts by suite", columns, tuple(rows))


@dataclass(frozen=True)
class Line:
    """A published number in the table of its suite."""

    anchor: str  #: what a sentence links to
    name: str  #: method and metric in the paper's words
    published: str
    spread: str  #: as printed
    ours: str
    interval: str  #: and how many replicates
    difference: str
    verdict: str
    look: str  #: CSS class of the verdict
    note: int  #: number of its reason below the table; 0 without


@dataclass(frozen=True)
class Numbers:
    """The numbers of a suite by data set, and what is said of them."""

    groups: Mapping[str, Sequence[Line]]
    notes: Sequence[str]


_LOOKS = {
    Kind.AGREES: "best", Kind.RULE_AGREES: "best", Kind.PROGRAM_AGREES: "best", Kind.CAUSE: "status", Kind.DIFFERS: "status",
    Kind.RULE_DIFFERS: "status", Kind.PROGRAM_DIFFERS: "status",
}  # fmt: skip
#: As short as a line of a phone needs.
_SHORT = {
    Kind.CAUSE: "differs, cause", Kind.DIFFERS: "differs", Kind.RULE_AGREES: "agrees (rule)", Kind.RULE_DIFFERS: "differs (rule)",
    Kind.RULE_OPEN: "inconclusive", Kind.PROGRAM_AGREES: "agrees (program)", Kind.PROGRAM_DIFFERS: "differs (program)",
    Kind.NO_NUMBER: "no number", Kind.INCOMPARABLE: "unjudged",
}  # fmt: skip


def anchor(pointer: str) -> str:
    """Id of a number's line."""
    return "n-" + re.sub(r"[^A-Za-z0-9]+", "-", pointer).strip("-")


def number_table(found: Iterable[Finding]) -> Numbers:
    """Published, ours, difference and verdict, a line a number."""
    groups: dict[str, list[Line]] = {}
    notes: list[str] = []
    found = list(found)
    metrics = {f.comparison.number.metric for f in found}
    for f in found:
        c, n = f.comparison, f.comparison.number
        if f.note and f.note not in notes:
            notes.append(f.note)
        ratio = c.published != n.value
        printed, _, spread = n.printed.partition(" ± ")
        ours = f.ours
        groups.setdefault(n.dataset, []).append(
            Line(
                anchor(n.pointer),
                n.algorithm + (f" {_metric(n.metric)}" if len(metrics) > 1 else "") + (" (ratio)" if ratio else ""),
                shown(c.published) if ratio else minus(printed),
                "" if ratio or not spread else f"± {spread}",
                "" if ours is None else minus(shown(ours.mean)),
                "" if ours is None else around(ours.low, ours.high, ours.n),
                "" if ours is None else signed(ours.mean - c.published),
                _SHORT.get(f.kind, str(f.kind)),
                _LOOKS.get(f.kind, "quiet"),
                notes.index(f.note) + 1 if f.note else 0,
            )
        )
    return Numbers(groups, notes)


def _metric(name: str) -> str:
    """Of the published table, short enough for a phone."""
    known = {"train_seconds_per_10k_iters": "time", "relative_cumulative_regret_pct": "regret", "sliced_WD": "distance"}
    return known.get(name, name.partition("(")[0].replace("_", " "))


def minus(number: str) -> str:
    """A number with the sign that is as wide as a digit."""
    return "−" + number[1:] if number.startswith("-") else number


def signed(value: float) -> str:
    """A difference with its sign."""
    return (
        ("+" if value > 0 else "−" if value < 0 else "") + f"{abs(value):{'.2g' if abs(value) < 100 else '.0f'}}"
        if math.isfinite(value)
        else "∞"
    )


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
    return shown._replace(note=f"{shown.note.rpartition('(')[0]}{lost}") if found.lost else shown


def departures(suite: Suite) -> list[str]:
    """Where the rows of a suite depart from what they repeat."""
    found = list(suite.departures)
    said: dict[str, list[str]] = {}  # what, and of which rows
    for row in suite.rows:
        method = registry.load_method(row.algorithm)
        preset = method.presets[row.preset] if row.preset else {}
        guessed = [k for k, v in preset.items() if v.source == "ours" and k not in row.settings]
        if guessed:
            said.setdefault(f"unpublished and chosen by us: {', '.join(guessed)}", []).append(row.title)
        if row.reason and not row.varies:
            said.setdefault(row.reason, []).append(row.title)
    found += [f"{', '.join(rows)}: {text}" for text, rows in said.items()]
    for task in dict.fromkeys(row.task for row in suite.rows):
        found += [f"{task}: {text}" for text in registry.load_task(task).departures]
    return list(dict.fromkeys(found))
