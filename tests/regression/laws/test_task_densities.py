"""Exact draws, scores, log densities and stated moments of the shipped tasks agree with each other."""

import pytest
from asking import assert_right

from parvibench.checks.questions.density import DensityTruth
from parvibench.core import registry
from parvibench.core.registry import load_task

_MAX_DIM = 100
#: With exact draws, of moderate dimension, without data on disk.
TASKS = [
    row.name for row in registry.tasks().values() if "exact" in row.tags and not row.data and (row.dim or 0) <= _MAX_DIM
]


@pytest.mark.parametrize("name", TASKS)
def test_density(name: str) -> None:
    task = load_task(name)
    draws = 100 if "path" in task.tags else 4000 if task.dim <= 10 else 500
    assert_right(DensityTruth(name, draws))
