"""From a suite to cells: every (task, algorithm, label) with its complete specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parvibench.core import OWN_REFERENCES, registry, search_references
from parvibench.core.algorithm import Method
from parvibench.core.budget import Budget
from parvibench.core.errors import InputError, UnknownNameError
from parvibench.core.result import CellSpec, Specified
from parvibench.core.sequential import SequentialTask
from parvibench.core.task import Task

from .entries import AlgorithmEntry, Row, TaskEntry
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
    ``InputError`` for overrides that fit nothing, and of a protocol that cannot be run, and as of ``registry.adopt``.
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
        values, tuned, untuned = settings_of(suite, task, entry, method, given)
        if suite.match:
            values, tuned, effective[task.name] = matched(method, values, tuned, effective.get(task.name))
        preset = given.get("preset")
        rest = protocol_of(suite, task, entry, method, preset) | {"settings": values, "device": device}
        compiles = method.kind != "anchor" and (not method.host_bound or method.compiled_step() is not None)
        rest["compiled"] = (compiled or suite.compile) and compiles
        own = "" if task.name in registry.tasks() else registry.place_of(task)
        spec = _spec(suite, task, method, task_entry, entry.name, **rest)
        published = [p.metric for p in entry.published] if isinstance(entry, Row) else []
        metrics = tuple(dict.fromkeys((*(suite.metrics or task.metrics), *published)))
        owner = "" if preset is None else task_of_preset(preset)
        notes = () if owner in ("", task.name) else (f"preset {preset} is that of {owner}, not of {task.name}",)
        references = str(OWN_REFERENCES.resolve()) if own else ""
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


MAX_CHECKPOINTS = 1000  #: Limit of an entry's checkpoints.


def settings_of(
    suite: Suite, task: Task, entry: AlgorithmEntry | Row, algorithm: Method, given: Mapping[str, Any]
) -> tuple[dict[str, Any], bool, bool]:
    """All settings of a cell, whether its step size is a tuned one, and whether it is the default."""
    chosen = algorithm.expand_preset(given)
    of_task = {} if suite.tuned is None else suite.tuned.step_size.get(task.name, {})
    step = of_task.get(entry.display, of_task.get(entry.step_from or ""))
    given_step = "step_size" in chosen
    tuned = step is not None and not given_step
    if tuned and suite.tuned is not None:
        options = suite.tuned.settings.get(task.name, {}).get(entry.step_from or entry.display, {})
        chosen = {**options, **chosen, "step_size": step}
    values = algorithm.make_settings(chosen).model_dump(mode="json")
    return values, tuned, "step_size" in values and not tuned and not given_step


def matched(
    algorithm: Method, values: dict[str, Any], tuned: bool, target: float | None
) -> tuple[dict[str, Any], bool, float | None]:
    """The settings, whether their step size is a tuned one, and the effective step of the methods that follow.

    The step size is scaled so that the effective step is that of the task's first method with one, ``target``. Methods
    without an effective step (adaptive rules have none) keep their step size.
    """
    effective = algorithm.effective_step(algorithm.make_settings(values))
    if effective is None or "step_size" not in values:
        return values, tuned, target
    if target is None or effective == target:
        return values, tuned, effective
    scaled = algorithm.make_settings({**values, "step_size": values["step_size"] * target / effective})
    return scaled.model_dump(mode="json"), False, target


def protocol_of(
    suite: Suite, task: Task, entry: AlgorithmEntry | Row, algorithm: Method, preset: str | None
) -> dict[str, Any]:
    """Budget, N, n, burn-in, thinning and checkpoints of a cell: of the entry, else of the preset, else of the suite."""
    shared = suite.particles or task.particles
    of_preset = {} if preset is None else algorithm.protocol(preset)
    if "iterations" in of_preset:
        of_preset["budget"] = Budget(iterations=of_preset.pop("iterations"))
    names = ("particles", "samples", "burn_in", "thinning", "start")
    of_entry = {name: value for name in names if (value := getattr(entry, name)) is not None}
    of_suite = {name: getattr(suite, name) for name in names} | {"particles": shared}
    if entry.limits is not None:
        of_entry["budget"] = entry.limits
    chosen: dict[str, Any] = {"budget": suite.budget, **of_suite, **of_preset, **of_entry}
    if chosen["budget"] is None:
        raise InputError(f"{entry.display} on {task.name} has no budget: give it iterations, or the suite a budget")
    # Chains of another number than the suite's are judged by as many samples as all: their paths hold them.
    others = shared if algorithm.kind == "chains" and entry.particles is not None else chosen["particles"]
    chosen |= _sizes(f"{entry.display} on {task.name}", algorithm, chosen["particles"], chosen["samples"] or others)
    if algorithm.kind != "chains" or isinstance(task, SequentialTask):
        chosen |= {"burn_in": 0.0, "thinning": 1}
    # scores_per_particle is the same number of scored rows for all methods: mini-batch units of the task.
    chosen["budget"] = chosen["budget"].resolve(shared, task.batch_share())
    followed, particles = entry.trajectories, chosen["particles"]
    if followed and algorithm.kind not in ("particles", "chains"):
        raise InputError(f"trajectories of {entry.display}: a method of kind {algorithm.kind} moves no particles")
    if followed > particles:
        raise InputError(f"trajectories of {entry.display}: {followed} are more than its {particles} particles")
    return chosen | {"checkpoints": _checkpoints(entry, algorithm, chosen), "trajectories": entry.trajectories}


def _sizes(cell: str, algorithm: Method, particles: int, samples: int) -> dict[str, int]:
    """N and n of a cell; ``InputError`` where n samples cannot be judged."""
    if algorithm.n_particles is not None:
        particles = algorithm.n_particles
    elif algorithm.kind == "particles" and samples > particles:
        raise InputError(f"{cell}: {samples} samples, more than its {particles} particles")
    if samples < 2:
        raise InputError(
            f"{cell} is judged by a single sample: give it more particles, or say how many samples of its path are "
            "judged (--samples, samples: of its entry)"
        )
    return {"particles": particles, "samples": samples}


def _checkpoints(entry: AlgorithmEntry | Row, algorithm: Method, protocol: Mapping[str, Any]) -> tuple[int, ...]:
    """The iterations before the last at which a cell is measured where its entry or a published number says so."""
    where, asked = entry.checkpoints, entry.published if isinstance(entry, Row) else ()
    named = [p.checkpoint for p in asked if p.checkpoint is not None]
    if where is None and not named:
        return ()
    last = protocol["budget"].iterations
    if last is None:
        raise InputError(f"checkpoints of {entry.display} are iterations: its budget must be one of iterations")
    explicit = tuple(range(where, last, where)) if isinstance(where, int) else where or ()
    found = sorted({*explicit, *named})
    if found and found[-1] > last:
        raise InputError(f"checkpoints of {entry.display}: {found[-1]} is beyond its {last} iterations")
    if len(found) > MAX_CHECKPOINTS:
        raise InputError(f"checkpoints of {entry.display}: {len(found)}, more than {MAX_CHECKPOINTS}")
    for number in asked:
        judged = _judged(algorithm, protocol, number.checkpoint or last)
        if number.samples not in (None, judged):
            raise InputError(f"{number.pointer} is of {number.samples} samples; {entry.display} has {judged} there")
    return tuple(k for k in found if k < last)


def _judged(algorithm: Method, protocol: Mapping[str, Any], iteration: int) -> int:
    """How many samples are judged at an explicit checkpoint: of a chain those its path holds by then."""
    n: int = protocol["samples"]
    if algorithm.kind != "chains" or protocol["particles"] >= n or protocol["burn_in"] < 1:
        return n
    held: int = (iteration - int(protocol["burn_in"])) // protocol["thinning"] * protocol["particles"]
    return held if 1 < held < n else n


def task_of_preset(preset: str) -> str:
    """The task that a preset is named after, itself or followed by ``-`` and a suffix, the longest of several; or empty."""
    return max((t for t in registry.tasks() if f"{preset}-".startswith(f"{t}-")), key=len, default="")
