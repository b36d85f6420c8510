"""Anchors: fresh exact draws, rows of a reference, initial points."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from sampler_toys import Gaussian, make_problem, normal_start
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.errors import UnsupportedError
from parvibench.core.reference import Reference
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Task


@dataclass(frozen=True, kw_only=True)
class Shifted(Task):
    """N(5, I), with an exact sampler or with a reference of ten rows only."""

    name: str = "shifted"
    summary: str = ""
    dim: int = 2
    tags: frozenset[str] = frozenset()
    citation: str = ""
    sampler: bool = True
    held: Reference | None = None

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        return Gaussian([1.0, 1.0], mean=5.0)

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        return normal_start(target, n, generators)

    def exact(self, n: int, generator: Generator) -> Tensor:
        if not self.sampler:
            return super().exact(n, generator)
        return 5 + torch.randn(n, 2, generator=generator, dtype=torch.float64)

    def reference(self) -> Reference | None:
        return self.held


TASK = Shifted()
HELD = Reference(torch.arange(20, dtype=torch.float64).view(10, 2), False, {})


def draw(name: str, task: Task, n: int, replicates: Sequence[int] = (0, 1, 2)) -> Any:
    problem = make_problem(Gaussian([1.0, 1.0]), replicates, dtype=torch.float32)
    streams = Streams(3, replicates, dtype=torch.float32)
    return registry.load_method(name).draw(task, problem, n, streams)  # type: ignore[attr-defined]


def test_exact_draws_are_fresh_per_replicate() -> None:
    samples, rows = draw("exact", TASK, 400)
    assert (samples.shape, samples.dtype) == ((3, 400, 2), torch.float32)
    assert rows is None
    assert samples.mean().item() == pytest.approx(5, abs=0.1)  # 5 standard errors
    assert not torch.equal(samples[0], samples[1])
    assert torch.equal(draw("exact", TASK, 400, [1])[0][0], samples[1])


def test_without_a_sampler_distinct_rows_of_the_reference_are_named() -> None:
    samples, rows = draw("exact", replace(TASK, sampler=False, held=HELD), 6)
    assert rows.shape == (3, 6)
    assert all(len(set(row)) == 6 for row in rows.tolist())
    assert torch.equal(samples.double(), HELD.draws[rows])


@pytest.mark.parametrize(("held", "message"), [(None, "neither"), (HELD, "leave none")])
def test_exact_is_unsupported_without_rows_to_spare(held: Reference | None, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        draw("exact", replace(TASK, sampler=False, held=held), 10)


def test_initial_draws_are_the_problems_own() -> None:
    samples, rows = draw("initial", TASK, 4)
    assert rows is None
    assert torch.equal(samples, make_problem(Gaussian([1.0, 1.0]), dtype=torch.float32).init(4))
