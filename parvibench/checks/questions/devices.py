"""Whether algorithms do on another device what they do on the CPU: one step by its numbers, samples by their law."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from parvibench.checks.targets import task_named
from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, floating_tensors, take_steps
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

#: Largest relative difference of a step in single precision.
TOLERANCE = 1e-4
#: Chance that one of all algorithms whose law is the same counts as different.
LEVEL = 1e-3
_TARGET, _REPLICATES, _ONE_BY_ONE, _SEED = "unit", 24, 8, 5


@dataclass(frozen=True)
class OnDevice:
    """An algorithm on a device next to the same on the CPU."""

    algorithm: str
    difference: float  #: largest of a first step, relative to the largest number
    p_value: float  #: of the hypothesis that means and spreads of replicates have the same law on both
    seconds: float  #: a step on the device, its waiting included

    def ok(self, algorithms: int) -> bool:
        """Whether both agree, among that many algorithms."""
        return self.difference <= TOLERANCE and self.p_value > LEVEL / algorithms


def comparable() -> list[str]:
    """The algorithms that run in PyTorch; others leave the device to their own library."""
    methods = map(registry.load_method, registry.algorithms())
    return [m.name for m in methods if isinstance(m, Algorithm) and not m.library]


def compare(name: str, device: str) -> OnDevice:
    """Run an algorithm on the device and on the CPU; errors as of a run."""
    algorithm = registry.load_algorithm(name)
    difference = _difference(algorithm, device)
    (here, _), (there, seconds) = (_statistics(algorithm, d, seed) for d, seed in (("cpu", 0), (device, 1)))
    p_values = [stats.ks_2samp(a, b).pvalue for a, b in zip(here.T.numpy(), there.T.numpy(), strict=True)]
    least = float(np.nan_to_num(p_values, nan=0.0).min())  # samples that are no numbers agree with none
    return OnDevice(name, difference, min(1.0, len(p_values) * least), seconds)


class _Shared(Streams):
    """Streams of a device with the CPU's numbers."""

    def _fill(self, *address: Any) -> Tensor:
        return Streams(self.seed, self.replicates, "cpu", self.dtype)._fill(*address).to(self.device)


def _difference(algorithm: Algorithm[Any, Any], device: str) -> float:
    settings = algorithm.make_settings(dict(algorithm.example.quick))
    ids = (0,) if algorithm.max_chunk == 1 else (0, 1, 2)
    states = []
    for place in ("cpu", device):
        task = task_named(_TARGET)
        target = task.target(ids, place, torch.float32)
        problem = Problem(target, _Shared(_SEED, ids, place), start=task.initial, particles=16)
        states.append([t.double().cpu() for t in floating_tensors(list(_states(algorithm, problem, settings, 1))[-1])])
    pairs = zip(*states, strict=True)
    found = [float((a - b).abs().max() / max(1.0, float(a.abs().max()))) for a, b in pairs if a.numel()]
    return float(np.max(found))  # not a number where one is


def _states(algorithm: Algorithm[Any, Any], problem: Problem, settings: Any, steps: int) -> Iterator[Any]:
    with torch.inference_mode(not algorithm.differentiates):
        state = algorithm.init(problem, settings, problem.streams, steps)
        for state, _ in islice(take_steps(algorithm.step, problem, settings, state), steps):  # noqa: B020
            yield state


def _statistics(algorithm: Algorithm[Any, Any], device: str, seed: int) -> tuple[Tensor, float]:
    """Means and logarithmic spreads of the samples of replicates, (R, 2 D) on the CPU, and seconds a step."""
    example = algorithm.example
    settings = algorithm.make_settings(dict(example.settings))
    alone = algorithm.max_chunk == 1
    chunks = [(r,) for r in range(_ONE_BY_ONE)] if alone else [tuple(range(_REPLICATES))]
    found, seconds = [], 0.0
    for ids in chunks:
        problem = task_named(_TARGET).problem(ids, seed, device, particles=algorithm.n_particles or example.points)
        steps = _states(algorithm, problem, settings, example.steps)
        state = next(steps)  # the first one prepares libraries and kernels
        start = _now(device)
        for state in steps:  # noqa: B007
            pass
        seconds += (_now(device) - start) / max(1, example.steps - 1)
        problem.streams.step = example.steps
        with torch.inference_mode(not algorithm.differentiates):
            samples = algorithm.output(problem, settings, state, example.points, problem.streams).double().cpu()
        spread = samples.std(1) if samples.shape[1] > 1 else torch.ones_like(samples[:, 0])
        found.append(torch.cat([samples.mean(1), spread.clamp_min(1e-12).log()], 1))
    return torch.cat(found), seconds / len(chunks)


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
