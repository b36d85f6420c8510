"""The Python API: ``run`` and ``evaluate``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from parvibench.harness.execution import Execution
from parvibench.harness.run.compiling import require_compiler
from parvibench.harness.store.merging import shard
from parvibench.harness.store.results import StoredRun as Stored
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.entries import Tuned
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.harness.suite.tuning import Tuner, lacking, of_tasks, untuned, with_more
from parvibench.reporting.presented import Results
from parvibench.tracking.observer import MirrorObserver

from .authoring.importing import importable
from .core import registry
from .core.algorithm import Algorithm, Method
from .core.errors import InputError, UnknownNameError, validation_text
from .core.result import Status
from .core.task import Task
from .evaluating import evaluate as evaluate
from .harness.session import Observer, make_executor, resolve_device, run_cells

DEFAULT_BUDGET = {"scores_per_particle": 500.0}


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
    command: str = "",
    **options: Any,
) -> Results:
    """Run a suite, a part of it, or tasks and algorithms of your own; the results hold what the store held, too.

    Args:
        suite: name of a shipped suite, path of a suite file, or None to run ``tasks`` x ``algorithms``.
        tasks: names or objects; they select from the suite, or make one.
        algorithms: names, ``module:Class``, objects or classes; likewise. Objects that can be imported run in worker
            processes, others in this one.
        settings: overrides per algorithm name or label, e.g. ``{"svgd": {"step_size": 0.05}}``.
        execution: how the run is made; or give its fields one by one, as ``options``.
        tracking: mirror the run to MLflow (``MLFLOW_TRACKING_URI``, else SQLite in the store); or a mirror of the
            caller's, who closes it.
        warn: told of presets of other tasks, and when the mirror could not be delivered.
        observers: told what happens.
        command: the command line, for provenance.
        options: fields of ``Execution``: ``replicates=10``, ``workers=2``, ``out="store"``, ...

    Raises:
        InputError: unknown names or options, bad settings, a negative budget, no compiler; nothing has run then.
    """
    execution = execution or Execution.of(**options)
    tasks = [task if isinstance(task, str) else _placed(task) for task in tasks]
    named, held = named_methods(algorithms)
    objects: list[Task | Method] = [*(t for t in tasks if not isinstance(t, str)), *held]
    if objects:
        if execution.ray is not None:
            raise InputError("objects cannot be sent to a Ray cluster; name them as 'module:Class' or 'file.py:Class'")
        execution = execution.model_copy(update={"workers": 0})
    loaded, execution = load_profile(suite, execution)
    chosen = select(loaded, [_name(t) for t in tasks], named, execution)
    where = resolve_device(execution.device)
    if execution.compiled:
        require_compiler(where)
    cells = expand(chosen, device=where, settings=settings, objects=objects, compiled=execution.compiled)
    if execution.tune and (waiting := lacking(chosen, cells)):
        aside = execution.model_copy(update={"out": execution.out / "tuning"})
        part = of_tasks(chosen, {c.spec.task for c in waiting})
        done = tune_suite(
            part, aside, settings=settings, objects=objects, observers=observers, command=command
        )  # fmt: skip
        for pair, why in done.left_out.items():
            warn(f"{pair} has no tuned step size: {why}")
        chosen = chosen.model_copy(update={"tuned": with_more(chosen.tuned, done.tuned)})
        cells = expand(chosen, device=where, settings=settings, objects=objects, compiled=execution.compiled)
    if refused := untuned(chosen, cells, execution.profile, suite if isinstance(suite, str) else chosen.name):
        raise InputError(refused)
    for note in dict.fromkeys(n for cell in cells for n in cell.notes):
        warn(note)
    executor = make_executor(execution, where)
    store = Store(execution.out)
    store.check_writable()
    mirror = MirrorObserver(store.root) if tracking is True else tracking or None
    results = run_cells(
        cells if execution.part is None else shard(cells, *execution.part),
        store,
        executor,
        suite=chosen.resolved(),
        profile=execution.profile,
        command=command,
        observers=[*observers, *([mirror] if mirror else [])],
        fresh=execution.fresh,
        retry_failed=execution.retry_failed,
    )
    if tracking is True and mirror and (warning := mirror.close()):
        warn(warning)
    return Results.of(results)


class TunedSuite(NamedTuple):
    """What tuning a suite gave."""

    tuned: Tuned  #: the choice
    left_out: dict[str, str]  #: ``task/label`` without a value -> why
    results: Results  #: of the last round


def tune_suite(
    suite: Suite,
    execution: Execution,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    objects: Sequence[Task | Method] = (),
    observers: Sequence[Observer] = (),
    command: str = "",
) -> TunedSuite:
    """Tune the step sizes of a suite, its profile applied, on its grids; the same call resumes.

    Raises:
        InputError: the suite has no grid, or nothing in it has a step size to choose.
        KeyboardInterrupt: it was interrupted.
    """
    tuner = Tuner(suite, settings=settings or {}, objects=objects)
    if not tuner.first_cells():
        raise InputError("nothing to tune: none of these algorithms has a step_size, or none supports these tasks")
    executor = make_executor(execution, "cpu")
    named = {**suite.resolved(), "name": f"{suite.name}-tuning"[:64]}
    rounds = []

    def measured(cells: Sequence[Cell]) -> Stored:
        found = run_cells(
            cells, Store(execution.out), executor, suite=named, profile=execution.profile, command=command, observers=observers
        )  # fmt: skip
        if any(c.status is Status.INTERRUPTED for c in found.cells):
            raise KeyboardInterrupt
        rounds.append(found)
        return found

    tuned = tuner.tune(measured)
    return TunedSuite(tuned, tuner.left_out, Results.of(rounds[-1]))


def _name(item: Any) -> str:
    return item if isinstance(item, str) else str(item.name)


#: An algorithm of a suite: its name, or an entry as in a suite file.
Entry = str | dict[str, Any]


def named_methods(algorithms: Sequence[str | Method | type[Method]]) -> tuple[list[Entry], list[Method]]:
    """Algorithms as entries of a suite, and the objects among them that no other process could import.

    Those that can be imported become ``module:Class``, under the label that is their name.
    """
    entries: list[Entry] = []
    held: list[Method] = []
    for given in algorithms:
        if isinstance(given, str):
            entries.append(given)
            continue
        method = registry.as_method(given)
        place = importable(method)
        entries.append({"name": place or method.name, "label": method.name})
        held += [] if place else [method]
    return entries, held


def _entry(item: Entry) -> Entry:
    """An algorithm from elsewhere bears the name of its class."""
    if isinstance(item, str) and registry.is_elsewhere(item):
        return {"name": item, "label": registry.load_method(item).name}
    return item


def load_profile(suite: str | Suite | None, execution: Execution) -> tuple[Suite | None, Execution]:
    """The suite, and the options with the profile named that it runs under: the record of the run tells it."""
    loaded = load_suite(suite) if isinstance(suite, str) else suite
    if loaded is None or execution.profile is not None:
        return loaded, execution
    return loaded, execution.model_copy(update={"profile": loaded.default_profile})


def select(suite: str | Suite | None, tasks: Sequence[str], algorithms: Sequence[Entry], execution: Execution) -> Suite:
    """The suite to run; ``InputError`` where there is nothing to run, a name is unknown or a value out of range."""
    algorithms = [_entry(a) for a in algorithms]
    if suite is None:
        if execution.rows:
            raise InputError("rows are those of a suite: name it (--suite sifg-table-1)")
        if not tasks or not algorithms:
            raise InputError("say what to run: a suite (--suite quick), or tasks and algorithms (--task, --algorithm)")
        chosen = _build(
            {"name": "custom", "tasks": list(tasks), "algorithms": list(algorithms), "budget": DEFAULT_BUDGET}
        )
    else:
        chosen = (load_suite(suite) if isinstance(suite, str) else suite).with_profile(execution.profile)
        chosen = chosen.with_rows(execution.rows) if execution.rows else chosen
        chosen = (_restrict_rows if chosen.rows else _restrict)(chosen, tasks, algorithms)
    names = ("replicates", "seed", "budget", "particles", "samples", "match")
    overrides = {name: value for name in names if (value := getattr(execution, name)) is not None}
    if not overrides:
        return chosen
    values = {**chosen.model_dump(exclude_none=True), **overrides}
    if execution.replicates is not None:
        values["tasks"] = [{"name": t.name} for t in chosen.tasks]
    # Given explicitly, they also go before an entry's own and its preset's.
    protocol = {name: overrides[name] for name in ("budget", "particles", "samples") if name in overrides}
    replaced = {"budget": ("budget", "iterations"), "replicates": ("replicates",)}
    gone = {key for name in overrides for key in replaced.get(name, ())}
    for kind in ("algorithms", "rows"):
        values[kind] = [{k: v for k, v in e.items() if k not in gone} | protocol for e in values[kind]]
    return _build(values)


def _build(values: dict[str, Any]) -> Suite:
    try:
        return Suite.model_validate(values)
    except ValidationError as error:
        raise InputError(validation_text(error, model=Suite)) from None


def _placed(task: Task) -> str | Task:
    """The place from which workers can load a task of one's own; the object itself where there is none."""
    registry.adopt(task)
    return task if task.name in registry.tasks() else registry.place_of(task) or task


def _restrict_rows(suite: Suite, tasks: Sequence[str], algorithms: Sequence[Entry]) -> Suite:
    """Keep the rows of the named tasks and algorithms; ``InputError`` for a name that no row has."""
    labels = [a if isinstance(a, str) else a["name"] for a in algorithms]
    held = {"task": {r.task for r in suite.rows}, "algorithm": {n for r in suite.rows for n in (r.name, r.display)}}
    for kind, names in (("task", tasks), ("algorithm", labels)):
        for name in names:
            if name not in held[kind]:
                raise UnknownNameError(f"{kind} of the rows of {suite.name!r}", name, held[kind])
    kept = [
        r
        for r in suite.rows
        if (not tasks or r.task in tasks) and (not labels or r.name in labels or r.display in labels)
    ]
    if not kept:
        raise InputError(f"no row of {suite.name!r} has one of these tasks and one of these algorithms")
    return suite.model_copy(update={"rows": tuple(kept)})


def _restrict(suite: Suite, tasks: Sequence[str], algorithms: Sequence[Entry]) -> Suite:
    """Keep the named tasks and algorithms; names the suite lacks are added to it.

    Tasks and algorithms from elsewhere alone, ``file.py:NAME`` or objects, join the suite's.
    """
    own_tasks = {t.name: t for t in suite.tasks}
    if tasks and all(map(registry.is_place, tasks)):
        tasks = [*own_tasks, *tasks]
    # A label goes before a name that several methods share.
    own_methods = {a.name: a for a in reversed(suite.algorithms)} | {a.display: a for a in suite.algorithms}
    values = suite.model_dump(exclude_none=True)
    if algorithms and all(isinstance(a, dict) and a["name"] not in own_methods for a in algorithms):
        algorithms = [*(a.display for a in suite.algorithms), *algorithms]  # from elsewhere: they add
    if tasks:
        values["tasks"] = [own_tasks[t].model_dump(exclude_none=True) if t in own_tasks else t for t in tasks]
    if algorithms:
        names = [a if isinstance(a, str) else a["name"] for a in algorithms]
        values["algorithms"] = [
            own_methods[n].model_dump(exclude_none=True) if n in own_methods else a
            for n, a in zip(names, algorithms, strict=True)
        ]
    return _build(values)
