"""The same work on the CPU and on the stand-in card."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from sampler_toys import Run
from stand_in_card import OnCard, StandInCard
from torch import Tensor
from torch.utils._pytree import tree_leaves

from parvibench.core import registry
from parvibench.core.task import Task
from parvibench.harness.run import loop
from parvibench.harness.store.environment import hardware
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite

#: Steps before the reads of a step are counted: the first may set up what later ones use.
FIRST, COUNTED = 2, 2


class Stepped(NamedTuple):
    """A sampler after some steps."""

    state: list[Tensor]
    output: Tensor
    waits: Counter[str]  #: of the last steps
    gradients: float  #: calls of density or score in those, one after the other


def stepped(
    name: str, task: Task, device: str, card: StandInCard, algorithm: Any = None, dtype: torch.dtype = torch.float64,
    **settings: Any,
) -> Stepped:  # fmt: skip
    """A few steps of six particles, in double precision: rounding alone must not drive two devices apart."""
    method = algorithm or registry.load_algorithm(name)
    ids = (0,) if method.max_chunk == 1 else (0, 1)
    problem = task.problem(ids, 0, device, dtype, particles=6, full_batch="full-batch" in method.needs)
    with mock.patch.object(registry, "load_algorithm", return_value=method):
        run = Run(name, problem, **settings)
    run.steps(FIRST)
    if problem._batch_size:
        problem.streams.batch(task.rows or 0, problem._batch_size)  # an epoch's shuffle comes from the host
    card.waits.clear()
    before = problem.meter.sequential_steps
    run.steps(COUNTED)
    waits, calls = card.waits.copy(), problem.meter.sequential_steps - before
    return Stepped(tensors(run.state), run.output(), waits, calls)


def tensors(found: Any) -> list[Tensor]:
    """The tensors of anything nested."""
    return [t for t in tree_leaves(found) if isinstance(t, Tensor)]


def numbers(found: Any) -> list[Tensor]:
    """Those on the card as tensors of the CPU; ``AssertionError`` where one is on the host."""
    for t in tensors(found):
        assert isinstance(t, OnCard), f"a tensor {tuple(t.shape)} of {t.dtype} was made on the host"
    return [t.inner.detach() for t in tensors(found)]


def assert_same(ours: Any, theirs: Any) -> None:
    """Tensors of the card equal those of the CPU, up to rounding."""
    assert tensors(ours)
    for a, b in zip(numbers(ours), tensors(theirs), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-8, equal_nan=True)


@contextmanager
def plugged_in() -> Iterator[StandInCard]:
    """A machine with the card, whose clock is stopped."""
    card = StandInCard()
    with card.plugged_in(), mock.patch.object(loop, "reference_seconds", return_value=1.0):
        yield card
    hardware.cache_clear()


def cell_of(task: str | Task, algorithm: str, device: str, **keys: Any) -> Cell:
    """A short cell of two replicates."""
    name = task if isinstance(task, str) else task.name
    suite: dict[str, Any] = {
        "name": "both", "tasks": [name], "algorithms": [algorithm], "replicates": 2, "budget": {"iterations": 8},
        "particles": 8, **keys,
    }  # fmt: skip
    method = registry.load_method(algorithm)
    quick = {} if method.kind == "anchor" else {algorithm: method.example.quick}
    objects = () if isinstance(task, str) else (task,)
    return expand(Suite.model_validate(suite), device=device, settings=quick, objects=objects)[0]


def on_both(work: Callable[[str, StandInCard], Any]) -> tuple[Any, Any, StandInCard]:
    """What the work gives on the card and on the CPU, and the card."""
    with plugged_in() as card:
        there = work("cuda", card)
    return there, work("cpu", StandInCard()), card
