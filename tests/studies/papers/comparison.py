"""Our rows and the published numbers they name, with verdicts by a rule fixed beforehand.

A number is compared with a cell that has the very protocol of a shipped suite's row: task, settings, budget, points, the
states judged, and when. Ours is the mean over replicates, in the paper's unit, with its 95% interval by Student. With

    tolerance = max(2 published standard deviations, one printed unit, 2% of the number)

the verdict is ``agrees`` where that interval is within the tolerance of the number, ``differs`` where it is outside,
and ``inconclusive`` where it does both: such a row does not count. Times are compared as ratios of two rows of one run.

A difference has a demonstrated cause where another row, the same but for one change, closes at least half of the gap.
Numbers that contradict others of their paper are shown and not judged. Tables of all this are at the end.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

import pandas as pd

from parvibench.harness.suite.entries import Published
from parvibench.harness.suite.entries import Row as SuiteRow
from parvibench.harness.suite.suite import Suite
from parvibench.reporting.tables.table import Column, Entry, Row, Table, numeric, sortable

from . import paper_words
from .published import Number, numbers
from .replicates import Known, Ours, protocols, question

RELATIVE, DEVIATIONS = 0.02, 2
#: Share of a gap that a change must close to count as its cause.
CLOSED = 0.5


class Verdict(StrEnum):
    """Of one number and one row."""

    AGREES = "agrees"
    DIFFERS = "differs"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "cannot be compared"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Comparison:
    """A published number, the row compared with it, and the verdict."""

    suite: str
    number: Number
    published: float  #: the number, or its ratio to another
    tolerance: float
    row: SuiteRow | None  #: None where no row of ours can be compared with it
    metric: str  #: ours
    ours: Ours | None
    verdict: Verdict
    reason: str = ""  #: of the verdict, where it needs one
    cause: str = ""  #: of a difference, where one is demonstrated

    @property
    def title(self) -> str:
        """Of the row."""
        return "" if self.row is None else self.row.title

    @property
    def gap(self) -> float:
        """Ours less published; NaN without ours."""
        return math.nan if self.ours is None else self.ours.mean - self.published


@dataclass(frozen=True)
class Effect:
    """What one change of a row changed."""

    reason: str  #: what is changed
    base: Comparison  #: of the row that is changed
    changed: Ours

    @property
    def closes(self) -> float:
        """Share of the gap to the published number that the change closes; negative where it widens it."""
        return 1 - abs(self.changed.mean - self.base.published) / abs(self.base.gap) if self.base.gap else math.nan


@dataclass(frozen=True)
class SuiteComparison:
    """All numbers that a suite names."""

    suite: Suite
    comparisons: tuple[Comparison, ...]
    effects: tuple[Effect, ...]


def judge(published: float, tolerance: float, ours: Ours) -> Verdict:
    """The verdict of an interval and a number."""
    low, high = published - tolerance, published + tolerance
    if not math.isfinite(ours.mean):
        return Verdict.DIFFERS  # replicates that diverged
    if low <= ours.low and ours.high <= high:
        return Verdict.AGREES
    return Verdict.DIFFERS if ours.high < low or high < ours.low else Verdict.INCONCLUSIVE


def tolerance(number: Number, over: Number | None = None) -> tuple[float, float]:
    """A published number, or its ratio to another one, and how far from it ours may be."""
    spread = 0.0 if math.isnan(number.std) else number.std
    if over is None:
        return number.value, max(DEVIATIONS * spread, number.unit, RELATIVE * abs(number.value))
    ratio = number.value / over.value
    unit = number.unit / abs(number.value) + over.unit / abs(over.value)
    return ratio, abs(ratio) * max(DEVIATIONS * spread / abs(number.value), unit, RELATIVE)


def compare(suite: Suite, known: Known) -> SuiteComparison:
    """Every number of a suite and the results of its rows."""
    gave = {title: known[key] for title, key in protocols(suite).items() if key in known}
    comparisons = [_compared(suite, row, p, gave) for row in suite.rows for p in row.published]
    effects = [e for row in suite.rows if row.varies for e in _effects(row, comparisons, gave)]
    absent = [
        Comparison(suite.name, number, number.value, math.nan, None, "", None, Verdict.INCOMPARABLE, reason)
        for pattern, reason in suite.incomparable.items()
        for number in numbers().values()
        if fnmatchcase(number.pointer, pattern)
    ]
    return explained(SuiteComparison(suite, (*comparisons, *absent), tuple(effects)))


def explained(found: SuiteComparison) -> SuiteComparison:
    """With the causes that the effects of single changes demonstrate."""
    causes = {(e.base.title, e.base.number.pointer): e.reason for e in found.effects if e.closes >= CLOSED}
    keys = [(c.title, c.number.pointer) if c.verdict is Verdict.DIFFERS else None for c in found.comparisons]
    known = zip(found.comparisons, keys, strict=True)
    return replace(found, comparisons=tuple(replace(c, cause=causes[k]) if k in causes else c for c, k in known))


def _compared(suite: Suite, row: SuiteRow, asked: Published, gave: Known) -> Comparison:
    number = numbers()[asked.pointer]
    published, allowed = tolerance(number, numbers()[asked.over] if asked.over else None)

    def said(verdict: Verdict, reason: str = "", ours: Ours | None = None) -> Comparison:
        return Comparison(suite.name, number, published, allowed, row, asked.metric, ours, verdict, reason)

    if row.title not in gave:
        return said(Verdict.NOT_RUN)
    held = gave[row.title]
    ours = held.failure or held.numbers.get(question(asked), paper_words.NOT_MEASURED)
    if isinstance(ours, str):
        return said(Verdict.INCOMPARABLE, ours)
    if number.suspicious:
        return said(Verdict.INCOMPARABLE, paper_words.CONTRADICTS.format(note=number.note), ours)
    if asked.unjudged:
        return said(Verdict.INCOMPARABLE, asked.unjudged, ours)
    lost = paper_words.LOST.format(n=ours.lost, of=ours.n) if ours.lost else ""
    return said(judge(published, allowed, ours), lost, ours)


def _effects(row: SuiteRow, comparisons: Sequence[Comparison], gave: Known) -> list[Effect]:
    """What the change of a row that varies another one changed, number by number of that other one."""
    found = []
    for base in comparisons:
        if row.title in gave and base.row is not None and base.title == row.varies and base.ours is not None:
            asked = next(p for p in base.row.published if p.pointer == base.number.pointer)
            changed = gave[row.title].numbers.get(question(asked))
            if isinstance(changed, Ours):
                found.append(Effect(row.reason, base, changed))
    return found


def our_entry(ours: Ours | None) -> Entry:
    """Entry with our mean, its interval, and the number of replicates."""
    return Entry("") if ours is None else numeric(ours.mean, note=paper_words.around(ours.low, ours.high, ours.n))


def effect_table(found: SuiteComparison) -> Table | None:
    """What single changes of rows changed; None where none was run."""
    columns = (
        Column("row", numeric=False), Column("change", numeric=False), Column("number", numeric=False),
        Column("published"), Column("row's own"), Column("changed"),
        Column("of the gap closed", "negative: the change widens it"),
    )  # fmt: skip
    rows = [
        Row((
            Entry(e.base.title), Entry(e.reason, look="reason"),
            Entry(paper_words.NUMBER.format(e.base.number)),
            numeric(e.base.published), our_entry(e.base.ours), our_entry(e.changed),
            Entry("" if math.isnan(e.closes) else f"{100 * e.closes:.0f}%", sortable(e.closes)),
        ))
        for e in found.effects
    ]  # fmt: skip
    return Table("what single changes changed", columns, tuple(rows)) if rows else None


def plain_rows(found: SuiteComparison) -> pd.DataFrame:
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
