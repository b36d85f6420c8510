"""The protocol of a cell: settings, budget, N, n, burn-in, checkpoints, of an entry, its preset or the suite."""

from collections.abc import Mapping
from typing import Any

from parvibench.core import registry
from parvibench.core.algorithm import Method
from parvibench.core.budget import Budget
from parvibench.core.errors import InputError
from parvibench.core.sequential import SequentialTask
from parvibench.core.task import Task

from .entries import AlgorithmEntry, Row
from .suite import Suite

MAX_CHECKPOINTS = 1000  #: Limit of an entry's checkpoints.


def metrics_of(suite: Suite, task: Task, entry: AlgorithmEntry | Row) -> tuple[str, ...]:
    """Metrics of a cell: the suite's or the task's, and those of its published numbers."""
    asked = [p.metric for p in entry.published] if isinstance(entry, Row) else []
    return tuple(dict.fromkeys((*(suite.metrics or task.metrics), *asked)))


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
    """The task that a preset is named after, itself or followed by ``-`` and a suffix; empty if there is none.

    Where several task names fit, the longest one is meant.
    """
    return max((t for t in registry.tasks() if f"{preset}-".startswith(f"{t}-")), key=len, default="")


def notes_on(preset: str | None, task: str) -> tuple[str, ...]:
    """A warning where the preset is that of another task."""
    owner = "" if preset is None else task_of_preset(preset)
    if owner in ("", task):
        return ()
    return (f"preset {preset} is that of {owner}, not of {task}",)
