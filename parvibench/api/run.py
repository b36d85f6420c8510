"""``run``: a suite, or tasks and algorithms, into a result store; and a forecast of it."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from parvibench.core.algorithm import Algorithm
from parvibench.core.result import CellRecord as CellRecord
from parvibench.core.task import Task
from parvibench.harness.execution import Execution as Execution
from parvibench.harness.forecast import predict, starting
from parvibench.harness.session import Observer as Observer
from parvibench.harness.session import run_cells, why_not_run
from parvibench.harness.store.files import output_place
from parvibench.harness.store.store import RunRecord as RunRecord
from parvibench.harness.store.store import Store, is_final
from parvibench.harness.suite.cells import Cell as Cell
from parvibench.harness.suite.suite import Suite
from parvibench.harness.suite.tuned_values import with_more
from parvibench.harness.workers.executors import News as News
from parvibench.harness.workers.jobs import ChunkJob as ChunkJob
from parvibench.metrics.own_floors import with_floors
from parvibench.reference.build import built_in
from parvibench.reporting.presented import Results
from parvibench.tracking.mirror import MirrorObserver

from .certify import references_of_draws
from .plan import Plan
from .report import write
from .tune import tune_suite


def run(
    suite: str | Suite | None = None,
    *,
    tasks: Sequence[str | Task] = (),
    algorithms: Sequence[str | Algorithm | type[Algorithm]] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    execution: Execution | None = None,
    tracking: bool | MirrorObserver = True,
    warn: Callable[[str], None] = warnings.warn,
    observers: Sequence[Observer] = (),
    report: str | Path | None = None,
    command: str = "",
    **options: Any,
) -> Results:
    """Run a suite, a part of it, or tasks x algorithms. Cells that the store already holds are not run again.

    Args:
        suite: name of a shipped suite, path of a suite file, or None to run ``tasks`` x ``algorithms``.
        tasks: names or objects; of a suite only these are run, those that it lacks included.
        algorithms: names, ``module:Class``, objects or classes; likewise. Importable objects run in worker processes,
            others in this process.
        settings: overrides per algorithm name or label, e.g. ``{"svgd": {"step_size": 0.05}}``.
        execution: replicates, budget, workers, store, ...; or give its fields as ``options``.
        tracking: mirror the run to MLflow (``MLFLOW_TRACKING_URI``, by default SQLite in the store); or a
            ``MirrorObserver``, which the caller closes.
        warn: called with a message if a preset belongs to another task, or MLflow could not be reached.
        observers: notified of the start, the progress and the end of cells.
        report: folder for the report of the run; None writes none.
        command: the command line, stored as provenance.
        options: fields of ``Execution``: ``replicates=10``, ``workers=2``, ``out="store"``, ...

    Raises:
        InputError: unknown names or options, bad settings, a negative budget, a suite without tuned step sizes. Nothing
            has been computed then.
    """
    plan = Plan.of(suite, tasks=tasks, algorithms=algorithms, settings=settings, execution=execution, **options)
    if plan.posteriors:
        plan = replace(plan, suite=references_of_draws(plan.suite, warn))
    if plan.execution.tune:
        plan = _tuned_first(plan, warn, observers, command)
    cells, execution = plan.cells(), plan.execution
    for note in plan.notes(cells):
        warn(note)
    store = Store(execution.out)
    store.check_writable()
    page = None if report is None else output_place(report, folder=True)
    mirror = MirrorObserver(store.root) if tracking is True else tracking or None
    # Noise floors that user-built references lack are simulated once for all workers.
    for cell in {(cell.task, cell.samples): cell for cell in cells}.values():
        task = cell.loaded[0] if cell.loaded else cell.load_task()
        if not built_in(task):
            with_floors(task, task.floored(), cell.samples, lambda what, done, _: None if done else warn(what))
    observers = [*observers, *([mirror] if mirror else [])]
    suite_as_run = plan.suite.resolved()
    ran = run_cells(
        cells, store, plan.executor, suite=suite_as_run, execution=execution, command=command, observers=observers
    )
    results = Results.of(ran)
    if page is not None:
        write(results, page, mirror)
    if tracking is True and mirror and (warning := mirror.close()):
        warn(warning)
    return results


def _tuned_first(plan: Plan, warn: Callable[[str], None], observers: Sequence[Observer], command: str) -> Plan:
    """Tune the tasks that lack step sizes; the plan with the chosen values."""
    part = plan.untuned_part()
    if part is None:
        return plan
    execution = plan.execution.model_copy(update={"out": plan.execution.out / "tuning"})
    done = tune_suite(
        part, execution, settings=plan.settings, objects=plan.objects, observers=observers, command=command
    )
    for pair, why in done.left_out.items():
        warn(f"{pair} has no tuned step size: {why}")
    tuned = with_more(plan.suite.tuned, done.tuned)
    return replace(plan, suite=plan.suite.model_copy(update={"tuned": tuned}))


class Forecast(NamedTuple):
    """The cells that ``run`` with the same arguments would run, and the time they take."""

    #: one per cell: ``task``, ``algorithm``, ``label``, ``key``, ``replicates``, ``chunks``, ``budget``, ``state``
    #: (``cached``, ``to run``, or a status with its reason, such as ``unsupported: ...``) and ``predicted_seconds`` of one process, or None
    cells: list[dict[str, Any]]
    seconds: float  #: of all cells to run, on ``processes``, and until these have started
    processes: int
    notes: list[str]  #: warnings of the run
    tuning_first: bool  #: whether step sizes are tuned first, which takes further time

    @property
    def to_run(self) -> int:
        """Number of cells that would be run."""
        return sum(row["state"] == "to run" for row in self.cells)

    @property
    def unknown(self) -> int:
        """Number of these cells whose time is not predicted."""
        return sum(row["state"] == "to run" and row["predicted_seconds"] is None for row in self.cells)


def forecast(suite: str | Suite | None = None, **arguments: Any) -> Forecast:
    """Predict the time of ``run`` with the same arguments; it raises the same errors and writes nothing."""
    plan = Plan.of(suite, **arguments)
    execution = plan.execution
    cells, store = plan.cells(tuned=not execution.tune), Store(execution.out)
    rows: list[dict[str, Any]] = []
    waiting: list[tuple[Cell, dict[str, Any]]] = []
    for cell in cells:
        state = "cached"
        if execution.fresh or not is_final(store.usable(cell.key), execution.retry_failed):
            refusal = why_not_run(cell)
            state = "to run" if refusal is None else f"{refusal[0]}: {refusal[1].splitlines()[0]}"
        row: dict[str, Any] = {k: getattr(cell, k) for k in ("task", "algorithm", "label", "key")}
        row |= {"replicates": cell.n_replicates, "chunks": len(cell.chunks)}
        row |= {"budget": cell.spec.budget.model_dump(exclude_none=True), "state": state, "predicted_seconds": None}
        rows.append(row)
        if state == "to run":
            waiting.append((cell, row))
    known: dict[str, list[float]] = {}  # of each method, and of all
    for (cell, row), one in zip(waiting, predict([c for c, _ in waiting], store), strict=True):
        row["predicted_seconds"] = one
        if one is not None:
            for label in (cell.label, ""):
                known.setdefault(label, []).append(one)
    count = (os.cpu_count() or 1) if execution.workers is None else execution.workers
    processes = 1 if plan.device == "cuda" else max(1, count)
    seconds = sum(fmean(known.get(cell.label, known.get("", [0.0]))) for cell, _ in waiting) / processes
    if waiting and count and execution.ray is None:
        seconds += starting(sum(len(cell.chunks) for cell, _ in waiting), processes)
    return Forecast(rows, seconds, processes, plan.notes(cells), execution.tune and plan.untuned_part() is not None)
