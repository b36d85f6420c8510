"""A run's results in Python: the leaderboard as a table, figures, and the notebook view."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd

from parvibench.core.errors import InputError
from parvibench.core.result import Status

from .facts import board as lb
from .facts.run import Facts
from .formatting import count
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
        from .page.report import drawings

        return {drawing.name: drawing for drawing in drawings(self)}

    @property
    def failures(self) -> pd.DataFrame:
        """Cells that failed, lost replicates or were not run: columns ``task``, ``label``, ``status``, ``reason``."""
        lost = [c for c in self.cells if c.status is not Status.OK or c.n_diverged]
        rows = [(c.task, c.label, str(c.status), c.reason) for c in lost]
        return pd.DataFrame(rows, columns=["task", "label", "status", "reason"])

    def __repr__(self) -> str:
        first = [f"\n  {r.status}: {r.label} on {r.task}: {r.reason:.200}" for r in self.failures.head(10).itertuples()]
        size = f"{count(len({c.label for c in self.cells}), 'method')} x {count(len(self.by_task), 'task')}"
        counts = f"{size}; {marks.by_status(self.cells) or 'no cells'}"
        return f"Results({self.run.id!r} in {str(self.store.root)!r}: {counts}){''.join(first)}"

    def _repr_markdown_(self) -> str:
        """The leaderboard as a notebook shows it; all text of others is escaped."""
        from .page.text_tables import to_markdown

        return to_markdown(self)
