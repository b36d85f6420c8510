"""Metrics of fresh exact draws are distributed like the shipped noise floors, and U-statistics have no bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
import torch
from asking import assert_right
from law_tools import exact_draws
from numpy.typing import NDArray

from parvibench.checks.question import Better, Bound, Expected, Law, Question, Values
from parvibench.checks.summaries import generator_of
from parvibench.core import registry
from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.registry import load_task
from parvibench.metrics.compute import compute

Array = NDArray[np.float64]

#: Size of the sets that are compared with their floors.
_FLOOR_SIZE = 100


@dataclass(frozen=True)
class Floors(Question):
    """Whether metrics of fresh exact draws are distributed like the shipped noise floors."""

    task: str  #: one with an exact sampler and a reference
    metrics: tuple[str, ...]  #: names
    algorithm: str = "metrics"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Every metric of one set of draws per replicate."""
        task = load_task(self.task)
        target = task.target([0], "cpu", torch.float64)
        sets = [task.exact(_FLOOR_SIZE, generator_of(self.task, "floor", seed, r)) for r in replicates]
        values, _ = compute(self.metrics, torch.stack(sets), Context(task, task.reference(), target))
        return {name: value.tolist() for name, value in values.items()}

    def expected(self) -> Mapping[str, Expected]:
        """The floors."""
        reference = load_task(self.task).reference()
        assert reference is not None
        return {
            name: Law(reference.floors[name][_FLOOR_SIZE], better=_better(registry.metrics()[name].direction))
            for name in self.metrics
        }


def _better(direction: str) -> Better:
    """A metric's direction; ``same`` for a neutral one."""
    return next((known for known in get_args(Better) if known == direction), "same")


@dataclass(frozen=True)
class Unbiased(Question):
    """Whether U-statistics of exact draws average zero; of KSD without the pairs i = j."""

    task: str = "banana"  #: one with an exact sampler
    sets: int = 30  #: in a replicate; their mean is the statistic
    points: int = 30  #: of a set
    bandwidth: float = 1.5  #: of both kernels, in units of x
    algorithm: str = "metrics"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Squared discrepancies, of draws against the density and against other draws."""
        task = load_task(self.task)
        target = task.target([0], "cpu", torch.float64)
        values: dict[str, list[float]] = {name: [] for name in self.expected()}
        for r in replicates:
            x, y = exact_draws(task, 2 * self.sets, self.points, generator_of("pairs", seed, r)).chunk(2)
            found = []
            for own, others in zip(x, y, strict=True):
                reference = Reference(others, True, {"bandwidth": self.bandwidth})
                scores, _ = compute(("ksd", "mmd2_u"), own[None], Context(task, reference, target))
                n, diagonal = len(own), target.score(own[None]).square().sum() + own.numel() / self.bandwidth**2
                u = (n**2 * scores["ksd"].square() - diagonal) / (n * (n - 1))
                found.append([float(u), float(scores["mmd2_u"])])
            for name, value in zip(values, np.mean(found, axis=0), strict=True):
                values[name].append(float(value))
        return values

    def expected(self) -> Mapping[str, Expected]:
        """Zero on average."""
        return {"unbiased.ksd": Bound(0.0), "unbiased.mmd2_u": Bound(0.0)}


_CHEAP = (
    "sliced_w2", "w2", "mmd2", "mmd2_u", "energy_distance", "kl_knn", "ks_marginal", "ksd", "mean_error", "sd_error",
    "correlation_error",
)  # fmt: skip


@pytest.mark.parametrize(
    ("task", "metrics"),
    [
        pytest.param("banana", _CHEAP, id="banana"),
        pytest.param("gmm2-20d", (*_CHEAP, "w1", "modes_found", "mode_weight_tv"), id="gmm2-20d", marks=pytest.mark.ci),
        pytest.param("gmm2-20d", ("c2st",), id="gmm2-20d, classifier", marks=pytest.mark.ci),
    ],
)
def test_floors(task: str, metrics: tuple[str, ...]) -> None:
    assert_right(Floors(task, metrics))


def test_u_statistics_have_no_bias() -> None:
    assert_right(Unbiased())
