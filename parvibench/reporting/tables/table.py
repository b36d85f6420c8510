"""A table: columns, rows, and entries with their text, sort key and style."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from parvibench.reporting.formatting import interval, number

#: Group of what summarises tasks of several groups: hidden when one group is selected.
ALL_GROUPS = "*"
#: As the page's script reads it.
_FIRST_NUMBER = re.compile(r"-?(\d[\d,]*)?\.?\d+(e[+-]?\d+)?")


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str  #: heading
    help: str = ""  #: explanation shown on hovering
    numeric: bool = True  #: whether its entries are numbers
    group: str = ""  #: group of the task it shows, for filtering; ``ALL_GROUPS`` where it shows several
    sub: str = ""  #: small print below the title
    more: bool = False  #: whether a compact page leaves it out


class Entry(NamedTuple):  # a page has hundreds of thousands
    """One cell of a table."""

    text: str  #: as shown
    sort: str = ""  #: number to sort by, or empty to sort by the text
    look: str = ""  #: CSS classes
    help: str = ""  #: shown on hovering
    note: str = ""  #: small print after the text
    own: tuple[Entry, ...] = ()  #: what stands here among the methods of the row's kind alone, and of its division

    @property
    def shows_sort(self) -> bool:
        """Whether the number to sort by is the one shown, to three digits."""
        shown = _FIRST_NUMBER.match(self.text)
        if not (shown and self.sort):
            return False
        number, wanted = float(shown[0].replace(",", "")), float(self.sort)
        return math.isclose(number, wanted, rel_tol=0.005)


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    entries: tuple[Entry, ...]  #: one per column; the first names the row
    kind: str = ""  #: of the method, for filtering
    look: str = ""  #: CSS classes


@dataclass(frozen=True)
class Table:
    """A sortable table."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def fragment(kind: str, title: str) -> str:
    """The id of a section, safe for any title."""
    return f"{kind}-{hashlib.sha256(title.encode()).hexdigest()[:12]}"


def method(label: str, *, anchor: bool = False) -> Entry:
    """Entry with the name of a method."""
    return Entry(label, look="anchor" if anchor else "", help="anchor: not ranked" if anchor else "")


def numeric(value: float | None, look: str = "", help: str = "", note: str = "") -> Entry:
    """Entry with a number; empty for None or NaN."""
    if value is None or math.isnan(value):
        return Entry("", look=look, help=help)
    return Entry(number(value), sortable(value), look, help, note=note)


def estimate(value: float, low: float, high: float, look: str = "") -> Entry:
    """Entry with a number and its interval."""
    return Entry(f"{number(value)} [{interval(low, high)}]", sortable(value), look)


def whole(value: float) -> Entry:
    """Entry with a count and thousands separators."""
    return Entry(f"{value:,.0f}", sortable(value)) if math.isfinite(value) else Entry("")


def sortable(value: float) -> str:
    """A number as JavaScript reads it, to six digits; empty for NaN."""
    return "" if math.isnan(value) else f"{value:.6g}".replace("inf", "Infinity")
