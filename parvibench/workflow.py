"""The commands as Python functions: ``load``, ``tune``, ``compare``, ``report``, ``check``."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from parvibench.api import named_methods, select, tune_suite
from parvibench.core.algorithm import Algorithm, Method
from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE, Execution
from parvibench.harness.session import Observer
from parvibench.harness.store.store import Store
from parvibench.harness.suite import tuning
from parvibench.harness.suite.entries import Tuned
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.reporting.presented import Results
from parvibench.suites import shipped

if TYPE_CHECKING:
    import pandas as pd

    from parvibench.checks.rounds import CheckResult

#: A run: its results, or the folder of a store (its latest run).
Run = Results | str | Path


def load(store: str | Path = DEFAULT_STORE, run: str | None = None) -> Results:
    """A stored run: the latest of a store, or that of an id; ``StoreError`` where there is none."""
    return Results.load(Store(Path(store)), run)


def _loaded(run: Run) -> Results:
    return run if isinstance(run, Results) else load(run)


class Tuning(NamedTuple):
    """What ``tune`` found."""

    tuned: Tuned  #: step sizes by task and label, those at the grid's end, what they cost
    results: Results  #: of the last round of runs
    file: Path | None  #: the suite file that holds them now
    interrupted: bool
    left_out: Mapping[str, str] = MappingProxyType({})  #: ``task/label`` without a measured value -> why


def tune(
    suite: str,
    *,
    tasks: Sequence[str] = (),
    algorithms: Sequence[str | Algorithm | type[Algorithm]] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    profile: str | None = None,
    workers: int | None = None,
    out: str | Path = DEFAULT_STORE / "tuning",
    write: str | Path | None = None,
    command: str = "",
    observers: Sequence[Observer] = (),
) -> Tuning:
    """Choose step sizes on the grid of a suite, for it or for tasks and algorithms of one's own under its protocol.

    Args:
        suite: name of a shipped suite or path of a suite file, with a ``tune`` section.
        tasks: names; they select from the suite, or are added to it.
        algorithms: names, ``module:Class``, objects or classes; likewise.
        settings: overrides per algorithm name or label.
        profile: of the suite; default its first.
        workers: processes; 0 runs in this one. Default one per CPU.
        out: store of the tuning runs.
        write: suite file to store the choice in, beside what it holds of other cells; None writes nothing.
        command: the command line, for provenance.
        observers: told what happens.

    Raises:
        InputError: unknown names, no ``tune`` section, no algorithm with a step size, a file that cannot be written.
    """
    whole = load_suite(suite)
    profile = profile or whole.default_profile
    chosen, held = _part(whole, tasks, algorithms, profile)
    if write is not None and not os.access(write, os.W_OK):
        raise InputError(f"{write}: cannot be written; name another suite file with --write")
    execution = Execution(workers=0 if held else workers, out=Path(out), profile=profile)
    try:
        done = tune_suite(chosen, execution, settings=settings, objects=held, observers=observers, command=command)
    except KeyboardInterrupt:
        return Tuning(Tuned(step_size={}), load(out), None, True)
    stored = write is not None and bool(done.tuned.step_size)
    if write is not None and stored:
        tuning.write_tuned(Path(write), done.tuned, profile, keep=bool(tasks or algorithms))
    return Tuning(done.tuned, done.results, Path(write) if write is not None and stored else None, False, done.left_out)


def tuner(
    suite: str,
    tasks: Sequence[str],
    algorithms: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    profile: str | None,
) -> tuning.Tuner:
    """What ``tune`` would run, for its forecast."""
    chosen, held = _part(load_suite(suite), tasks, algorithms, profile)
    return tuning.Tuner(chosen, settings=settings, objects=held)


def _part(
    suite: Suite, tasks: Sequence[str], algorithms: Sequence[str | Method | type[Method]], profile: str | None
) -> tuple[Suite, list[Method]]:
    """What is to be tuned: where algorithms are named those alone, also where they join the suite; and the objects."""
    named, held = named_methods(algorithms)
    chosen = select(suite, tasks, named, Execution(profile=profile))
    asked = {n for a in named for n in ([a] if isinstance(a, str) else [a["name"], a["label"]])}
    kept = tuple(a for a in chosen.algorithms if not asked or asked & {a.name, a.display})
    return chosen.model_copy(update={"algorithms": kept}), held


def suite_file(suite: str, write: Path | None, *, part: bool) -> Path | None:
    """Where the command ``tune`` writes: the suite's own file; for a part of a shipped suite only where it is told."""
    if write is not None or (part and suite in shipped()):
        return write
    return Path(str(shipped()[suite]) if suite in shipped() else suite)


def compare(first: Run, second: Run, metric: str | None = None) -> pd.DataFrame:
    """The second run against the first, cell by cell: ``report.run_differences.compare``."""
    from parvibench.reporting.tables import run_differences

    return run_differences.compare(_loaded(first), _loaded(second), metric)


def report(run: Run = DEFAULT_STORE, to: str | Path | None = None, format: Literal["html", "latex"] = "html") -> Path:
    """Write the report of a run and give its path: the page with its files, or the leaderboard as a LaTeX table.

    Args:
        run: results, or the folder of a store.
        to: folder; default ``report`` in the store.
        format: ``html`` or ``latex``.

    Raises:
        InputError: another format.
    """
    from parvibench.reporting.page.report_files import write_report
    from parvibench.reporting.page.text_tables import write_latex

    writers = {"html": write_report, "latex": write_latex}
    if format not in writers:
        raise InputError(f"format {format!r}: there are {', '.join(writers)}")
    results = _loaded(run)
    return writers[format](results, Path(to) if to is not None else results.store.root / "report")


def check(
    sampler: str | Algorithm | type[Algorithm] | None = None,
    *,
    iterations: int = 500,
    seed: int | None = None,
    workers: int = 0,
    **settings: Any,
) -> CheckResult:
    """Test a sampler against known truth and the contract; without one, every built-in method, as ``parvibench check``.

    Args:
        sampler: a name, ``module:Class``, an object or a class.
        iterations: enough for a bent target of unit scale; of a sampler of one's own.
        seed: of all fresh replicates; default drawn, and in the result.
        workers: processes; 0 runs in this one, as objects that cannot be imported always do.
        settings: of a sampler of one's own.

    Returns:
        ``verdict`` (``pass``, ``regression`` or ``incomparable``), ``tests``, ``red`` (those that failed), ``seed``.
    """
    from parvibench.checks.rounds import check as run
    from parvibench.checks.selection import outside_questions, select_questions
    from parvibench.core import registry

    root = secrets.randbelow(2**31) if seed is None else seed
    if sampler is None or (isinstance(sampler, str) and not registry.is_elsewhere(sampler)):
        if settings:
            raise InputError("built-in methods are checked as they are: settings are of samplers of your own")
        asked = select_questions(algorithms=() if sampler is None else (sampler,)).resolve()
        result = run(asked.questions, seed=root, workers=workers)
        result.new.extend(asked.new)
        result.incomparable.extend(asked.incomparable)
        return result
    if not isinstance(sampler, str):
        (entry,), held = named_methods([sampler])
        assert isinstance(entry, dict)
        sampler, workers = (held[0], 0) if held else (entry["name"], workers)  # type: ignore[assignment]
    return run(outside_questions(sampler, settings, iterations), seed=root, workers=workers)  # type: ignore[arg-type]
