"""The rows of a table as HTML: a page has hundreds of thousands of entries, too many for a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from parvibench.reporting.tables.table import Column, Entry, Row, Table

if TYPE_CHECKING:
    from markupsafe import Markup

_MAX_NAME = 200


def cut(text: str) -> str:
    """The text, at most 200 characters of it."""
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"


def table_rows(table: Table, look: str, links: Mapping[str, str], *, compact: bool) -> Markup:
    """The rows in the body of a table of that look, all text escaped.

    ``links``: text of an entry -> fragment that it links to, where it names none itself. ``compact`` leaves columns out
    that are marked ``more``.
    """
    from markupsafe import Markup, escape

    def attribute(name: str, value: str) -> str:
        return f' {name}="{escape(value)}"' if value else ""

    def entry_of(entry: Entry, column: Column, tag: str) -> str:
        # The script writes into <bdi>, and aligns by data-v; numbers that it leaves alone need neither. HTML wants no </td>.
        plain = bool(entry.sort or not entry.text) and not entry.link and not entry.own and look != "matrix"
        classes = f"{entry.look} n".strip() if column.numeric and not plain else entry.look
        own = "|".join(f"{o.text}|{o.look}" for o in entry.own)
        key = " data-v" if not own and entry.shows_sort else attribute("data-v", entry.sort)
        text = str(escape(entry.text)) if plain else f"<bdi>{escape(cut(entry.text))}</bdi>"
        if link := entry.link or links.get(entry.text, ""):
            text = f'<a href="#{escape(link)}">{text}</a>'
        return (
            f"<{tag}{attribute('class', classes)}{attribute('data-group', column.group)}{key}{attribute('data-own', own)}"
            f"{attribute('title', entry.help)}{attribute('data-title', column.title if look == 'winners' else '')}>{text}"
            + (f" <small>{escape(cut(entry.note))}</small>" if entry.note else "")
        )

    def row_of(row: Row) -> str:
        shown = enumerate(zip(row.entries, table.columns, strict=True))
        entries = [entry_of(e, c, "td" if i else "th scope=row") for i, (e, c) in shown if not (compact and c.more)]
        named = ("class", row.look), ("data-kind", row.kind), ("data-group", row.group)
        return f"<tr{''.join(attribute(*n) for n in named)}>\n" + "".join(entries)

    return Markup("\n".join(map(row_of, table.rows)))
