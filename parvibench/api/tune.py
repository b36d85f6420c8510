"""``tune``: step sizes on the grids of a suite; and a forecast of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from parvibench.core.algorithm import Algorithm, Method
from parvibench.core.errors import InputError
from parvibench.core.result import Status
from parvibench.core.task import Task
from parvibench.harness.execution import DEFAULT_STORE, Execution
from parvibench.harness.forecast import predict
from parvibench.harness.session import Observer, make_executor, run_cells
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell
from parvibench.harness.suite.entries import Tuned
from parvibench.harness.suite.suite import Suite
from parvibench.harness.suite.tuned_values import suite_text, write_tuned
from parvibench.harness.suite.tuning import ADDED, EXTENSIONS, FINALISTS, SHARE, Tried, Tuner
from parvibench.reporting.presented import Results
from parvibench.suites import shipped

from .plan import Plan
from .report import load


class Tuning(NamedTuple):
    """The outcome of ``tune``."""

    tuned: Tuned  #: step sizes by task and label, those at the end of a grid, their cost
    results: Results  #: of the last round of runs
    file: Path | None = None  #: the suite file in which they were stored
    interrupted: bool = False
    left_out: Mapping[str, str] = MappingProxyType({})  #: ``task/label`` without a measured value -> reason
    tried: Sequence[Tried] = ()  #: the value at every step size tried


def tune(
    suite: str,
    *,
    tasks: Sequence[str] = (),
    algorithms: Sequence[str | Algorithm | type[Algorithm]] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    profile: str | None = None,
    workers: int | None = None,
    out: str | Path = DEFAULT_STORE / "tuning",
    allow_plugins: bool = False,
    write: str | Path | None = None,
    command: str = "",
    observers: Sequence[Observer] = (),
) -> Tuning:
    """Choose step sizes on the grid of a suite, for its algorithms or for others under its protocol.

    ``suite`` is the name of a shipped suite or the path of a suite file, with a ``tune`` section; ``out`` the store of the
    tuning runs; ``write`` a suite file in which the chosen values are stored, where values of other cells stay (None writes
    nothing). The other arguments are those of ``run`` and, from ``profile`` on, fields of ``Execution``.

    Raises:
        InputError: unknown names, no ``tune`` section, no algorithm with a step size, a file that cannot be written.
    """
    file = None if write is None else Path(write)
    plan, text = _plan(
        suite, file, tasks=tasks, algorithms=algorithms, settings=settings, profile=profile, workers=workers,
        out=Path(out), allow_plugins=allow_plugins,
    )  # fmt: skip
    try:
        done = tune_suite(
            plan.suite, plan.execution, settings=settings, objects=plan.objects, observers=observers, command=command
        )
    except KeyboardInterrupt:
        return Tuning(Tuned(step_size={}), load(out), interrupted=True)
    if file is None or not done.tuned.step_size:
        return done
    write_tuned(file, done.tuned, plan.execution.profile, keep=bool(tasks or algorithms), text=text)
    return done._replace(file=file)


def tune_suite(
    suite: Suite, execution: Execution, *, settings: Mapping[str, Mapping[str, Any]] | None = None,
    objects: Sequence[Task | Method] = (), observers: Sequence[Observer] = (), command: str = "",
) -> Tuning:  # fmt: skip
    """Tune the step sizes of a suite, its profile applied, on its grids; the same call resumes.

    Raises:
        InputError: the suite has no grid, or no algorithm of it has a step size to choose.
        KeyboardInterrupt: tuning was interrupted.
    """
    tuner = Tuner(suite, settings=settings or {}, objects=objects)
    if not tuner.first_cells():
        raise InputError("nothing to tune: no algorithm here has a step_size and supports one of these tasks")
    executor = make_executor(execution, "cpu")
    named = {**suite.resolved(), "name": f"{suite.name}-tuning"[:64]}
    rounds = []

    def measured(cells: Sequence[Cell]) -> StoredRun:
        store, of_profile = Store(execution.out), Execution(profile=execution.profile)
        found = run_cells(
            cells, store, executor, suite=named, execution=of_profile, command=command, observers=observers
        )
        if any(c.status is Status.INTERRUPTED for c in found.cells):
            raise KeyboardInterrupt
        rounds.append(found)
        return found

    tuned = tuner.tune(measured)
    return Tuning(tuned, Results.of(rounds[-1]), left_out=tuner.left_out, tried=tuner.tried)


class TuningForecast(NamedTuple):
    """Predicted time of a tuning, in seconds of one process."""

    cells: int  #: of the first round
    first_round: float
    finals: float  #: of the best values over the whole horizon
    growth: float  #: at most, of values beyond the ends of the grids
    unknown: int  #: number of grids that cannot be predicted


def forecast(
    suite: str, *, out: str | Path = DEFAULT_STORE / "tuning", write: Path | None = None, **arguments: Any
) -> TuningForecast:
    """Predict the time of ``tune`` with the same arguments."""
    plan, _ = _plan(suite, write, **arguments)
    tuner = Tuner(plan.suite, settings=plan.settings, objects=plan.objects)
    grids = tuner.one_of_each()
    seconds = predict([cell for cell, _ in grids], Store(Path(out)))
    known = [(s, values) for s, (_, values) in zip(seconds, grids, strict=True) if s is not None]
    once = sum(s for s, _ in known)
    first, growth = sum(s * values for s, values in known), once * EXTENSIONS * ADDED
    finals = once / SHARE * FINALISTS
    return TuningForecast(sum(values for _, values in known), first, finals, growth, len(seconds) - len(known))


def _plan(suite: str, write: Path | None, **arguments: Any) -> tuple[Plan, str]:
    """What is tuned, and the text of the suite file for the chosen values; ``InputError`` where that cannot be used."""
    plan = Plan.of(suite, device="cpu", **arguments)
    if write is None:
        return plan, ""
    return plan, suite_text(write, Path(str(shipped().get(suite, suite))).read_text(), plan.execution.profile)


def suite_file(suite: str, write: Path | None, *, part: bool) -> Path | None:
    """Where the command ``tune`` writes: ``write``, else the suite's file; None for a part of a shipped suite."""
    if write is not None or (part and suite in shipped()):
        return write
    return Path(str(shipped()[suite]) if suite in shipped() else suite)
