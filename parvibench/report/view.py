"""What a page is made of: tables of entries that know how they look and how they sort."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from .numbers import number


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its name.
        help: what it means.
        numeric: whether its entries are numbers.
        group: of the task that it shows, for filtering.
        sub: small print below the title.
    """

    title: str
    help: str = ""
    numeric: bool = True
    group: str = ""
    sub: str = ""


@dataclass(frozen=True)
class Entry:
    """A table's entry.

    Attributes:
        text: as shown.
        sort: number to sort by, or empty to sort by the text.
        look: names of CSS classes.
        help: shown on hovering.
        link: fragment that it leads to.
        note: small print after the text.
    """

    text: str
    sort: str = ""
    look: str = ""
    help: str = ""
    link: str = ""
    note: str = ""


@dataclass(frozen=True)
class Row:
    """A table's row; the first entry names it.

    Attributes:
        entries: one per column.
        kind: of the method, for filtering.
        group: of the task, for filtering.
        look: names of CSS classes.
    """

    entries: tuple[Entry, ...]
    kind: str = ""
    group: str = ""
    look: str = ""


@dataclass(frozen=True)
class Table:
    """A sortable table."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def fragment(kind: str, title: str) -> str:
    """A link's target that any name fits."""
    return f"{kind}-{hashlib.sha256(title.encode()).hexdigest()[:12]}"


def method(label: str, *, anchor: bool = False) -> Entry:
    """The name of a method."""
    return Entry(label, look="anchor" if anchor else "", help="anchor: not ranked" if anchor else "")


def numeric(value: float | None, look: str = "", help: str = "", note: str = "") -> Entry:
    """A number; empty for none."""
    if value is None or math.isnan(value):
        return Entry("", look=look, help=help)
    return Entry(number(value), sortable(value), look, help, note=note)


def whole(value: float) -> Entry:
    """A count, with separators."""
    return Entry(f"{value:,.0f}", sortable(value)) if math.isfinite(value) else Entry("")


def setting(value: float | None) -> Entry:
    """A setting: as many digits as it has, up to three."""
    return Entry("") if value is None or math.isnan(value) else Entry(f"{value:.3g}", sortable(value))


def p_value(p: float) -> Entry:
    """A p-value; small ones as a bound."""
    if math.isnan(p):
        return Entry("")
    return Entry("< 0.001" if p < 0.001 else f"{p:.3f}", sortable(p), "strong" if p <= 0.05 else "")


def sortable(value: float) -> str:
    """A number that JavaScript reads."""
    return "" if math.isnan(value) else str(float(value)).replace("inf", "Infinity")
