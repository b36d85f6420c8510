"""From a suite to cells: every (task, algorithm, label) with its complete specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from parvibench.core import OWN_REFERENCES, registry, search_references
from parvibench.core.algorithm import Method
from parvibench.core.errors import UnknownNameError
from parvibench.core.result import CellSpec, Specified
from parvibench.core.sequential import SequentialTask
from parvibench.core.task import Task

from . import protocol
from .entries import TaskEntry
from .plugins import plugin_source
from .suite import Suite

#: A chunk on a CPU holds at most this many particles, numbers in a state, and particles times the data rows of a
#: score: beyond, the batch falls out of cache.
CPU_CHUNK_PARTICLES = 2000
CPU_CHUNK_NUMBERS = 250_000
CPU_CHUNK_ROWS = 10_000


@dataclass(frozen=True)
class Cell(Specified):
    """One (task, algorithm, label) with all its replicates, as it is run."""

    spec: CellSpec  #: everything that may change its samples
    label: str  #: name in tables
    metrics: tuple[str, ...]  #: measured at every checkpoint
    tuned: bool = False  #: whether the step size was chosen by tuning
    untuned: bool = False  #: whether its step size is the method's default, neither tuned nor set
    notes: tuple[str, ...] = ()  #: warnings known before the run
    #: task and algorithm that no name can load (run in this process only)
    objects: tuple[Task | None, Method | None] = field(default=(None, None), compare=False, repr=False)
    #: task and method where they are loaded already; not sent to other processes, which load them by name
    loaded: tuple[Task, Method] | None = field(default=None, compare=False, repr=False)
    #: where a user's task is loaded from, ``module:attribute`` or ``file.py:attribute``, and, besides those that
    #: are always searched, the folder of its reference; empty for others
    place: str = field(default="", compare=False)
    references: str = field(default="", compare=False)

    def load(self) -> tuple[Task, Method]:
        """The objects behind the names."""
        return self.loaded or (self.load_task(), self.objects[1] or registry.load_method(self.algorithm))

    def load_task(self) -> Task:
        """The task alone: no code of a plug-in algorithm is run."""
        if self.references:
            search_references(Path(self.references))
        if self.loaded is not None:
            return self.loaded[0]
        return _with_contexts(self.objects[0] or registry.load_task(self.place or self.task), self.spec.contexts)

    @property
    def is_plugin(self) -> bool:
        """Whether the algorithm comes from outside the package."""
        row, held = registry.algorithms().get(self.algorithm), self.objects[1]
        place = type(held).__module__ if held is not None else row.target if row is not None else ""
        return not place.startswith("parvibench.")

    @property
    def own_task(self) -> bool:
        """Whether the task comes from outside the package."""
        row = registry.tasks().get(self.task)
        return bool(self.place or self.objects[0] is not None or row is None or not row.built_in)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "loaded": None}

    def varied(self, **changes: Any) -> Cell:
        """This cell with other values in its specification."""
        loaded = None if {"task", "algorithm", "contexts"} & changes.keys() else self.loaded
        return replace(self, spec=self.spec.model_copy(update=changes), loaded=loaded)

    @property
    def chunks(self) -> list[tuple[int, ...]]:
        """Replicate ids, chunk by chunk."""
        ids, width = self.spec.replicates, self.spec.chunk
        return [ids[i : i + width] for i in range(0, len(ids), width)]

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch knows it."""
        return {"float32": torch.float32, "float64": torch.float64}[self.spec.dtype]

    def missing_needs(self) -> str:
        """Why the pair cannot run, or empty."""
        task, algorithm = self.load()
        # Exact draws are served by an exact sampler or by the rows of the reference.
        served = {"exact"} if type(task).exact is not Task.exact or task.reference() is not None else set()
        lacking = sorted(algorithm.needs - task.provides - served)
        return f"{self.task} offers no {', '.join(lacking)}, which {algorithm.name} needs" if lacking else ""


def _with_contexts(task: Task, contexts: int | None) -> Task:
    if contexts is None or not isinstance(task, SequentialTask):
        return task
    return task.with_contexts(contexts)


def expand(
    suite: Suite,
    *,
    device: str = "cpu",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    objects: Sequence[Task | Method] = (),
    compiled: bool = False,
) -> list[Cell]:
    """All cells of a suite, its profile applied, tasks outermost.

    ``settings`` are overrides per algorithm name or label (``--set``), ``objects`` tasks and algorithms to use for
    these names of the suite. Anchors are never compiled, host-bound algorithms by their own ``compiled_step`` alone.
    ``InputError`` for overrides that fit nothing, and as of ``protocol`` and ``registry.adopt``.
    """
    overrides, known = settings or {}, {n for _, a in suite.pairs for n in (a.name, a.display)}
    for name in [n for n in overrides if n not in known]:
        raise UnknownNameError("algorithm of this suite", name, known)
    by_name: dict[str, Any] = {o.name: o for o in objects}
    for task in (o for o in objects if isinstance(o, Task)):
        registry.adopt(task)
    methods = {a.name: by_name.get(a.name) or registry.load_method(a.name) for _, a in suite.pairs}
    tasks: dict[str, Task] = {}
    effective: dict[str, float | None] = {}  # step of a task's first method with one
    cells = []
    for task_entry, entry in suite.pairs:
        if task_entry.name not in tasks:
            loaded = by_name.get(task_entry.name) or registry.load_task(task_entry.name)
            tasks[task_entry.name] = _with_contexts(loaded, suite.contexts)
        task, method = tasks[task_entry.name], methods[entry.name]
        given = {**entry.chosen, **overrides.get(entry.name, {}), **overrides.get(entry.display, {})}
        values, tuned, untuned = protocol.settings_of(suite, task, entry, method, given)
        if suite.match:
            values, tuned, effective[task.name] = protocol.matched(method, values, tuned, effective.get(task.name))
        preset = given.get("preset")
        rest = protocol.protocol_of(suite, task, entry, method, preset) | {"settings": values, "device": device}
        compiles = method.kind != "anchor" and (not method.host_bound or method.compiled_step() is not None)
        rest["compiled"] = compiled and compiles
        own = "" if task.name in registry.tasks() else registry.place_of(task)
        spec, metrics = (
            _spec(suite, task, method, task_entry, entry.name, **rest),
            protocol.metrics_of(suite, task, entry),
        )
        notes, references = protocol.notes_on(preset, task.name), str(OWN_REFERENCES.resolve()) if own else ""
        named = by_name.get(task_entry.name), by_name.get(entry.name)
        cells.append(Cell(spec, entry.display, metrics, tuned, untuned, notes, named, (task, method), own, references))
    return cells


def _spec(suite: Suite, task: Task, method: Method, entry: TaskEntry, name: str, **rest: Any) -> CellSpec:
    """The specification of the method of that name on a task; ``rest`` are settings, device and protocol."""
    replicates = tuple(range(entry.splits or suite.replicates))
    width = chunk_width(task, method, rest["particles"], len(replicates), rest["device"])
    return CellSpec(
        task=task.name, task_version=task.version, algorithm=name, algorithm_version=method.version,
        source=plugin_source(task, method), replicates=replicates, seed=suite.seed, dtype=suite.dtype,
        chunk=min(width, suite.chunk or width), contexts=task.rows if isinstance(task, SequentialTask) else None, **rest,
    )  # fmt: skip


def chunk_width(task: Task, algorithm: Method, particles: int, replicates: int, device: str) -> int:
    """Replicates per kernel call: all on a GPU; on a CPU as many as stay in cache.

    Measured with 100 particles, a step of 20 replicates at once costs each of them a fifteenth of a step alone in 2
    dimensions, a third in 100, and 1.5 times as much in 512. A network's score of 20 particles and 100 rows costs each
    of 5 replicates half of what it costs one alone; with 100 particles two replicates at once gain nothing.
    """
    if algorithm.max_chunk is not None:
        return min(replicates, algorithm.max_chunk)
    if device != "cpu":
        return replicates
    fitting = min(CPU_CHUNK_PARTICLES // particles, CPU_CHUNK_NUMBERS // (particles * task.dim))
    if task.rows is not None:
        rows = round(task.rows * task.batch_share(full_batch="full-batch" in algorithm.needs))
        fitting = min(fitting, CPU_CHUNK_ROWS // (particles * rows))
    return min(replicates, max(1, fitting))
