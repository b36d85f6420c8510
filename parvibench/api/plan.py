"""What a run or a tuning consists of: the suite, restricted to the requested tasks and algorithms, and its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from parvibench.board import editions
from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, Method
from parvibench.core.errors import InputError, UnknownNameError, validation_text
from parvibench.core.task import Task
from parvibench.harness.execution import Execution
from parvibench.harness.session import Executor, make_executor, resolve_device
from parvibench.harness.store.merging import shard
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.plugins import Allowed
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.harness.suite.tuned_values import lacking, of_tasks, untuned

DEFAULT_BUDGET = {"scores_per_particle": 500.0}
#: An algorithm of a suite: its name, or an entry as in a suite file.
Entry = str | dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """A run before anything has been computed; ``run`` and its forecast share it."""

    suite: Suite  #: profile applied, restricted to the requested tasks and algorithms
    source: str  #: name or file of the suite, for messages
    execution: Execution  #: with the name of the profile
    device: str  #: ``cpu`` or ``cuda``
    executor: Executor
    settings: Mapping[str, Mapping[str, Any]]  #: overrides per algorithm name or label
    objects: Sequence[Task | Method]  #: tasks and algorithms that other processes cannot import
    posteriors: bool = False  #: whether tasks are of posteriordb
    left_out: Sequence[str] = ()  #: posteriors that cannot be run, with the reason

    @classmethod
    def of(
        cls, suite: str | Suite | None = None, *, tasks: Sequence[str | Task] = (),
        algorithms: Sequence[str | Algorithm | type[Algorithm]] = (),
        settings: Mapping[str, Mapping[str, Any]] | None = None, execution: Execution | None = None, **options: Any,
    ) -> Plan:  # fmt: skip
        """The plan of ``run``'s arguments of the same names.

        Raises:
            InputError: unknown names, bad settings or options, or objects on a cluster.
        """
        execution = execution or Execution.of(**options)
        placed = [task if isinstance(task, str) else _placed(task) for task in tasks]
        named, methods = named_methods(algorithms)
        objects: list[Task | Method] = [*(t for t in placed if not isinstance(t, str)), *methods]
        if objects:
            if execution.ray is not None:
                raise InputError(
                    "objects cannot be sent to a Ray cluster; name them as 'module:Class' or 'file.py:Class'"
                )
            execution = execution.model_copy(update={"workers": 0})
        names = list(dict.fromkeys(t if isinstance(t, str) else t.name for t in placed))
        allowed: Allowed = "beside" if execution.allow_plugins else [*names, *_names(named)]
        loaded = load_suite(suite, allowed) if isinstance(suite, str) else suite
        if loaded is not None and execution.profile is None:
            execution = execution.model_copy(update={"profile": loaded.default_profile})
        chosen = select(loaded, names, named, execution)
        selected, left_out = opened(chosen)
        device = resolve_device(execution.device)
        source = suite if isinstance(suite, str) else selected.name
        executor = make_executor(execution, device)
        return cls(
            selected, source, execution, device, executor, settings or {}, objects, selected is not chosen, left_out
        )

    def cells(self, *, tuned: bool = True) -> list[Cell]:
        """The cells of the requested part, in the order of the report.

        Args:
            tuned: whether a suite that lists a grid of step sizes must have tuned values.

        Raises:
            InputError: invalid settings, a suite without tuned step sizes, or a run that is not as in the edition.
        """
        cells = self._expanded
        if self.execution.edition is not None:
            editions.check(self.execution.edition, self.source, self.execution.profile, cells)
        if tuned and (refusal := untuned(self.suite, cells, self.execution.profile, self.source)):
            raise InputError(refusal)
        return cells if self.execution.part is None else shard(cells, *self.execution.part)

    def notes(self, cells: Sequence[Cell]) -> list[str]:
        """What the caller should know: tasks left out, and the notes of these cells."""
        return [*self.left_out, *dict.fromkeys(note for cell in cells for note in cell.notes)]

    def untuned_part(self) -> Suite | None:
        """The tasks that lack tuned step sizes, as a suite; None where there are none."""
        waiting = lacking(self.suite, self._expanded)
        return of_tasks(self.suite, {c.spec.task for c in waiting}) if waiting else None

    @cached_property
    def _expanded(self) -> list[Cell]:
        compiled = self.execution.compiled
        return expand(self.suite, device=self.device, settings=self.settings, objects=self.objects, compiled=compiled)


def opened(suite: Suite) -> tuple[Suite, list[str]]:
    """The suite with the posteriors of posteriordb that its places and patterns name, and why some cannot be run."""
    listed = [t.name for t in suite.tasks if t.name.startswith(registry.POSTERIORDB)]
    if not listed:
        return suite, []
    from parvibench.targets.posteriordb import loaded

    found, left_out = loaded(listed)
    tasks = [t.model_copy(update={"name": name}) for t in suite.tasks for name in found.get(t.name, [t.name])]
    return suite.model_copy(update={"tasks": tuple({t.name: t for t in tasks}.values())}), left_out


def named_methods(algorithms: Sequence[str | Method | type[Method]]) -> tuple[list[Entry], list[Method]]:
    """Algorithms as entries of a suite, ``module:Class`` where that can be imported, and the objects that cannot be."""
    entries: list[Entry] = []
    objects: list[Method] = []
    for given in algorithms:
        if isinstance(given, str):
            if given not in entries:
                entries.append(given)
            continue
        method = registry.as_method(given)
        place = importable(method)
        entries.append({"name": place or method.name, "label": method.name})
        objects += [] if place else [method]
    return entries, objects


def select(suite: str | Suite | None, tasks: Sequence[str], algorithms: Sequence[Entry], execution: Execution) -> Suite:
    """The suite to run; ``InputError`` if there is nothing to run, a name is unknown or a value is out of range."""
    algorithms = [  # one outside the registry is labelled with its own name
        {"name": a, "label": registry.load_method(a).name} if isinstance(a, str) and registry.is_elsewhere(a) else a
        for a in algorithms
    ]
    if suite is None:
        return _overridden(_custom(tasks, algorithms, execution), execution)
    selected = (load_suite(suite) if isinstance(suite, str) else suite).with_profile(execution.profile)
    selected = selected.with_rows(execution.rows) if execution.rows else selected
    listed = {t.name for t, _ in selected.pairs}
    places = [t for t in tasks if registry.is_place(t) and t not in listed and "*" not in t]
    own = {t: name for t in places if (name := registry.load_task(t).name) in listed}
    tasks = [own.get(t, t) for t in tasks]
    return _overridden((_restrict_rows if selected.rows else _restrict)(selected, tasks, algorithms), execution)


def _custom(tasks: Sequence[str], algorithms: Sequence[Entry], execution: Execution) -> Suite:
    if execution.rows:
        raise InputError("--row selects rows of a suite: name one (--suite sifg-table-1)")
    if not tasks or not algorithms:
        raise InputError("nothing to run: name a suite (--suite quick), or tasks and algorithms (--task, --algorithm)")
    # Models of users have any scale: probabilistic programs compute in double precision.
    dtype = "float32" if all(t in registry.tasks() for t in tasks) else "float64"
    values = {"name": "custom", "tasks": list(tasks), "algorithms": list(algorithms), "budget": DEFAULT_BUDGET}
    return _build(values | {"dtype": dtype})


def _overridden(selected: Suite, execution: Execution) -> Suite:
    """The suite with the protocol that the caller states."""
    names = ("replicates", "seed", "budget", "particles", "samples", "start", "match")
    overrides = {name: value for name in names if (value := getattr(execution, name)) is not None}
    if not overrides:
        return selected
    values = {**selected.model_dump(exclude_none=True), **overrides}
    _build(values)  # an error of an override is reported once, and not again for every entry that gets it
    if execution.replicates is not None:
        values["tasks"] = [{"name": t.name} for t in selected.tasks]
    # Explicit values override those of an entry and of its preset.
    protocol = {name: overrides[name] for name in ("budget", "particles", "samples", "start") if name in overrides}
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


def _names(algorithms: Sequence[Entry]) -> list[str]:
    return [a if isinstance(a, str) else a["name"] for a in algorithms]


def _placed(task: Task) -> str | Task:
    """Where workers can load an unregistered task from; the object itself if they cannot."""
    registry.adopt(task)
    return task if task.name in registry.tasks() else registry.place_of(task) or task


def _restrict_rows(suite: Suite, tasks: Sequence[str], algorithms: Sequence[Entry]) -> Suite:
    """Keep the rows of the named tasks and algorithms; ``InputError`` for a name that no row has."""
    labels = _names(algorithms)
    known = {"task": {r.task for r in suite.rows}, "algorithm": {n for r in suite.rows for n in (r.name, r.display)}}
    for kind, names in (("task", tasks), ("algorithm", labels)):
        for name in names:
            if name not in known[kind]:
                raise UnknownNameError(f"{kind} in the rows of suite {suite.name!r}", name, known[kind])
    kept = [r for r in suite.rows if not tasks or r.task in tasks]
    kept = [r for r in kept if not labels or r.name in labels or r.display in labels]
    if not kept:
        raise InputError(f"suite {suite.name!r} has no row with these tasks and algorithms")
    return suite.model_copy(update={"rows": tuple(kept)})


def _restrict(suite: Suite, tasks: Sequence[str], algorithms: Sequence[Entry]) -> Suite:
    """The suite with the named tasks and algorithms alone, those that it lacks included."""
    own_tasks = {t.name: t for t in suite.tasks}
    # A label takes precedence over a name that several entries share.
    own_methods = {a.name: a for a in reversed(suite.algorithms)} | {a.display: a for a in suite.algorithms}
    values = suite.model_dump(exclude_none=True)
    if tasks:
        values["tasks"] = [own_tasks[t].model_dump(exclude_none=True) if t in own_tasks else t for t in tasks]
    if algorithms:
        names = _names(algorithms)
        values["algorithms"] = [
            own_methods[n].model_dump(exclude_none=True) if n in own_methods else a
            for n, a in zip(names, algorithms, strict=True)
        ]
    return _build(values)


def importable(method: Method) -> str:
    """``module:attribute`` or ``file.py:attribute`` of an algorithm or of its class; empty where there is none.

    None have what is defined in a notebook, in the main program or within a function, and an object with attributes of
    its own that no module holds: its class alone would make another one.
    """
    owner = type(method)
    return registry.place_in(owner.__module__, lambda value: value is method or (value is owner and not vars(method)))
