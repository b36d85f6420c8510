"""Traces of algorithms: every preset and every value of every option, five steps from fixed points.

What comes later has runs of its own: in a longer one memories fill and warm-up ends, and one begins with all that a state
counts moved on, for schedules of hundreds of iterations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, Anchor, floating_tensors, take_steps
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from .response import Response, start
from .trace import Trace, Values, weighted
from .variants import choices, cut_settings, moved_settings, quick_settings, variants

POINTS, JUDGED = 8, 6


class Course(NamedTuple):
    """How far a run goes."""

    steps: int
    horizon: int  #: iterations that the algorithm expects, so that warm-up and schedules move on within the steps
    later: int = 0  #: what the whole numbers of a state are moved on by, its i-th by i times as much, after the steps
    last: int = 0  #: steps from there


_SHORT, _LATER = Course(5, 12), Course(1, 12, later=1000, last=2)
#: Of methods with a step size, and of those that find theirs in the first quarter of the horizon.
_LONG, _ADAPTING = Course(16, 64), Course(22, 80)


def sampler_traces(name: str) -> Iterator[Trace]:
    """All traces of an algorithm; an anchor has one."""
    method = registry.load_method(name)
    if isinstance(method, Anchor):
        yield Trace(name, lambda: _anchor(method))
        return
    algorithm = registry.load_algorithm(name)
    quick, moved = quick_settings(algorithm), moved_settings(algorithm)
    for label, values in variants(algorithm):
        yield Trace(f"{name} {label}", partial(_run, algorithm, values))
    for label, values in _lasting(algorithm):
        yield Trace(f"{name} {label}", partial(_run, algorithm, values, course=_long(algorithm)))
    yield Trace(f"{name} later", partial(_run, algorithm, moved, course=_LATER))
    if "full-batch" not in algorithm.needs:
        yield Trace(f"{name} mini-batches", partial(_run, algorithm, quick, batch=4))
    yield Trace(f"{name} budget", partial(_run, algorithm, quick, limit=1e4))
    yield Trace(f"{name} banana", partial(_on_banana, algorithm, quick))
    ran: list[dict[str, Any]] = []
    for preset in algorithm.presets:
        cut = cut_settings(algorithm, preset)
        yield Trace(f"{name} preset={preset}", partial(_preset, algorithm, preset, None if cut in ran else cut))
        ran.append(cut)


def _adapts(algorithm: Algorithm) -> bool:
    return "step_size" not in algorithm.settings_type.model_fields


def _long(algorithm: Algorithm) -> Course:
    return _ADAPTING if _adapts(algorithm) else _LONG


def _lasting(algorithm: Algorithm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Labels and settings of longer runs; a method that adapts itself does so under every word of its options."""
    if not _adapts(algorithm):
        yield "longer", moved_settings(algorithm)
        return
    quick = {key: value for key, value in quick_settings(algorithm).items() if not key.startswith("warmup")}
    yield "longer", quick
    for field, info in algorithm.settings_type.model_fields.items():
        for value in choices(info.annotation):
            if value not in (None, info.default):
                yield f"longer {field}={value}", quick | {field: value}


def _preset(algorithm: Algorithm, preset: str, cut: dict[str, Any] | None) -> Values:
    """What a preset holds, settings at their defaults too, and the steps where no preset before it took the same."""
    held = algorithm.make_settings({"preset": preset}).model_dump() | algorithm.protocol(preset)
    found: Values = {f"preset {key}": [value] for key, value in held.items()}
    return found if cut is None else found | _run(algorithm, cut)


def _run(
    algorithm: Algorithm,
    values: dict[str, Any],
    batch: int | None = None,
    limit: float | None = None,
    course: Course = _SHORT,
) -> Values:
    settings, target = algorithm.make_settings(values), Response()
    streams = Streams(5, (1,) if algorithm.max_chunk == 1 else (1, 2), "cpu", torch.float64)
    n = algorithm.n_particles or POINTS
    problem = Problem(target, streams, start=start, particles=n, batch_size=batch, limit=limit)
    return _steps(algorithm, settings, problem, course)


def _on_banana(algorithm: Algorithm, values: dict[str, Any]) -> Values:
    replicates = (3,) if algorithm.max_chunk == 1 else (0, 3)
    n = algorithm.n_particles or POINTS
    problem = registry.load_task("banana").problem(replicates, 5, "cpu", torch.float64, particles=n)
    return _steps(algorithm, algorithm.make_settings(values), problem)


def _steps(algorithm: Algorithm, settings: Any, problem: Problem, course: Course = _SHORT) -> Values:
    """The first tensor of every state, all of the last one, what steps tell, samples, and what was charged."""
    count = course.steps + sum(getattr(settings, name, 0) for name in ("pretraining", "critic_pretraining"))
    infos: list[Any] = []
    with nullcontext() if algorithm.differentiates else torch.inference_mode():
        state: Any = algorithm.init(problem, settings, problem.streams, course.horizon)
        steps = [weighted(floating_tensors(state)[0])]
        for first, last in ((0, count), (count + course.later, course.last)):
            taken = take_steps(algorithm.step, problem, settings, _moved_on(state, course.later if first else 0), first)
            for state, info in itertools.islice(taken, last):
                steps.append(weighted(floating_tensors(state)[0]))
                infos.append(info)
        problem.streams.step = count
        output = algorithm.output(problem, settings, state, JUDGED, problem.streams)
    found: Values = {"step": list(steps)}
    tensors = floating_tensors(state)[1:]
    if tensors:
        found["state"] = [weighted(t) for t in tensors]
    told = [info for info in infos if info is not None]
    found["info"] = [weighted(torch.stack(values)) for values in zip(*told, strict=True)]
    found["samples"] = [weighted(output), weighted(output.square())]
    found["charged"] = [problem.meter.charged]
    step = algorithm.effective_step(settings)
    return found | ({} if step is None else {"effective step": [step]})


def _moved_on(state: Any, by: int) -> Any:
    """A state whose whole numbers have grown, the first by so much, the second by twice as much, and so on."""
    leaves, form = tree_flatten(state)
    grow = itertools.count(by, by)
    return tree_unflatten([leaf + next(grow) if type(leaf) is int else leaf for leaf in leaves], form)


def _anchor(anchor: Anchor) -> Values:
    found: Values = {}
    for name in ("banana", "ica-synthetic"):
        task = registry.load_task(name)
        problem = task.problem((0, 2), 5, "cpu", torch.float64, particles=POINTS)
        if anchor.needs <= task.provides:
            found[name] = [weighted(anchor.draw(task, problem, JUDGED, problem.streams)[0])]
    return found
