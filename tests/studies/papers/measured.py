"""What was measured of the papers' rows: read from stores, and stored from one audit to the next.

Some rows take hours, and several machines may share them. The audit therefore writes what its rows gave into
``measured.csv``, which holds means and intervals by protocol, and reads it again the next time: stores add to it, and a
row whose settings or versions have changed no longer has a protocol in it. What no row can change, such as the way a
program is written, a study measures in its place: ``causes.csv`` says which number it turns a published one's into.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path

from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.store import Store
from parvibench.harness.suite.suite import Suite

from .comparison import Effect, SuiteComparison, explained
from .kinds import Beside
from .replicates import Known, Measured, Ours, Ran, measure, measured_once, protocol, protocols  # fmt: skip

#: File that an audit keeps.
KEPT = "measured.csv"


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


def measured_rows(suite: Suite, found: Mapping[str, Ran]) -> dict[str, Measured]:
    """As ``replicates.measure``; of figures, which print no numbers, the metrics at the end of each row."""
    if any(row.published for row in suite.rows):
        return measure(suite, found)
    gave = {}
    for title, key in protocols(suite).items():
        if key in found:
            held = found[key].record
            failed = held.status not in (Status.OK, Status.DIVERGED)
            numbers = {} if failed else _ends(held, suite.metrics or ())
            gave[key] = Measured(title, f"{held.status}: {held.reason}" if failed else "", numbers)
    return gave


def _ends(record: CellRecord, metrics: Iterable[str]) -> dict[str, Ours | str]:
    """Means over the replicates with a finite value."""
    numbers: dict[str, Ours | str] = {}
    for metric in metrics:
        values = record.values.get(metric, [])
        finite = [v for v in values if v is not None and math.isfinite(v)]
        if finite:
            numbers[metric] = replace(Ours.of(measured_once(metric, finite)), lost=len(values) - len(finite))
    return numbers


def combined(kept: Known, new: Known) -> dict[str, Measured]:
    """Stored values, with those measured since."""
    return {**kept, **{key: _updated(kept[key], m) if key in kept else m for key, m in new.items()}}


def _updated(kept: Measured, new: Measured) -> Measured:
    """With the numbers of a later run, except those of fewer replicates."""
    if new.failure:
        return new if kept.failure else kept
    numbers = dict(kept.numbers)
    for name, ours in new.numbers.items():
        held = numbers.get(name)
        if not isinstance(held, Ours) or (isinstance(ours, Ours) and ours.n + ours.lost >= held.n + held.lost):
            numbers[name] = ours
    return Measured(new.row, "", numbers)


def read_kept(folder: Path) -> dict[str, Measured]:
    """Values that an audit has stored; empty where there was none. ``InputError`` where the file is not one of an audit."""
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
        raise InputError(f"{file}: not a table that the audit wrote ({error}); move it away") from None
    return found


def with_changes(found: SuiteComparison, changes: Mapping[str, Beside]) -> SuiteComparison:
    """With what changes by studies make of our numbers, and the causes that they demonstrate."""
    effects = [
        Effect(change.note, base, change.ours)
        for pointer, change in changes.items()
        for base in found.comparisons
        if base.number.pointer == pointer and base.ours is not None
    ]
    return explained(replace(found, effects=(*found.effects, *effects)))


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
