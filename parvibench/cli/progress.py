"""Progress on stderr: a live bar on a terminal, else a plain line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from parvibench import api
from parvibench.api.listing import count as counted

from . import shared
from .shared import duration

_PLAIN_EVERY_S = 10.0
_MAX_SHOWN = 8
_MOST_FAILURES = 20  # that are printed: a log of thousands of cells would hold little else
#: Time, s, and work that must have been done before a rate is shown.
_FEWEST_S, _FEWEST = 1.0, 0.25


class progress:
    """A context manager whose value is called with what is being done, how much is done, and how much there is."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or shared.console
        what, count, left = (
            TextColumn(f"{{task.{text}}}", markup=False) for text in ("description", "fields[count]", "fields[left]")
        )
        self._bar = Progress(what, BarColumn(), count, TimeElapsedColumn(), left, console=self._console)
        self._row = self._bar.add_task("", total=None, count="", left="")
        self._line, self._printed, self._below = "", "", list[str]()
        self._live = Live(console=self._console, transient=True, get_renderable=self._render)
        self._last = self._began = time.monotonic()
        self._total = self._done = self._first = -1.0

    def __enter__(self) -> progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __call__(
        self, text: str, done: float, total: float, below: Sequence[str] = (), finished: int | None = None
    ) -> None:
        """Update the display; ``below`` are lines under the bar, fractions of ``done`` count in the bar and the rate.

        The number shown is ``finished``, by default that of ``done``.
        """
        now = time.monotonic()
        if total != self._total or done < self._done:  # another kind of work
            self._total, self._first, self._began = total, done, now
        self._done, self._below = done, list(below[:_MAX_SHOWN])
        rate, left = self._rate(now)
        count = f"{int(done) if finished is None else finished}{f'/{total:g}' if total else ''}"
        self._bar.update(
            self._row, description=f"{text:<44.44}", completed=done, total=total or None, count=count, left=left
        )
        running = "; ".join(self._below)
        self._line = f"  {count} {text}{rate}{left and f', {left}'}{running and f'  now: {running}'}"
        if now - self._last >= _PLAIN_EVERY_S:
            self.print_line()

    def _rate(self, now: float) -> tuple[str, str]:
        """Work per minute and time left, as text; empty before they are known and at the end."""
        done, spent, todo = self._done - self._first, now - self._began, self._total - self._done
        if spent < _FEWEST_S or done < _FEWEST or todo <= 0:
            return "", ""
        return f", {60 * done / spent:.3g} a minute", f"about {duration(spent * todo / done)} left"

    def print_line(self) -> None:
        """Print the plain line now, unless there is a live bar."""
        self._last = time.monotonic()
        if not self._console.is_terminal and self._line != self._printed:
            self.print(self._line)
            self._printed = self._line

    def print(self, text: str) -> None:
        """Print a line above the display."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _render(self) -> Group:
        return Group(self._bar, *(Text(f"  {line}") for line in self._below))

    def __exit__(self, *_: object) -> None:
        self._live.stop()


class Display:
    """An observer of runs that shows finished and running cells, and prints the first failures as they occur."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._running: dict[tuple[str, int], dict[str, Any]] = {}
        self._done = self._todo = 0

    def started(self, run: api.run.RunRecord, total: int, cached: int) -> None:
        """Start the display, also again: tuning runs in rounds, each with its own number of cells."""
        self._todo, self._done, self._shown, self._printed, self._unprinted = total - cached, 0, 0.0, 0, 0
        self._running.clear()
        self._show = progress(self._console)
        there = f", {cached} already in the store" if cached else ""
        self._show.print(f"run {run.id}: {counted(total, 'cell')}{there}")
        if self._todo:
            self._show.__enter__()
            self._update()

    def progress(self, job: api.run.ChunkJob, news: api.run.News) -> None:
        """Record a checkpoint of a running job."""
        key = job.cell.key, job.chunk
        self._running[key] = {**self._running.get(key, {}), "cell": job.cell, **news}
        self._update()

    def finished(self, cell: api.run.Cell, record: api.run.CellRecord, folder: Path, cached: bool) -> None:
        """Count a cell; print its failure."""
        for key in [k for k in self._running if k[0] == cell.key]:
            del self._running[key]
        if cached:
            return
        self._done += 1
        if record.status.failed and self._printed < _MOST_FAILURES:
            self._printed += 1
            reason = record.reason.partition("\n")[0]
            self._show.print(f"  {record.status}: {cell.task} x {cell.label}: {reason}")
        elif record.status.failed:
            self._unprinted += 1
        self._update()
        if self._done == self._todo:
            self._show.print_line()

    def ended(self, run: api.run.RunRecord) -> None:
        """Stop the display; after an interruption print how to resume."""
        self._show.__exit__()
        if self._unprinted:
            cells = counted(self._unprinted, "cell")
            self._show.print(f"  {cells} more failed; `parvibench report` lists them")
        if left := self._todo - self._done:
            self._show.print(
                f"interrupted: {counted(left, 'cell')} left; the same command resumes from the finished cells"
            )

    def _update(self) -> None:
        """Running cells count by the share that is done; the count never falls when a chunk begins."""
        shares: dict[str, list[float]] = {}
        for (key, _), state in self._running.items():
            shares.setdefault(key, []).append(state["share"])
        self._shown = max(self._shown, self._done + sum(sum(v) / len(v) for v in shares.values()))
        running = [_described(state) for state in self._running.values()]
        self._show("cells", self._shown, self._todo, running, self._done)


def _described(state: dict[str, Any]) -> str:
    cell, value = state["cell"], state.get("value")
    metric = "" if value is None else f" {state['metric']} {value:.3g}"
    return f"{cell.task} x {cell.label} {100 * state['share']:.0f}%{metric}"
