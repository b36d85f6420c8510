"""Densities and scores of the posteriors against Stan itself, at 100 points each."""

import pytest
import stan_cases
from task_data import needs_data

from parvibench.core.registry import load_task

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not stan_cases.has_stan(), reason="needs PyStan 3: PARVIBENCH_STAN_PYTHON names a Python that has it"
    ),
]


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs_data(n)) for n in stan_cases.NAMES])
def test_density_and_score_equal_stans(name: str) -> None:
    """The programs of `stan/` are written from the models' descriptions; PyStan compiles each, in about a minute."""
    task = load_task(name)
    x = stan_cases.points(task, 100)
    found = stan_cases.differences(task, x, stan_cases.stans(task, x))
    assert max(found) <= stan_cases.TOLERANCE.get(name, 1e-8)
