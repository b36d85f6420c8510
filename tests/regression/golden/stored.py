"""The stored traces, a line each, and what has moved since."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from .trace import Value, Values

FILE = Path(__file__).with_name("stored_traces.json")
#: Largest relative difference that is rounding.
TOLERANCE = 1e-7
#: Numbers this near are equal: rounding of what is zero.
ZERO = 1e-12


class Moved(NamedTuple):
    """A value that differs from the stored one."""

    label: str  #: of the values; ``step``: the first tensor of the state after every step
    index: int  #: place among the values of the label: of steps, their number
    stored: Value | None  #: None where there was none
    value: Value | None  #: None where there is none now

    @property
    def where(self) -> str:
        """Which value."""
        return f"step {self.index}" if self.label == "step" else f"{self.label} [{self.index}]"

    def __str__(self) -> str:
        return f"{self.where}: {_shown(self.value)}, was {_shown(self.stored)}"


def _shown(value: Value | None) -> str:
    return f"{value:.9g}" if isinstance(value, float | int) else "nothing" if value is None else repr(value)


def load(file: Path | None = None) -> dict[str, Values]:
    """Stored traces by name."""
    return json.loads((file or FILE).read_text("utf-8"))


def write(file: Path, traces: Mapping[str, Values]) -> None:
    """Write the file aside, a trace a line, then put it in place."""
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in sorted(traces.items())]
    aside = file.with_suffix(".tmp")
    aside.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    aside.replace(file)


def differences(stored: Values, now: Values) -> list[Moved]:
    """Every value that has moved, come or gone."""
    return [
        Moved(label, index, before, value)
        for label in {**stored, **now}
        for index, (before, value) in enumerate(zip_longest(stored.get(label, []), now.get(label, [])))
        if not same(before, value)
    ]


def same(a: Value | None, b: Value | None) -> bool:
    """Equal texts, or numbers within rounding."""
    if isinstance(a, float | int) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=ZERO)
    return a == b


def report(name: str, moved: Sequence[Moved]) -> str:
    """What has moved in a trace, first since when, then number by number."""
    first = moved[0]
    since = "" if first.label != "step" else f"from step {first.index} on, " if first.index else "from the start on, "
    head = f"{name}: {since}{len(moved)} {'value has' if len(moved) == 1 else 'values have'} moved"
    return "\n  ".join([head, *map(str, moved)])
