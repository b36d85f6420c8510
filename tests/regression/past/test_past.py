"""The built-in methods compared with their recorded past, statistic by statistic, on fresh replicates of a fixed seed."""

import pytest
from asking import assert_right
from option_laws import algorithms
from recorded import cells, densities, past_of_cell, past_of_density, past_of_options

from parvibench.checks.question import Asked

pytestmark = pytest.mark.past


def compare(asked: Asked) -> None:
    """Fail on what is worse or changed; what has no past yet is skipped."""
    assert not asked.incomparable, "after an intended change: make past"
    for question in asked.questions:
        assert_right(question)
    if asked.new:
        pytest.skip(f"no recorded past yet, record it with make past: {', '.join(asked.new)}")


#: Asked before a release: of three small targets two, and what runs a replicate at a time, twenty times as long as others.
_SLOW = {n for n in cells() if n.startswith(("biased-start-gaussian/", "linear-regression/"))} | {"banana/pathfinder"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in _SLOW else []) for n in cells()])
def test_past(name: str) -> None:
    """Moments, energy and metrics of the samples, early and at the end, and score evaluations."""
    compare(past_of_cell(name))


@pytest.mark.parametrize("task", densities())
def test_density(task: str) -> None:
    """Log density, score and predictions at fixed points."""
    compare(past_of_density(task))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", algorithms())
def test_options(algorithm: str) -> None:
    """The law of nine steps under every value of every option."""
    compare(past_of_options(algorithm))
