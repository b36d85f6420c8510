"""A Gaussian task small enough for closed forms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.target import Target
from parvibench.core.task import Task
from parvibench.metrics.common import median_distance


class GaussianTarget(Target):
    def __init__(self, dim: int) -> None:
        self.dim = dim

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -0.5 * x.square().sum(-1)


@dataclass(frozen=True, kw_only=True)
class GaussianTask(Task):
    """N(0, I)."""

    provides: frozenset[str] = frozenset({"score", "exact"})

    def target(self, replicates: Sequence[int], device: Any, dtype: torch.dtype) -> GaussianTarget:
        return GaussianTarget(self.dim)

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        return torch.stack([self.exact(n, g) for g in generators])

    def exact(self, n: int, generator: Generator) -> Tensor:
        return torch.randn(n, self.dim, generator=generator, dtype=torch.float64)


MakeContext = Callable[..., Context]


@pytest.fixture
def make_context() -> MakeContext:
    """Context of a Gaussian task; fields of the task in ``task``, everything else goes to the context."""

    def make(dim: int = 2, draws: Tensor | None = None, task: dict[str, Any] | None = None, **extra: Any) -> Context:
        given = {"name": "gaussian", "summary": "", "dim": dim, "tags": frozenset(), "citation": ""}
        made = GaussianTask(**given | (task or {}))
        reference = None
        if draws is not None:
            reference = Reference(draws, True, {"bandwidth": median_distance(draws)})
        return Context(made, reference, GaussianTarget(dim), **extra)

    return make


@pytest.fixture
def generator() -> Generator:
    return Generator().manual_seed(20240521)


@pytest.fixture
def randn(generator: Generator) -> Callable[..., Tensor]:
    """Standard normal draws of a shape, float64."""
    return partial(torch.randn, generator=generator, dtype=torch.float64)
