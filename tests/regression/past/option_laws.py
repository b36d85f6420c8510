"""The law of a few steps under every value of every option.

Golden values fix the same steps to their digits under a fixed noise; here the noise is fresh and only the law counts:
another order of random draws moves every golden value and nothing here.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from golden.noise import normal_numbers
from golden.response import Response
from golden.variants import quick_settings, variants
from torch import Tensor

from parvibench.checks.evidence import Array
from parvibench.checks.question import Expected, Oracle, Question, Values
from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, floating_tensors, take_steps
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem

#: In place of a task's name.
OPTIONS = "options"
_POINTS, _JUDGED = 8, 6
#: Steps, and iterations that the algorithm is told to expect, so that schedules and warm-up move on.
_STEPS, _HORIZON = 9, 18
#: Runs of which a replicate's value is the mean: a quarter of the variance.
_RUNS = 4
#: Tensors of a state that are looked at.
_TENSORS = 3
#: Smaller numbers are rounding errors of zero.
_ROUNDING = 1e-10
#: Sizes that cost time only, where an option is not about them.
_SIZES = {"inner_steps": 1, "warmup_inner_steps": 2}
#: Settings under which the few steps reach what begins late: a network's thousandth.
_LATE: dict[str, dict[str, Any]] = {"sifg": {"net_decay": 0.01, "net_learning_rate": 0.01, "inner_steps": 160}}
#: Between a variant and a statistic.
_BETWEEN = ": "


@dataclass(frozen=True)
class OptionLaws(Question):
    """Whether a few steps have the law that they had, under every value of every option of an algorithm."""

    algorithm: str
    baseline: Mapping[str, Expected]  #: statistic -> what is stored of it
    task: str = OPTIONS
    oracle: Oracle = "past"

    def measure(self, replicates: range, seed: int) -> Values:
        """Statistics of the variants that the baseline holds; of all without one."""
        algorithm = registry.load_algorithm(self.algorithm)
        held = labels(self.baseline)
        found: dict[str, list[float]] = {}
        small = _small(algorithm)
        asked = [(label, small | values) for label, values in _variants(algorithm) if not held or label in held]
        for (label, values), ids in itertools.product(asked, _batches(replicates, algorithm.max_chunk)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of options that the target makes idle
                columns = _statistics(algorithm, values, ids, seed)
            for name, column in columns.items():
                means = column.reshape(-1, _RUNS).mean(1)
                found.setdefault(f"{label}{_BETWEEN}{name}", []).extend(map(_told, means.tolist()))
        return found

    def expected(self) -> Mapping[str, Expected]:
        """The stored statistics."""
        return self.baseline

    @property
    def circumstances(self) -> str:
        """Steps and points."""
        return f"{_STEPS} steps, {_POINTS} points"


def _variants(algorithm: Algorithm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Labels and settings."""
    yield from variants(algorithm)
    if algorithm.name in _LATE:
        yield "late", _LATE[algorithm.name]


def _small(algorithm: Algorithm) -> dict[str, Any]:
    """Whole numbers of the quick example and other sizes: the defaults' own networks and batches are of the traces."""
    numbers = {key: value for key, value in quick_settings(algorithm).items() if type(value) is int}
    return {key: value for key, value in _SIZES.items() if key in algorithm.settings_type.model_fields} | numbers


def algorithms() -> list[str]:
    """Algorithms that are asked: built in, of no other library, and many replicates at a time."""
    rows = [row for row in registry.algorithms().values() if row.built_in and not row.library]
    loaded = {row.name: registry.load_method(row.name) for row in rows}
    return [name for name, method in loaded.items() if isinstance(method, Algorithm) and method.max_chunk != 1]


def variant_names(algorithm: str) -> set[str]:
    """Labels of an algorithm's variants."""
    return {label for label, _ in _variants(registry.load_algorithm(algorithm))}


def labels(statistics: Iterable[str]) -> set[str]:
    """The variants that statistics are of."""
    return {name.rpartition(_BETWEEN)[0] for name in statistics}


def _told(value: float) -> float:
    """To seven digits and without rounding errors of zero: values that replicates share are one on every processor.

    +inf where not finite.
    """
    if not math.isfinite(value):
        return math.inf
    return float(f"{value:.7g}") if abs(value) > _ROUNDING else 0.0


def _batches(replicates: range, most: int | None) -> list[tuple[int, ...]]:
    """Ids of the runs, replicate by replicate, in parts that the algorithm takes at a time."""
    runs = [_RUNS * r + k for r in replicates for k in range(_RUNS)]
    step = _RUNS * max(1, most // _RUNS) if most else len(runs)
    return [tuple(runs[i : i + step]) for i in range(0, len(runs), step)]


def _start(target: Target, n: int, generators: Any) -> Tensor:
    """The same points in every replicate, (R, n, D)."""
    points = torch.from_numpy(normal_numbers(12, n, target.dim))
    return points.expand(len(generators), -1, -1).clone()


def _statistics(algorithm: Algorithm, values: dict[str, Any], ids: tuple[int, ...], seed: int) -> dict[str, Array]:
    """Where the state has moved to and how far, what it remembers, and samples; name -> (R,)."""
    settings, target = algorithm.make_settings(values), Response()
    streams = Streams(seed, ids, "cpu", torch.float64)
    problem = Problem(target, streams, start=_start, particles=algorithm.n_particles or _POINTS)
    count = _STEPS + sum(getattr(settings, name, 0) for name in ("pretraining", "critic_pretraining"))
    with nullcontext() if algorithm.differentiates else torch.inference_mode():
        state: Any = algorithm.init(problem, settings, streams, _HORIZON)
        before = [t.clone() for t in _tensors(state, len(ids))]
        taken = take_steps(algorithm.step, problem, settings, state, 0)
        *_, (state, _) = itertools.islice(taken, count)
        streams.step = count
        output = algorithm.output(problem, settings, state, _JUDGED, streams)
    found = {"charged": np.full(len(ids), float(problem.meter.charged))}
    after = _tensors(state, len(ids))
    for i, tensor in enumerate(after):
        moved = tensor - before[i] if i < len(before) and before[i].shape == tensor.shape else tensor
        found |= {f"state {i}": _direction(moved), f"size of state {i}": _size(moved)}
    return found | {"samples": _direction(output), "size of samples": _size(output)}


def _tensors(state: Any, replicates: int) -> list[Tensor]:
    """The first tensors of a state with a row for each replicate."""
    rows = [t for t in floating_tensors(state) if t.ndim > 1 and len(t) == replicates and t.numel()]
    return rows[:_TENSORS]


def _direction(x: Tensor) -> Array:
    """A weighted mean of all entries of each replicate, every one with a weight of its own, (R,)."""
    flat = x.detach().double().flatten(1)
    weights = torch.from_numpy(normal_numbers(13, flat.shape[1]))
    return (flat @ weights / flat.shape[1]).numpy()


def _size(x: Tensor) -> Array:
    """Logarithm of the root mean square of each replicate, (R,); rounding errors of zero count as so much."""
    return x.detach().double().flatten(1).square().mean(1).sqrt().clamp_min(_ROUNDING).log().numpy()
