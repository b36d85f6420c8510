"""The stored traces, and what has moved since.

One JSON file with a line for each trace: its values by label, and the modules that it runs through. The lines are what a
reviewer reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import zip_longest
from pathlib import Path

import torch

from parvibench.core.errors import InputError

from .catalogue import Subject, Taken
from .trace import Value

FORMAT = 1
#: Largest relative difference that is rounding.
TOLERANCE = 1e-7
#: Numbers this near are equal: rounding of what is zero.
_ZERO = 1e-12


@dataclass(frozen=True)
class MovedTrace:
    """Where a trace first differs from the stored one."""

    trace: str  #: its name
    label: str  #: of the values that differ first; ``step``: the first tensor of the state after every step
    index: int  #: place among the values of the label: of steps, their number
    stored: Value | None  #: None where there was none
    value: Value | None  #: None where there is none now
    modules: tuple[str, ...]  #: of this package, that the stored trace ran through

    @property
    def where(self) -> str:
        """Since when, or at which value."""
        if self.label == "step":
            return f"from step {self.index} on" if self.index else "from the start on"
        return f"{self.label} [{self.index}]" if self.label else "the whole trace"


@dataclass(frozen=True)
class Compared:
    """Outcome of a comparison."""

    count: int  #: traces taken
    moved: list[MovedTrace]
    new: list[str]  #: names without a stored trace


def shipped() -> Traversable:
    """The file that comes with the package."""
    return files("parvibench.checks.traces") / "stored_traces.json"


def load(file: Path | None = None) -> dict[str, Taken]:
    """Stored traces, by default the package's own; none where the file is not there.

    Raises:
        InputError: it holds something else.
    """
    path = file or shipped()
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}")
        return {name: Taken(line["values"], line["modules"]) for name, line in document["traces"].items()}
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: no traces of format {FORMAT}; make them again: parvibench check --update ({error})"
        ) from None


def write(file: Path, traces: Mapping[str, Taken]) -> None:
    """Write the file aside, a trace a line, then put it in place."""
    made = {"parvibench": version("parvibench"), "torch": torch.__version__}
    lines = [
        f"{json.dumps(name)}: {json.dumps({'values': t.values, 'modules': t.modules})}"
        for name, t in sorted(traces.items())
    ]
    text = f'{{"format": {FORMAT}, "made": {json.dumps(made)}, "traces": {{\n' + ",\n".join(lines) + "\n}}\n"
    aside = file.with_suffix(".tmp")
    aside.write_text(text)
    aside.replace(file)


def compare(
    stored: Mapping[str, Taken], found: Mapping[str, Taken], chosen: Sequence[Subject] | None = None
) -> Compared:
    """What has moved; traces that are gone have moved, with ``chosen`` subjects only theirs."""
    moved = [m for name, now in found.items() if name in stored and (m := first_difference(name, stored[name], now))]
    for name in stored.keys() - found.keys():
        if chosen is None or any(subject.owns(name) for subject in chosen):
            moved.append(MovedTrace(name, "", 0, "traced", None, _modules(stored[name])))
    return Compared(len(found), sorted(moved, key=lambda m: m.trace), [name for name in found if name not in stored])


def merged(stored: Mapping[str, Taken], found: Mapping[str, Taken], gone: Iterable[str]) -> dict[str, Taken]:
    """The traces to store after an update of some."""
    lost = set(gone)
    return {name: t for name, t in stored.items() if name not in lost} | dict(found)


def first_difference(name: str, stored: Taken, now: Taken) -> MovedTrace | None:
    """Where values first differ, or None."""
    for label in now.values if "error" in now.values else {**stored.values, **now.values}:
        pairs = zip_longest(stored.values.get(label, []), now.values.get(label, []))
        for index, (before, value) in enumerate(pairs):
            if not same(before, value):
                return MovedTrace(name, label, index, before, value, _modules(stored))
    return None


def same(a: Value | None, b: Value | None) -> bool:
    """Equal texts, or numbers within rounding."""
    if isinstance(a, float | int) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=_ZERO)
    return a == b


def _modules(stored: Taken) -> tuple[str, ...]:
    return tuple(stored.modules.split())
