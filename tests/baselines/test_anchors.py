"""Anchors: fresh exact draws, rows of a reference, initial points."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from parvibench.core.errors import UnsupportedError
from parvibench.core.registry import load_method, load_task

#: A sampler, a reference without one, and neither.
EXACT, HELD, NEITHER = "biased-start-gaussian", "blr-breast-cancer", "bnn-diabetes-sklearn"


def draw(name: str, task_name: str, n: int, replicates: Sequence[int] = (0, 1, 2)) -> Any:
    task = load_task(task_name)
    problem = task.problem(replicates, seed=3)
    return load_method(name).draw(task, problem, n, problem.streams)  # type: ignore[attr-defined]


def test_exact_draws_are_fresh_per_replicate() -> None:
    samples, rows = draw("exact", EXACT, 400)
    assert (samples.shape, samples.dtype) == ((3, 400, 2), torch.float32)
    assert rows is None
    assert samples.mean().item() == pytest.approx(0, abs=0.1)  # 5 standard errors; the start lies on one side
    assert not torch.equal(samples[0], samples[1])
    assert torch.equal(draw("exact", EXACT, 400, [1])[0][0], samples[1])


def test_without_a_sampler_distinct_rows_of_the_reference_are_named() -> None:
    samples, rows = draw("exact", HELD, 6)
    assert rows.shape == (3, 6)
    assert all(len(set(row)) == 6 for row in rows.tolist())
    assert torch.equal(samples, load_task(HELD).reference().draws[rows].float())


@pytest.mark.parametrize(("name", "message"), [(NEITHER, "neither"), (HELD, "leave none")])
def test_exact_is_unsupported_without_rows_to_spare(name: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        draw("exact", name, 10_000)


def test_initial_draws_are_the_problems_own() -> None:
    samples, rows = draw("initial", EXACT, 4)
    assert rows is None
    assert torch.equal(samples, load_task(EXACT).problem((0, 1, 2), seed=3).init(4))
