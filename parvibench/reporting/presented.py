"""A run's results in Python: the leaderboard as a table, figures, and the notebook view."""

from __future__ import annotations

import html
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd

from parvibench.core.errors import InputError

from .facts import board as lb
from .facts.averages import by_method
from .facts.run import Facts
from .text import marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .figures.figure import Drawing

_FIRST = ("task", "rank", "label", "status", "shown", "quantity", "value", "value_low", "value_high", "verdict")


@dataclass(frozen=True, repr=False)
class Results(Facts):
    """The cells of one run, in the requested order."""

    def leaderboard(self) -> pd.DataFrame:
        """The leaderboard with one row per cell: the best first on each task, anchors last.

        ``shown`` is the text of the terminal; ``value`` its number, in ``quantity`` (floors where there is a ratio to the
        noise floor, else the primary metric), with the 95% interval ``value_low``, ``value_high``; ``rank``, ``verdict``.
        Then the raw columns of ``leaderboard.csv``: ``median``, ``low``, ``high``, ``equivalent``, cost, and every metric's
        median.
        """
        board, rows = self.board, self.board.to_dict("records")
        found = [lb.shown_interval(row) for row in rows]
        values = pd.DataFrame(found, columns=["value", "value_low", "value_high"], index=board.index, dtype=float)
        quantity = board["metric"].where(board["floor_ratio"].isna(), board["metric"] + " over its floor")
        shown = pd.Series([lb.entry(row) for row in rows], index=board.index, dtype="str")
        whole = board.assign(shown=shown, quantity=quantity, **values)
        return whole[[*_FIRST, *(c for c in whole if c not in _FIRST)]]

    def figures(self) -> list[str]:
        """The names of all figures of the report, for ``plot`` and ``parvibench report --figure``."""
        return list(self._drawn)

    def plot(self, figure: str = "*") -> dict[str, Figure]:
        """Matplotlib figures of the report by name; ``figure`` is a name or a pattern such as ``curve-banana-*``.

        Raises:
            InputError: no figure's name fits.
        """
        from .figures.plots import as_figure

        found = {name: as_figure(d) for name, d in self._drawn.items() if fnmatch(name, figure)}
        if not found:
            raise InputError(f"no figure fits {figure!r}; there are {', '.join(self._drawn) or 'none'}")
        return found

    @cached_property
    def _drawn(self) -> dict[str, Drawing]:
        from .page.report_files import drawn

        return drawn(self)

    def __repr__(self) -> str:
        return f"Results({self.run.id!r} in {str(self.store.root)!r}: {self._counts})"

    @property
    def _counts(self) -> str:
        methods = len({c.label for c in self.cells})
        return f"{methods} methods x {len(self.by_task)} tasks; {marks.by_status(self.cells) or 'no cells'}"

    def _repr_html_(self) -> str:
        """The leaderboard as tables, methods by tasks; all text of others is escaped."""
        board = self.board
        methods = list(by_method(board))
        parts = [f"<p>{html.escape(self.run.id)}: {html.escape(self._counts)}</p>"]
        for group in lb.groups(board):
            head = "".join(f"<th>{html.escape(t)}</th>" for t in ("method", *group.tasks))
            parts.append(f"<table><caption>{html.escape(group.title)}</caption><thead><tr>{head}</tr></thead><tbody>")
            for label, rank, rows in methods:
                name = f"<i>{html.escape(label)}</i>" if rank["anchor"] else html.escape(label)
                cells = "".join(f"<td>{_cell(rows[task]) if task in rows else ''}</td>" for task in group.tasks)
                parts.append(f"<tr><td>{name}</td>{cells}</tr>")
            parts.append("</tbody></table>")
        parts += [f"<p>{html.escape(mark)}</p>" for mark in lb.marks_used(board)]
        return "".join(parts)


def _cell(row: lb.Row) -> str:
    text = html.escape(lb.entry(row))
    return f"<b>{text}</b>" if row["best"] else text
