"""Tuned on four fifths of the training rows, mini-batches cover the rows as often as in the whole run."""

import pytest

from parvibench.core.registry import load_task
from parvibench.harness.suite import tuning
from parvibench.harness.suite.suite import parse_suite

SUITE = """
name: mine
tasks: [bnn-diabetes-sklearn, banana]
algorithms: [sgld]
particles: 5
budget: {scores_per_particle: 60}
tune: {step_size: [1.0e-3, 10.0], points: 2, replicates: 2, share: 0.5}
"""


def test_mini_batches_have_the_horizon_of_the_rows_that_are_left() -> None:
    """A score of a batch is its share of the rows; of 80% of the rows it is a share larger by 1 / 0.8."""
    cells = tuning.Tuner(parse_suite(SUITE.encode(), "mine.yaml")).first_cells()
    budgets = {c.task: c.spec.budget.score_evaluations for c in cells}
    assert budgets["banana"] == pytest.approx(60 * 5 * 0.5)
    task = load_task("bnn-diabetes-sklearn")
    assert budgets[task.name] == pytest.approx(60 * 5 * task.batch_size / task.rows * 0.5 / 0.8)
