"""Our rows beside the published numbers they name, with verdicts by a rule fixed beforehand.

A number is compared with a cell that has the very protocol of a shipped suite's row: task, settings, budget, points, the
states judged, and when. Ours is the mean over replicates, in the paper's unit, with its 95% interval by Student. With

    tolerance = max(2 published standard deviations, one printed unit, 2% of the number)

the verdict is ``agrees`` where that interval lies within the tolerance of the number, ``differs`` where it lies outside,
and ``inconclusive`` where it does both: such a row does not count. Times are compared as ratios of two rows of one run.

A difference has a demonstrated cause where another row, the same but for one change, closes at least half of the gap.
Numbers that contradict others of their paper are shown and not judged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

import numpy as np
from scipy import stats

from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, CellSpec, Status
from parvibench.harness.store.results import Results, checkpoint_values, metric_values
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.entries import Published, Row
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.suites import of_papers

from .published import Number, numbers

LEVEL, RELATIVE, DEVIATIONS = 0.95, 0.02, 2
#: Share of a gap that a change must close to count as its cause.
CLOSED = 0.5
#: What of a specification the comparison leaves open: how often and where a row is run.
_OPEN = {"replicates", "seed", "chunk", "device", "compiled", "source", "key"}


class Verdict(StrEnum):
    """Of one number and one row."""

    AGREES = "agrees"
    DIFFERS = "differs"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "cannot be compared"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Ours:
    """A mean over replicates, in the paper's unit."""

    mean: float
    low: float
    high: float
    n: int  #: replicates

    @classmethod
    def of(cls, values: Sequence[float]) -> Ours:
        """The mean with its interval by Student; infinite of one replicate, or where one has no finite value."""
        n, mean = len(values), float(np.mean(values))
        if n < 2 or not math.isfinite(mean):
            return cls(mean, -math.inf, math.inf, n)
        half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
        return cls(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Ran:
    """A result and where it lies."""

    store: Store
    record: CellRecord

    def values(self, asked: Published) -> list[float]:
        """A number of ours by replicate, in the paper's unit; ``InputError`` where it was not measured."""
        record, metric = self.record, asked.metric
        if asked.checkpoint in (None, record.spec.budget.iterations):
            values = metric_values(metric, record.values.get(metric, []))
        else:
            curve = self.store.curve(record.key)
            rows = curve[(curve["iteration"] == asked.checkpoint) & (curve["metric"] == metric)]
            values = checkpoint_values(metric, rows, record.diverged) if len(rows) else []
        if not values:
            raise InputError(record.absent.get(metric, f"{metric} was not measured there"))
        return [asked.factor * v for v in values]


@dataclass(frozen=True)
class Comparison:
    """A published number, the row beside it, and the verdict."""

    suite: str
    number: Number
    published: float  #: the number, or its ratio to another
    tolerance: float
    row: Row | None  #: None where no row of ours can be set beside it
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

    @property
    def explained(self) -> bool:
        """Whether it agrees, or differs for a demonstrated cause."""
        return self.verdict is Verdict.AGREES or bool(self.cause)


@dataclass(frozen=True)
class Effect:
    """What one change of a row changed."""

    row: Row  #: the changed one; its ``reason`` says what is changed
    base: Comparison  #: of the row it varies
    changed: Ours

    @property
    def closes(self) -> float:
        """Share of the gap to the published number that the change closes; negative where it widens it."""
        return 1 - abs(self.changed.mean - self.base.published) / abs(self.base.gap) if self.base.gap else math.nan


@dataclass(frozen=True)
class Findings:
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


def of_run(results: Results) -> Findings | None:
    """The numbers beside a run of a shipped suite of a paper; None of another one."""
    name = str(results.run.suite.get("name", ""))
    if name not in of_papers():
        return None
    return compare(load_suite(name), {protocol(c.spec): Ran(results.store, c) for c in results.cells})


def records_of(stores: Iterable[Store]) -> dict[str, Ran]:
    """All results of some stores by protocol; of two of one protocol that of more replicates."""
    found: dict[str, Ran] = {}
    for store in stores:
        for folder in sorted((store.root / "cells").glob("[!.]*")):
            record = store.usable(folder.name)
            if record is None:
                continue
            key = protocol(record.spec)
            if key not in found or record.n_replicates > found[key].record.n_replicates:
                found[key] = Ran(store, record)
    return found


def protocol(spec: CellSpec) -> str:
    """What two specifications share that differ only in how often and where they are run."""
    return json.dumps(spec.model_dump(mode="json", exclude=_OPEN), sort_keys=True)


def compare(suite: Suite, found: Mapping[str, Ran]) -> Findings:
    """Every number of a suite beside what was run of its rows; ``found`` by ``protocol``."""
    cells = zip(suite.rows, expand(suite), strict=True)
    ran = {row.title: held for row, cell in cells if (held := found.get(protocol(cell.spec))) is not None}
    comparisons = [_compared(suite, row, p, ran) for row in suite.rows for p in row.published]
    effects = [e for row in suite.rows if row.varies for e in _effects(row, comparisons, ran)]
    causes = {(e.base.title, e.base.number.pointer): e.row.reason for e in effects if e.closes >= CLOSED}
    explained = [
        replace(c, cause=causes[key])
        if c.verdict is Verdict.DIFFERS and (key := (c.title, c.number.pointer)) in causes
        else c
        for c in comparisons
    ]
    absent = [
        Comparison(suite.name, number, number.value, math.nan, None, "", None, Verdict.INCOMPARABLE, reason)
        for pattern, reason in suite.incomparable.items()
        for number in numbers().values()
        if fnmatchcase(number.pointer, pattern)
    ]
    return Findings(suite, (*explained, *absent), tuple(effects))


def _compared(suite: Suite, row: Row, asked: Published, ran: Mapping[str, Ran]) -> Comparison:
    number = numbers()[asked.pointer]
    published, allowed = tolerance(number, numbers()[asked.over] if asked.over else None)

    def said(verdict: Verdict, reason: str = "", ours: Ours | None = None) -> Comparison:
        return Comparison(suite.name, number, published, allowed, row, asked.metric, ours, verdict, reason)

    held = ran.get(row.title)
    if held is None:
        return said(Verdict.NOT_RUN)
    if held.record.status not in (Status.OK, Status.DIVERGED):
        return said(Verdict.INCOMPARABLE, f"{held.record.status}: {held.record.reason}")
    try:
        values = _ratios(suite, asked, held, ran) if asked.over else held.values(asked)
    except InputError as error:
        return said(Verdict.INCOMPARABLE, str(error))
    ours = Ours.of(values)
    if number.suspicious:
        return said(Verdict.INCOMPARABLE, f"the paper contradicts itself: {number.note}", ours)
    if asked.unjudged:
        return said(Verdict.INCOMPARABLE, asked.unjudged, ours)
    lost = sum(not math.isfinite(v) for v in values)
    return said(judge(published, allowed, ours), f"{lost} of {len(values)} replicates diverged" if lost else "", ours)


def _ratios(suite: Suite, asked: Published, held: Ran, ran: Mapping[str, Ran]) -> list[float]:
    """Ours per iteration over ours of another number of the suite, replicate by replicate; errors as of ``Ran.values``."""
    row, other = next((r, p) for r in suite.rows for p in r.published if p.pointer == asked.over)
    below = ran.get(row.title)
    if below is None:
        raise InputError(f"{asked.over}, to which it is a ratio, has not been run")
    if below.record.hardware != held.record.hardware:
        raise InputError("the two were measured on different hardware")
    pairs = zip(held.values(asked), below.values(other), strict=False)
    return [(a / held.record.iterations) / (b / below.record.iterations) for a, b in pairs]


def _effects(row: Row, comparisons: Sequence[Comparison], ran: Mapping[str, Ran]) -> list[Effect]:
    """What the change of a row that varies another one changed, number by number of that other one."""
    found = []
    for base in comparisons:
        if row.title in ran and base.row is not None and base.title == row.varies and base.ours is not None:
            asked = next(p for p in base.row.published if p.pointer == base.number.pointer)
            found.append(Effect(row, base, Ours.of(ran[row.title].values(asked))))
    return found
