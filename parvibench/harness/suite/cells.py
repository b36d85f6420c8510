"""From a suite to cells: every (task, algorithm, label) pair with all it takes to run and to name it."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm
from parvibench.core.budget import Budget
from parvibench.core.errors import InputError, UnknownNameError
from parvibench.core.sequential import SequentialTask
from parvibench.core.task import Task

from .suite import AlgorithmEntry, Suite, TaskEntry

#: A chunk on a CPU holds at most this many particles, and numbers in a state: beyond, the batch falls out of cache.
CPU_CHUNK_PARTICLES = 2000
CPU_CHUNK_NUMBERS = 250_000


@dataclass(frozen=True)
class Cell:
    """One (task, algorithm, label) with all its replicates; ``key`` names its results.

    Attributes:
        task: task name.
        algorithm: algorithm name (or ``module:Class`` of a plug-in).
        label: name in tables; not part of the key.
        settings: the complete settings.
        tuned: whether the step size was chosen by tuning.
        budget: resolved.
        particles: N.
        samples: n judged.
        replicates: ids of the replicates.
        chunk: replicates per kernel call.
        source: digest of the source of a plug-in, else empty.
        contexts: decisions of a sequential task, else None.
        compiled: whether its steps go through ``torch.compile``.
        objects: task and algorithm objects that no name can load (run in this process only).
    """

    task: str
    task_version: int
    algorithm: str
    algorithm_version: int
    label: str
    settings: Mapping[str, Any]
    tuned: bool
    budget: Budget
    particles: int
    samples: int
    replicates: tuple[int, ...]
    seed: int
    chunk: int
    device: str
    dtype: str
    metrics: tuple[str, ...]
    source: str = ""
    contexts: int | None = None
    compiled: bool = False
    objects: tuple[Task | None, Algorithm | None] = field(default=(None, None), compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """Names the results: everything that may change a sample, nothing else."""
        parts = {
            "task": [self.task, self.task_version],
            "algorithm": [self.algorithm, self.algorithm_version, self.source],
            "settings": dict(self.settings),
            "budget": self.budget.model_dump(),
            "particles": self.particles,
            "samples": self.samples,
            "replicates": self.replicates,
            "seed": self.seed,
            "chunk": self.chunk,
            "device": self.device,
            "dtype": self.dtype,
        }
        if self.contexts is not None:
            parts["contexts"] = self.contexts
        if self.compiled:
            parts["compiled"] = True
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def load(self) -> tuple[Task, Algorithm]:
        """The objects behind the names."""
        task, algorithm = self.objects
        task = task or registry.load_task(self.task)
        if self.contexts is not None and isinstance(task, SequentialTask):
            task = task.with_contexts(self.contexts)
        return task, algorithm or registry.load_algorithm(self.algorithm)

    @property
    def chunks(self) -> list[tuple[int, ...]]:
        """Replicate ids, chunk by chunk."""
        return [self.replicates[i : i + self.chunk] for i in range(0, len(self.replicates), self.chunk)]

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch knows it."""
        return {"float32": torch.float32, "float64": torch.float64}[self.dtype]

    def missing_needs(self) -> str:
        """Why the pair cannot run, or empty."""
        task, algorithm = self.load()
        lacking = sorted(algorithm.needs - task.provides - _harness_provides(task))
        return f"{self.task} offers no {', '.join(lacking)}, which {self.algorithm} needs" if lacking else ""


def _harness_provides(task: Task) -> set[str]:
    """``exact`` is served by an exact sampler or by the rows of the reference."""
    has_exact = type(task).exact is not Task.exact or task.reference() is not None
    return {"exact"} if has_exact else set()


def expand(
    suite: Suite,
    *,
    device: str = "cpu",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    objects: Sequence[Task | Algorithm] = (),
    compiled: bool = False,
) -> list[Cell]:
    """All cells of a suite, tasks outermost.

    Args:
        suite: validated, its profile applied.
        device: ``cpu`` or ``cuda``.
        settings: overrides per algorithm name or label (``--set``).
        objects: task and algorithm objects to use where the suite says their names.
        compiled: steps through ``torch.compile``, but for anchors and algorithms bound to the host.

    Raises:
        InputError: overrides that fit nothing, invalid settings, more samples than particles.
    """
    overrides = dict(settings or {})
    known = {a.name for a in suite.algorithms} | {a.display for a in suite.algorithms}
    for name in overrides:
        if name not in known:
            raise UnknownNameError("algorithm of this suite", name, known)
    by_name = {o.name: o for o in objects}
    cells = list(_cells(suite, device, overrides, by_name))
    if compiled:
        cells = [replace(cell, compiled=_compilable(cell.load()[1])) for cell in cells]
    return _with_matched_steps(cells) if suite.match else cells


def _compilable(algorithm: Algorithm) -> bool:
    return algorithm.kind != "anchor" and not algorithm.host_bound


def _with_matched_steps(cells: list[Cell]) -> list[Cell]:
    """Step sizes scaled so that every effective step of a task equals that of its first method with one.

    Methods without an effective step (adaptive rules have none) keep their step size.
    """
    targets: dict[str, float] = {}
    matched = []
    for cell in cells:
        algorithm = cell.load()[1]
        effective = algorithm.effective_step(algorithm.make_settings(dict(cell.settings)))
        if effective is not None and "step_size" in cell.settings:
            target = targets.setdefault(cell.task, effective)
            if effective != target:
                scaled = cell.settings["step_size"] * target / effective
                values = algorithm.make_settings({**cell.settings, "step_size": scaled}).model_dump(
                    mode="json"
                )
                cell = replace(cell, settings=values, tuned=False)
        matched.append(cell)
    return matched


def _cells(
    suite: Suite, device: str, overrides: Mapping[str, Mapping[str, Any]], objects: Mapping[str, Any]
) -> Iterator[Cell]:
    for task_entry in suite.tasks:
        task = objects.get(task_entry.name) or registry.load_task(task_entry.name)
        if suite.contexts is not None and isinstance(task, SequentialTask):
            task = task.with_contexts(suite.contexts)
        for entry in suite.algorithms:
            algorithm = objects.get(entry.name) or registry.load_algorithm(entry.name)
            cell = _cell(suite, device, task_entry, task, entry, algorithm, overrides)
            held = (objects.get(task_entry.name), objects.get(entry.name))
            yield replace(cell, objects=held, source=_plugin_source(task, algorithm))


def _cell(
    suite: Suite,
    device: str,
    task_entry: TaskEntry,
    task: Task,
    entry: AlgorithmEntry,
    algorithm: Algorithm,
    overrides: Mapping[str, Mapping[str, Any]],
) -> Cell:
    given = algorithm.expand_preset(
        {**entry.settings, **overrides.get(entry.name, {}), **overrides.get(entry.display, {})}
    )
    tuned_step = None if suite.tuned is None else suite.tuned.step_size.get(task.name, {}).get(entry.display)
    tuned = tuned_step is not None and "step_size" not in given
    if tuned:
        given["step_size"] = tuned_step
    values = algorithm.make_settings(given).model_dump(mode="json")
    suite_particles = suite.particles or task.particles
    samples = suite.samples or suite_particles
    particles = algorithm.n_particles or suite_particles
    if algorithm.kind == "particles" and algorithm.n_particles is None and samples > particles:
        raise InputError(f"samples ({samples}) exceed the particles ({particles}) of {entry.display}")
    replicates = tuple(range(task_entry.splits or suite.replicates))
    # scores_per_particle is the same number of scored rows for all methods: mini-batch units of the task.
    budget = suite.budget.resolve(suite_particles, task.batch_share())
    return Cell(
        task=task.name,
        task_version=task.version,
        algorithm=entry.name,
        algorithm_version=algorithm.version,
        label=entry.display,
        settings=values,
        tuned=tuned,
        budget=budget,
        particles=particles,
        samples=samples,
        replicates=replicates,
        seed=suite.seed,
        chunk=chunk_width(task, algorithm, particles, len(replicates), device),
        device=device,
        dtype=suite.dtype,
        metrics=tuple(suite.metrics or task.metrics),
        contexts=task.rows if isinstance(task, SequentialTask) else None,
    )


def chunk_width(task: Task, algorithm: Algorithm, particles: int, replicates: int, device: str) -> int:
    """Replicates per kernel call: all on a GPU; on a CPU as many as stay in cache.

    Particles times data rows leave the cache with one replicate already unless they are few. Measured
    with 100 particles, a step of 20 replicates at once costs each of them a fifteenth of a step alone in 2
    dimensions, a third in 100, and 1.5 times as much in 512.
    """
    if algorithm.max_chunk is not None:
        return min(replicates, algorithm.max_chunk)
    if device != "cpu":
        return replicates
    numbers = particles * task.dim
    if task.rows is not None and (particles > 1 or "full-batch" in algorithm.needs):
        numbers *= task.rows
    fitting = min(CPU_CHUNK_PARTICLES // particles, CPU_CHUNK_NUMBERS // numbers)
    return min(replicates, max(1, fitting))


def _plugin_source(task: Task, algorithm: Algorithm) -> str:
    """SHA-256 over the source files of whatever does not come with the package, else empty."""
    digest = hashlib.sha256()
    outside = [type(o) for o in (task, algorithm) if not type(o).__module__.startswith("parvibench.")]
    for owner in outside:
        try:
            digest.update(Path(inspect.getfile(owner)).read_bytes())
        except (OSError, TypeError):  # defined interactively: its name is all there is
            digest.update(repr(owner).encode())
    return digest.hexdigest() if outside else ""
