"""Numbers and names as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_MAX_NAME = 80
#: First characters of a text that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@")


def number(value: float | None) -> str:
    """Three significant digits; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 1e-3 <= abs(value) < 999:
        return f"{value:#.3g}".rstrip(".")
    value = float(f"{value:.3g}")
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        digits = 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
        return f"{value:.{digits}f}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def interval(low: float, high: float) -> str:
    """Both ends of an interval, separated by a comma."""
    return f"{number(low)}, {number(high)}"


def name(text: str) -> str:
    """A name for a sentence: printable, at most 80 characters."""
    plain = "".join(c for c in text if c.isprintable()) or "(no name)"
    return plain if len(plain) <= _MAX_NAME else f"{plain[: _MAX_NAME - 1]}…"


def day(moment: str) -> str:
    """The day of an ISO date and time, ``27 November 2026``."""
    found = datetime.fromisoformat(moment)
    return f"{found.day} {found:%B %Y}"


def count(n: int, what: str) -> str:
    """A number of things, ``3 tasks``."""
    return f"{n} {what}{'s' * (n != 1)}"


def join(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 2 else words)


def named(labels: Iterable[str], most: int) -> str:
    """The first names for a sentence, and how many more there are: ``a, b and 3 more``."""
    return first([name(label) for label in labels], most)


def first(words: Sequence[str], most: int) -> str:
    """The first words, and how many more there are."""
    return join([*words[:most], f"{len(words) - most} more"] if len(words) > most else words)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, numbers to seven digits; text that a spreadsheet would run as a formula begins with an apostrophe."""
    from pandas.api.types import is_numeric_dtype

    plain = table.apply(lambda column: column if is_numeric_dtype(column) else column.map(_plain_cell))
    plain.rename(columns=_plain_cell).to_csv(path, index=False, float_format="%.7g")


def _plain_cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = "".join(c if c.isprintable() else " " for c in value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
