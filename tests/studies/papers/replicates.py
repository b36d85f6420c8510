"""Results of the rows of a paper's suite: means and intervals in the paper's unit, by protocol."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, CellSpec, Status
from parvibench.harness.store.results import metric_values
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.entries import Published, Row
from parvibench.harness.suite.suite import Suite

from . import paper_words

LEVEL = 0.95
_OPEN = {"replicates", "seed", "chunk", "device", "compiled", "source", "key", "trajectories"}  #: by the comparison


@dataclass(frozen=True)
class Ours:
    """A mean over replicates, in the paper's unit."""

    mean: float
    low: float
    high: float
    n: int  #: replicates in the mean
    lost: int = 0  #: replicates without a finite value

    @classmethod
    def of(cls, values: Sequence[float]) -> Ours:
        """The mean with its interval by Student; infinite of one replicate, or where one has no finite value."""
        n, mean = len(values), float(np.mean(values))
        lost = sum(not math.isfinite(v) for v in values)
        if n < 2 or lost:
            return cls(mean, -math.inf, math.inf, n, lost)
        half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
        return cls(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Ran:
    """A result and its store."""

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
            stopped = len(set(record.diverged) - set(rows["replicate"])) if len(rows) else 0
            values = metric_values(metric, [*rows["value"], *[None] * stopped])
        if not values:
            raise InputError(record.absent.get(metric, paper_words.NOTHING_THERE.format(metric=metric)))
        return [asked.factor * v for v in measured_once(metric, values)]

    def ratios(self, asked: Published, below: Ran, number: Published) -> list[float]:
        """Its number per iteration over another one's, replicate by replicate; errors as of ``values``."""
        if below.record.hardware != self.record.hardware:
            raise InputError(paper_words.OTHER_HARDWARE)
        pairs = zip(self.values(asked), below.values(number), strict=False)
        return [(a / self.record.iterations) / (b / below.record.iterations) for a, b in pairs]


@dataclass(frozen=True)
class Measured:
    """The results of a row."""

    row: str  #: its title
    failure: str  #: why it has no numbers; empty where it has
    numbers: Mapping[str, Ours | str]  #: by ``question``; a reason where there is none


#: What is known by protocol.
Known = Mapping[str, Measured]


def question(asked: Published) -> str:
    """Key of the quantity that a published number is compared with."""
    at = f" at {asked.checkpoint}" if asked.checkpoint else ""
    times = f" times {asked.factor:g}" if asked.factor != 1 else ""
    return f"{asked.metric}{at}{times}{f' over {asked.over}' if asked.over else ''}"


def protocol(spec: CellSpec) -> str:
    """Digits that two specifications share which differ only in how often and where they are run."""
    left_out = _OPEN | ({"start"} if spec.start == "task" else set())  # newer than what audits have stored
    text = json.dumps(spec.model_dump(mode="json", exclude=left_out), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def protocols(suite: Suite) -> dict[str, str]:
    """Protocol of every row, by title."""
    return {row.title: protocol(cell.spec) for row, cell in zip(suite.rows, expand(suite), strict=True)}


def measure(suite: Suite, found: Mapping[str, Ran]) -> dict[str, Measured]:
    """Results of the rows of a suite by protocol, from stored results by protocol."""
    by_title = protocols(suite)
    ran = {title: found[key] for title, key in by_title.items() if key in found}
    return {by_title[row.title]: _measured(suite, row, ran) for row in suite.rows if row.title in ran}


def _measured(suite: Suite, row: Row, ran: Mapping[str, Ran]) -> Measured:
    held = ran[row.title]
    if held.record.status not in (Status.OK, Status.DIVERGED):
        return Measured(row.title, paper_words.FAILURE.format(status=held.record.status, reason=held.record.reason), {})
    bases = [r for r in suite.rows if r.title == row.varies]
    asked = [p for r in (row, *bases) for p in r.published]
    return Measured(row.title, "", {question(p): _answer(suite, p, held, ran) for p in asked})


def measured_once(metric: str, values: Sequence[float]) -> list[float]:
    """The values, of times one for each chunk: its replicates share them evenly, and say nothing of how they vary."""
    return list(dict.fromkeys(values)) if metric == "seconds" else list(values)


def _answer(suite: Suite, asked: Published, held: Ran, ran: Mapping[str, Ran]) -> Ours | str:
    try:
        if not asked.over:
            return Ours.of(held.values(asked))
        row, number = next((r, p) for r in suite.rows for p in r.published if p.pointer == asked.over)
        if row.title not in ran:
            return paper_words.NO_DENOMINATOR.format(pointer=asked.over)
        return Ours.of(held.ratios(asked, ran[row.title], number))
    except InputError as error:
        return str(error)
