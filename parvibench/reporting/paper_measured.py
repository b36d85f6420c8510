"""What was measured of the papers' rows: read from stores, and kept from one audit to the next.

Some rows take hours, and several machines may share them. The audit therefore writes what its rows gave into
``measured.csv``, which holds means and intervals by protocol, and reads it again the next time: stores add to it, and a
row whose settings or versions have changed no longer has a protocol in it. What no row can change, such as the way a
program is written, a study measures beside it: ``causes.csv`` says which number it turns a published one's into.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
from scipy import stats

from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, CellSpec, Status
from parvibench.harness.store.results import checkpoint_values, metric_values
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.entries import Published, Row
from parvibench.harness.suite.suite import Suite

from .published import numbers

LEVEL = 0.95
#: What of a specification the comparison leaves open: how often and where a row is run, and what else is kept of it.
_OPEN = {"replicates", "seed", "chunk", "device", "compiled", "source", "key", "trajectories"}
#: File that an audit keeps.
KEPT = "measured.csv"
#: File of a study's changes that it reads: pointer, mean, low, high, n, reason.
CAUSES = "causes.csv"


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
        return [asked.factor * v for v in _measured_once(metric, values)]

    def ratios(self, asked: Published, below: Ran, number: Published) -> list[float]:
        """Its number per iteration over another one's, replicate by replicate; errors as of ``values``."""
        if below.record.hardware != self.record.hardware:
            raise InputError("the two were measured on different hardware")
        pairs = zip(self.values(asked), below.values(number), strict=False)
        return [(a / self.record.iterations) / (b / below.record.iterations) for a, b in pairs]


@dataclass(frozen=True)
class Measured:
    """What a row gave."""

    row: str  #: its title
    failure: str  #: why it has no numbers; empty where it has
    numbers: Mapping[str, Ours | str]  #: by ``question``; a reason where there is none

    def updated(self, new: Measured) -> Measured:
        """With the numbers of a later run, except those of fewer replicates."""
        if new.failure:
            return new if self.failure else self
        numbers = dict(self.numbers)
        for name, ours in new.numbers.items():
            held = numbers.get(name)
            if not isinstance(held, Ours) or (isinstance(ours, Ours) and ours.n + ours.lost >= held.n + held.lost):
                numbers[name] = ours
        return Measured(new.row, "", numbers)


@dataclass(frozen=True)
class Change:
    """What our number becomes by a change that no row of a suite can make."""

    pointer: str  #: of the published number
    changed: Ours
    reason: str  #: what is changed


#: What is known by protocol.
Known = Mapping[str, Measured]


def question(asked: Published) -> str:
    """What a number asks of a row, in words that differ where the answers do."""
    at = f" at {asked.checkpoint}" if asked.checkpoint else ""
    times = f" times {asked.factor:g}" if asked.factor != 1 else ""
    return f"{asked.metric}{at}{times}{f' over {asked.over}' if asked.over else ''}"


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
    """Digits that two specifications share which differ only in how often and where they are run."""
    text = json.dumps(spec.model_dump(mode="json", exclude=_OPEN), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def protocols(suite: Suite) -> dict[str, str]:
    """Protocol of every row, by title."""
    return {row.title: protocol(cell.spec) for row, cell in zip(suite.rows, expand(suite), strict=True)}


def measure(suite: Suite, found: Mapping[str, Ran]) -> dict[str, Measured]:
    """What the rows of a suite gave, by protocol, from results by protocol."""
    by_title = protocols(suite)
    ran = {title: found[key] for title, key in by_title.items() if key in found}
    return {by_title[row.title]: _measured(suite, row, ran) for row in suite.rows if row.title in ran}


def _measured(suite: Suite, row: Row, ran: Mapping[str, Ran]) -> Measured:
    held = ran[row.title]
    if held.record.status not in (Status.OK, Status.DIVERGED):
        return Measured(row.title, f"{held.record.status}: {held.record.reason}", {})
    if not any(r.published for r in suite.rows):  # figures print no numbers
        return Measured(row.title, "", _ends(held.record, suite.metrics or ()))
    bases = [r for r in suite.rows if r.title == row.varies]
    asked = [p for r in (row, *bases) for p in r.published]
    return Measured(row.title, "", {question(p): _answer(suite, p, held, ran) for p in asked})


def _ends(record: CellRecord, metrics: Iterable[str]) -> dict[str, Ours | str]:
    """Means over the replicates with a finite value."""
    numbers: dict[str, Ours | str] = {}
    for metric in metrics:
        values = record.values.get(metric, [])
        finite = [v for v in values if v is not None and math.isfinite(v)]
        if finite:
            numbers[metric] = replace(Ours.of(_measured_once(metric, finite)), lost=len(values) - len(finite))
    return numbers


def _measured_once(metric: str, values: Sequence[float]) -> list[float]:
    """The values, of times one for each chunk: its replicates share them evenly, and say nothing of how they vary."""
    return list(dict.fromkeys(values)) if metric == "seconds" else list(values)


def _answer(suite: Suite, asked: Published, held: Ran, ran: Mapping[str, Ran]) -> Ours | str:
    try:
        if not asked.over:
            return Ours.of(held.values(asked))
        row, number = next((r, p) for r in suite.rows for p in r.published if p.pointer == asked.over)
        if row.title not in ran:
            return f"{asked.over}, to which it is a ratio, has not been run"
        return Ours.of(held.ratios(asked, ran[row.title], number))
    except InputError as error:
        return str(error)


def combined(kept: Known, new: Known) -> dict[str, Measured]:
    """What was kept, with what was measured since."""
    return {**kept, **{key: kept[key].updated(m) if key in kept else m for key, m in new.items()}}


def read_kept(folder: Path) -> dict[str, Measured]:
    """What an audit has kept; empty where there was none. ``InputError`` where the file is not one of an audit."""
    file = folder / KEPT
    if not file.is_file():
        return {}
    found: dict[str, Measured] = {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            for line in csv.DictReader(lines):
                held = found.setdefault(line["protocol"], Measured(line["row"], "", {}))
                if not line["question"]:
                    found[line["protocol"]] = replace(held, failure=line["reason"])
                    continue
                answer = line["reason"] or Ours(
                    float(line["mean"]), float(line["low"]), float(line["high"]), int(line["n"]), int(line["lost"])
                )
                found[line["protocol"]] = replace(held, numbers={**held.numbers, line["question"]: answer})
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(f"{file}: not a table that `parvibench papers` wrote ({error}); move it away") from None
    return found


def read_changes(folder: Path) -> list[Change]:
    """What a study has measured; empty where none has. ``InputError`` where the file is not one of a study."""
    file = folder / CAUSES
    if not file.is_file():
        return []
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            found = [
                Change(
                    line["pointer"],
                    Ours(float(line["mean"]), float(line["low"]), float(line["high"]), int(line["n"])),
                    line["reason"],
                )
                for line in csv.DictReader(lines)
            ]
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(f"{file}: not a table of pointer, mean, low, high, n and reason ({error})") from None
    unknown = [change.pointer for change in found if change.pointer not in numbers()]
    if unknown:
        raise InputError(f"{file}: {unknown[0]} is no published number")
    return found


def write_kept(folder: Path, measured: Known) -> None:
    """Write what is measured, a line for each number."""
    columns = ("protocol", "row", "question", *(f.name for f in fields(Ours)), "reason")
    with (folder / KEPT).open("w", encoding="utf-8", newline="") as file:
        lines = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        lines.writeheader()
        for key, m in sorted(measured.items(), key=lambda item: (item[1].row, item[0])):
            head = {"protocol": key, "row": m.row}
            if m.failure:
                lines.writerow({**head, "reason": m.failure})
            for name, ours in m.numbers.items():
                lines.writerow(
                    {**head, "question": name, **({"reason": ours} if isinstance(ours, str) else asdict(ours))}
                )
