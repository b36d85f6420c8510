"""Traces of algorithms: every preset and every value of every option, five steps from fixed points.

What comes later has runs of its own: in a longer one memories fill and warm-up ends, and one begins with all that a state
counts moved on, for schedules of hundreds of iterations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple, get_args, get_origin

import torch
from torch import Generator, Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, Anchor, floating_tensors, take_steps
from parvibench.core.errors import SettingsError
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem

from .noise import normal_numbers
from .trace import Trace, Values, weighted

POINTS, JUDGED = 8, 6


class Course(NamedTuple):
    """How far a run goes."""

    steps: int
    horizon: (
        int  #: iterations that the algorithm is told to expect, so that warm-up and schedules move on within the steps
    )
    later: int = 0  #: what the whole numbers of a state are moved on by, its i-th by i times as much, after the steps
    last: int = 0  #: steps from there


_SHORT, _LATER = Course(5, 12), Course(1, 12, later=1000, last=2)
#: Of methods with a step size, and of those that find theirs in the first quarter of the horizon.
_LONG, _ADAPTING = Course(16, 64), Course(22, 80)
#: A step with which Metropolis corrections reject, and schemes leave their small-step limit.
_LARGE_STEP = 0.1
#: Sizes that presets are cut to: they cost time only.
_CUT = {
    "hidden": 12, "critic_hidden": 12, "batch": 12, "mixing": 12, "pretraining": 2, "critic_pretraining": 2, "draws": 12,
    "leapfrogs": 3, "inner_steps": 3, "warmup_inner_steps": 3,
}  # fmt: skip
_FLOATS = (0.37, 1.7, 0.03, 3.9)
_INTEGERS = (3, 2, 4, 1)
#: Settings in place of those of the examples, with which rounding would grow within the steps.
_TAME: dict[str, Mapping[str, Any]] = {"chees-hmc": {"max_leapfrogs": 4}, "ada-sifg": {"sigma_step_size": 0.002}}
#: Settings that act together, or at values that those below miss.
_TOGETHER: dict[str, Sequence[Mapping[str, Any]]] = {
    "ksivi": [{"log_var_floor": -0.002, "step_size": 0.01}, {"decay_every": 2, "decay": 0.5}],
    "sifg": [{"net_decay": 0.5, "net_learning_rate": 0.003}],
    "smc": [{"ess_share": 0.99, "annealing": 0.3}],
    "psgld": [{"decay": 0.3, "damping": 0.1, "step_size": 0.1}],
}


class Response(Target):
    """A posterior of a curved regression on ten rows with a Gaussian prior; four more rows for development."""

    dim, rows, development_rows, prior_precision = 3, 10, 4, 0.8

    def __init__(self) -> None:
        table = torch.from_numpy(normal_numbers(11, 14, 4))
        self._rows, self._development = table[:10], table[10:]

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        rows = self._taken(x, batch)
        residual = rows[..., -1].unsqueeze(1) - self._mean(x, rows)
        fit = (len(self._rows) / rows.shape[1]) * residual.square().sum(-1)
        return -0.5 * (fit + self.prior_precision * x.square().sum(-1))

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient, by hand where nothing differentiates it further: (R, N, D) -> (R, N, D)."""
        if x.requires_grad and torch.is_grad_enabled():
            return super().score(x, batch)
        rows = self._taken(x, batch)
        pull = (len(self._rows) / rows.shape[1]) * (rows[..., -1].unsqueeze(1) - self._mean(x, rows))
        slope = 1 + 0.6 * (2 * (x @ rows[..., :3].mT)).cos()
        by_x = (pull * slope) @ rows[..., :3] - self.prior_precision * x
        return torch.cat((by_x[..., :1] + 0.4 * x[..., :1] * pull.sum(-1, keepdim=True), by_x[..., 1:]), -1)

    def fit_gradient(self, x: Tensor, batch: Tensor | None = None, development: bool = False) -> Tensor:
        """Gradient of the mean squared error of the mean prediction: (R, N, D) -> (R, N, D)."""
        rows = self._development.expand(len(x), -1, -1) if development else self._taken(x, batch)
        with torch.inference_mode(False), torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            error = (rows[..., -1] - self._mean(leaf, rows).mean(1)).square().mean(1)
            return torch.autograd.grad(error.sum(), leaf)[0]

    def _taken(self, x: Tensor, batch: Tensor | None) -> Tensor:
        """Rows (R, B, 4): features and response."""
        return self._rows.expand(len(x), -1, -1) if batch is None else self._rows[batch]

    def _mean(self, x: Tensor, rows: Tensor) -> Tensor:
        """Predictions (R, N, B)."""
        linear = x @ rows[..., :3].mT
        return linear + 0.3 * (2 * linear).sin() + 0.2 * x[..., :1].square()


def start(target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
    """Standard normal points, (R, n, D)."""
    return torch.stack([torch.randn(n, target.dim, generator=g, dtype=torch.float64) for g in generators])


def sampler_traces(name: str) -> Iterator[Trace]:
    """All traces of an algorithm; an anchor has one."""
    method = registry.load_method(name)
    if isinstance(method, Anchor):
        yield Trace(name, lambda: _anchor(method))
        return
    algorithm = registry.load_algorithm(name)
    quick, moved = _quick(algorithm), _moved(algorithm)
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
        cut = _cut(algorithm, preset)
        yield Trace(f"{name} preset={preset}", partial(_preset, algorithm, preset, None if cut in ran else cut))
        ran.append(cut)


def variants(algorithm: Algorithm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Labels and settings: the defaults, and every option at another value, alone and with the others moved too."""
    quick, moved = _quick(algorithm), _moved(algorithm)
    fields = algorithm.settings_type.model_fields
    yield "defaults", dict(_TAME.get(algorithm.name, {}))
    yield "all moved", moved
    if "step_size" in fields and algorithm.kind == "chains":
        yield f"step_size={_LARGE_STEP}", quick | {"step_size": _LARGE_STEP}
    for field, info in fields.items():
        for value in _choices(info.annotation):
            if value != info.default and _valid(algorithm, quick | {field: value}):
                yield f"{field}={value}", quick | {field: value}
                if _valid(algorithm, moved | {field: value}):
                    yield f"{field}={value}, others moved", moved | {field: value}
        for value in itertools.islice(_numbers(info.annotation, info.default, algorithm, quick, field), 1):
            yield f"{field}={value:.3g}", quick | {field: value}
    for together in _TOGETHER.get(algorithm.name, ()):
        yield ", ".join(f"{k}={v}" for k, v in together.items()), quick | dict(together)


def _quick(algorithm: Algorithm) -> dict[str, Any]:
    """Settings with which every branch runs within a few steps."""
    return {**algorithm.example.quick, **_TAME.get(algorithm.name, {})}


def _moved(algorithm: Algorithm) -> dict[str, Any]:
    """The same with all numbers off their defaults."""
    moved = _quick(algorithm)
    for field, info in algorithm.settings_type.model_fields.items():
        value = next(iter(_numbers(info.annotation, info.default, algorithm, moved, field)), None)
        moved |= {} if value is None else {field: value}
    return moved


def _adapts(algorithm: Algorithm) -> bool:
    return "step_size" not in algorithm.settings_type.model_fields


def _long(algorithm: Algorithm) -> Course:
    return _ADAPTING if _adapts(algorithm) else _LONG


def _lasting(algorithm: Algorithm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Labels and settings of longer runs; a method that adapts itself does so under every word of its options."""
    if not _adapts(algorithm):
        yield "longer", _moved(algorithm)
        return
    quick = {key: value for key, value in _quick(algorithm).items() if not key.startswith("warmup")}
    yield "longer", quick
    for field, info in algorithm.settings_type.model_fields.items():
        for value in _choices(info.annotation):
            if value not in (None, info.default):
                yield f"longer {field}={value}", quick | {field: value}


def _choices(annotation: Any) -> Iterator[Any]:
    """The words and truth values that a field takes, and None."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif annotation is bool:
        yield from (False, True)
    elif annotation is type(None):
        yield None
    else:
        for part in get_args(annotation):
            if not isinstance(part, int | float):
                yield from _choices(part)


def _numbers(
    annotation: Any, default: Any, algorithm: Algorithm, settings: dict[str, Any], field: str
) -> Iterator[int | float]:
    """Valid numbers off the default for a field that takes numbers, beside the other settings."""
    kinds = {annotation, *_parts(annotation)}
    known: tuple[float, ...] = _INTEGERS if int in kinds else _FLOATS if float in kinds else ()
    if float in kinds and isinstance(default, float) and default:
        known = (0.7 * default, 1.3 * default, *known)
    now = settings.get(field, default)
    return (v for v in known if v not in (default, now) and _valid(algorithm, settings | {field: v}))


def _parts(annotation: Any) -> Iterator[Any]:
    for part in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield part
        yield from _parts(part)


def _valid(algorithm: Algorithm, settings: dict[str, Any]) -> bool:
    try:
        algorithm.make_settings(settings)
    except SettingsError:
        return False
    return True


def _cut(algorithm: Algorithm, preset: str) -> dict[str, Any]:
    given = algorithm.expand_preset({"preset": preset})
    return {key: min(value, _CUT[key]) if key in _CUT else value for key, value in given.items()}


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
