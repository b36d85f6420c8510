"""Progress of a run on stderr: a live bar on a terminal, else a plain line every ten seconds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.store import RunRecord
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import Progress as JobProgress

from .shared import duration

_PLAIN_EVERY_S = 10.0
_MAX_SHOWN = 8
#: Finished cells, fractions included, before a rate is shown.
_FEWEST_FOR_RATE = 0.25


class Display:
    """An observer that shows finished cells, the rate, the running cells, and failures as they occur."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._running: dict[tuple[str, int], dict[str, Any]] = {}
        self._done = self._total = self._cached = 0
        self._last = self._began = 0.0

    def started(self, run: RunRecord, total: int, cached: int) -> None:
        """Start the display, also again: tuning runs in rounds, each with its own number of cells."""
        self._total, self._cached, self._done = total, cached, 0
        self._live = None
        self._running.clear()
        self._began = self._last = time.monotonic()
        counts = f"{total} cells" + (f", {cached} already in the store" if cached else "")
        self._print(f"run {run.id}: {counts}")
        if not self._console.is_terminal or cached == total:
            return
        self._bar = Progress(
            TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
            TimeRemainingColumn(), console=self._console,
        )  # fmt: skip
        self._bar_task = self._bar.add_task("cells", total=total - cached)
        self._live = Live(console=self._console, transient=True, get_renderable=self._render)
        self._live.start()

    def progress(self, progress: JobProgress) -> None:
        """Record a job's progress."""
        key = progress.job.cell.key, progress.job.chunk
        self._running[key] = {**self._running.get(key, {}), "cell": progress.job.cell, **progress.news}
        self._plain_line()

    def finished(self, cell: Cell, record: CellRecord, folder: Path, cached: bool) -> None:
        """Count a cell; print its failure or its flags."""
        for key in [k for k in self._running if k[0] == cell.key]:
            del self._running[key]
        if cached:
            return
        self._done += 1
        if self._live is not None:
            self._bar.update(self._bar_task, advance=1)
        if record.status is not Status.OK:
            first = record.reason.split("\n")[0]
            self._print(f"  {record.status}: {cell.task} x {cell.label}: {first}")
        elif notes := [n for n in (record.reason, *record.flags) if n]:
            self._print(f"  {cell.task} x {cell.label}: {'; '.join(notes)}")
        self._plain_line()

    def ended(self, run: RunRecord) -> None:
        """Stop the display; after an interruption print how to resume."""
        if self._live is not None:
            self._live.stop()
        left = self._total - self._cached - self._done
        if left > 0:
            self._print(f"interrupted: {left} cells left; finished cells are kept, the same command resumes")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _plain_line(self) -> None:
        """Every ten seconds and at the end: finished cells, rate, time left, and the running cells."""
        now = time.monotonic()
        todo = self._total - self._cached
        if self._live is not None or (now - self._last < _PLAIN_EVERY_S and self._done < todo):
            return
        self._last = now
        running = "; ".join(_shown(state) for state in list(self._running.values())[:_MAX_SHOWN])
        shown = f"  now: {running}" if running else ""
        self._print(f"  {self._done}/{todo} cells{self._rate(now)}{shown}")

    def _rate(self, now: float) -> str:
        """Cells per minute and time left; running cells count by the share done."""
        spent = now - self._began
        shares: dict[str, list[float]] = {}
        for (key, _), state in self._running.items():
            shares.setdefault(key, []).append(state["share"])
        done = self._done + sum(sum(v) / max(len(v), 1) for v in shares.values())
        todo = self._total - self._cached
        if done < _FEWEST_FOR_RATE or self._done == todo:
            return ""
        left = spent * (todo - done) / done
        return f", {60 * done / spent:.3g} a minute, about {duration(left)} left"

    def _render(self) -> Table:
        grid = Table.grid()
        grid.add_row(self._bar)
        for state in list(self._running.values())[:_MAX_SHOWN]:
            grid.add_row(Text(f"  {_shown(state)}"))
        return grid


def _shown(state: dict[str, Any]) -> str:
    cell, value = state["cell"], state.get("value")
    metric = "" if value is None else f" {state['metric']} {value:.3g}"
    return f"{cell.task} x {cell.label} {100 * state['share']:.0f}%{metric}"
