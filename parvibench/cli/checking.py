"""The command ``check``: whether a sampler has got worse."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer import Option

from parvibench.core.errors import InputError

from . import shared
from .shared import EXIT_FAILED, EXIT_USAGE, Json, answer, console, duration, warn

if TYPE_CHECKING:
    from parvibench.checks.rounds import CheckResult
    from parvibench.checks.selection import Selection

app = typer.Typer()
#: Time between two plain lines, s.
_PLAIN_EVERY_S = 10.0


@app.command(
    epilog="Examples:\n\n"
    "`parvibench check`\n\n"
    "`parvibench check --algorithm svgd --algorithm ula --junit check.xml`\n\n"
    "`parvibench check --algorithm mypackage.samplers:MySampler` (known truth only: no baseline needed)\n\n"
    "`parvibench check --update` (after an intended change of results, or for new cells)"
)
def check(
    suite: Annotated[
        list[str] | None,
        Option(
            help="Suites whose cells are compared with the past; default: ci and ci-networks.",
            autocompletion=shared.names_of("suite"),
        ),
    ] = None,
    baseline: Annotated[Path | None, Option(help="File of the stored past; default: the package's own.")] = None,
    traces: Annotated[Path | None, Option(help="File of the stored traces; default: the package's own.")] = None,
    algorithm: Annotated[
        list[str] | None,
        Option(
            "--algorithm",
            "-a",
            help="Only these labels; or your own, module:Class or file.py:Class.",
            autocompletion=shared.names_of("algorithm"),
        ),
    ] = None,
    task: shared.Tasks = None,
    oracle: Annotated[
        Literal["all", "traces", "past", "truth"],
        Option(help="Compare with stored traces, with the stored past, with known truth, or with all."),
    ] = "all",
    setting: shared.Settings = None,
    iterations: Annotated[int, Option(min=1, help="Of a sampler of your own.")] = 500,
    allow_diverged: Annotated[
        float, Option(min=0, max=1, help="Share of points of a sampler of your own that may be not finite.")
    ] = 0.0,
    update: Annotated[bool, Option(help="Make the baseline again, after showing the differences.")] = False,
    workers: Annotated[int | None, Option(help="Processes; 0: none but this one. Default: one per CPU.")] = None,
    seed: Annotated[
        int | None, Option(help="Of all fresh replicates; default: drawn, and printed; 1 for your own.")
    ] = None,
    junit: Annotated[Path | None, Option(help="Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, Option(help="Write a Markdown summary (appended).")] = None,
    as_json: Json = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask before --update writes.")] = False,
) -> int:
    """Test whether anything changed, and whether any sampler got worse: exit code 0 no, 1 yes, 2 not comparable.

    Traces come first: a few numbers of short deterministic runs of every preset, option, task and metric, compared to
    seven digits. Then fresh replicates are tested: all tests together raise a false alarm in at most one run in a
    thousand. What has no baseline yet is listed as new and fails nothing.
    """
    for option, file in (("--junit", junit), ("--markdown", markdown)):
        if file is not None and not file.parent.is_dir():
            raise InputError(f"{option} {file}: no such folder: {file.parent}")
    processes = (os.cpu_count() or 1) if workers is None else workers
    from parvibench.checks.selection import SEED, select_questions

    settings = shared.parse_settings(setting, algorithm)
    own = bool(algorithm) and all(":" in name for name in algorithm or ())
    root = seed if seed is not None else SEED if own else secrets.randbelow(2**31)
    chosen = select_questions(
        suites=suite, algorithms=algorithm or (), tasks=task or (), oracle=oracle, settings=settings,
        iterations=iterations, allow_diverged=allow_diverged,
    )  # fmt: skip
    if update:
        partly = bool(algorithm or task)
        if chosen.traces and not _update_traces(chosen, traces, processes, yes, partly=partly):
            return EXIT_FAILED
        return _update(chosen, baseline, processes, root, yes, partly=partly) if chosen.of_past else 0
    from parvibench.checks.rounds import check as run
    from parvibench.checks.traces import stored
    from parvibench.checks.traces.catalogue import take

    asked = chosen.resolve(baseline)
    with progress() as show:
        found = take(chosen.traces, processes, notify=show) if chosen.traces else {}
        compared = stored.compare(stored.load(traces), found, chosen.traces)
        result = run(asked.questions, seed=root, workers=processes, notify=show)
    result = replace(result, traced=compared.count, moved=compared.moved)
    result.new.extend([*compared.new, *asked.new])
    result.incomparable.extend(asked.incomparable)
    result = replace(result, options=_options(setting or (), iterations, allow_diverged))
    return _write(result, junit, markdown, as_json)


def _update_traces(chosen: Selection, file: Path | None, workers: int, yes: bool, *, partly: bool) -> bool:
    """Store the traces, or the chosen ones, after showing what has moved; whether they were to be stored."""
    from parvibench.checks.output import moved_line
    from parvibench.checks.traces import stored
    from parvibench.checks.traces.catalogue import take

    path = file or Path(str(stored.shipped()))
    _may_ask(path, yes)
    with progress() as show:
        found = take(chosen.traces, workers, with_modules=True, notify=show)
    old = stored.load(path)
    compared = stored.compare(old, found, chosen.traces if partly else None)
    for line in [*map(moved_line, compared.moved), *(f"{name}: new" for name in compared.new if old)]:
        answer(line)
    if old and not yes and not typer.confirm(f"Write {path}?"):
        return False
    gone = [m.trace for m in compared.moved if m.value is None and not m.label]
    made = stored.merged(old, found, gone) if partly else found
    stored.write(path, made)
    answer(f"{path}: {len(made)} traces")
    return True


def _may_ask(path: Path, yes: bool) -> None:
    """``InputError`` where an update would ask and nobody can answer."""
    if path.is_file() and not yes and not sys.stdin.isatty():
        raise InputError(f"--update asks before it replaces {path}, and no terminal is there to answer: add --yes")


def _update(chosen: Selection, file: Path | None, workers: int, seed: int, yes: bool, *, partly: bool) -> int:
    """Make the baseline again, or the chosen part of it; differences are shown before anything is written."""
    from parvibench.checks.past import baseline

    path = file or Path(str(baseline.shipped()))
    _may_ask(path, yes)
    with progress() as show:
        made = baseline.provenance(seed, f"{dt.date.today():%Y-%m-%d}")
        parts = chosen.cells, chosen.densities, chosen.options
        new = baseline.make(*parts, seed=seed, workers=workers, made=made, notify=show)
    if path.is_file():
        old = baseline.Baseline.load(path)
        new = old.with_part(new) if partly else new
        lines = baseline.changes(old, new)
        for line in [*lines, f"{len(lines)} changes" if lines else "no change beyond chance"]:
            answer(line)
        if not yes and not typer.confirm(f"Write {path}?"):
            return EXIT_FAILED
    new.write(path)
    answer(f"{path}: {len(new.cells)} cells, {len(new.densities)} densities")
    return 0


def _options(set_: Sequence[str], iterations: int, allow_diverged: float) -> str:
    """What the command line said about a sampler of one's own."""
    given = [*(f"--set {shlex.quote(pair)}" for pair in set_), f"--iterations {iterations}"]
    return " ".join([*given, *([f"--allow-diverged {allow_diverged:g}"] if allow_diverged else [])])


def _write(result: CheckResult, junit: Path | None, markdown: Path | None, as_json: bool) -> int:
    """Write the outcome wherever it was asked for; the exit code."""
    from parvibench.checks import output

    if junit is not None:
        junit.write_text(output.junit(result))
    if markdown is not None:
        with markdown.open("a") as file:
            file.write(output.markdown(result))
    if as_json:
        shared.print_json(output.document(result))
    else:
        _print(result)
    return {"pass": 0, "incomparable": EXIT_USAGE}.get(result.verdict, EXIT_FAILED)


def _print(result: CheckResult) -> None:
    from parvibench.checks import output

    for line in output.lines(result):
        answer(line)
    for line in output.notes(result):
        warn(line)
    if result.incomparable or result.verdict == "changed":
        warn("after an intended change: parvibench check --update")
    counts = f"{output.counts(result)} (p < {result.threshold:.1e})"
    answer(f"{result.verdict}: {counts}; --seed {result.seed}")


class progress:
    """A progress bar on stderr; a plain line every ten seconds where stderr is no terminal."""

    def __enter__(self) -> progress:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar.start()
        self._row = self._bar.add_task("", total=None, left="")
        self._last = self._began = time.monotonic()
        self._total = self._first = self._done = -1
        return self

    def __call__(self, text: str, done: int, total: int) -> None:
        """Show what is being done, how much of it is done, and how much there is."""
        now = time.monotonic()
        if total != self._total or done < self._done:  # another kind of work
            self._total, self._first, self._began = total, done, now
        self._done = done
        left = ""
        if total and done > self._first and now - self._began >= 1:
            left = f"about {duration((now - self._began) * (total - done) / (done - self._first))} left"
        self._bar.update(self._row, description=f"{text:<44.44}", completed=done, total=total or None, left=left)
        if not console.is_terminal and now - self._last >= _PLAIN_EVERY_S:
            self._last = now
            of = f"/{total}" if total else ""
            console.print(f"  {done}{of}  {text}{left and f', {left}'}", highlight=False, markup=False, soft_wrap=True)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
