"""Score evaluations of cells: as many for every method of a task, and when tuning as often over the rows that are left."""

import pytest

from parvibench.core.registry import load_task
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.suite import tuning
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import parse_suite

SUITE = """
name: mine
tasks: [bnn-diabetes-sklearn, banana]
algorithms: [sgld]
particles: 5
budget: {scores_per_particle: 60}
tune: {step_size: [1.0e-3, 10.0], points: 2, replicates: 2}
"""


def test_mini_batches_have_the_horizon_of_the_rows_that_are_left() -> None:
    """A score of a batch is its share of the rows; of 80% of the rows it is a share larger by 1 / 0.8."""
    cells = tuning.Tuner(parse_suite(SUITE.encode(), "mine.yaml")).first_cells()
    budgets = {c.task: c.spec.budget.score_evaluations for c in cells}
    assert budgets["banana"] == pytest.approx(60 * 5 * 0.25)
    task = load_task("bnn-diabetes-sklearn")
    assert budgets[task.name] == pytest.approx(60 * 5 * task.batch_size / task.rows * 0.25 / 0.8)


def test_a_method_with_its_own_number_of_particles_has_the_budget_of_the_others() -> None:
    """Scores per particle are multiplied by the suite's number: SRLD is one chain, one entry has twice as many particles."""
    text = SUITE.partition("tune:")[0].replace("bnn-diabetes-sklearn, ", "")
    text = text.replace("[sgld]", "[sgld, {name: srld}, {name: svgd, particles: 10}]")
    cells = expand(parse_suite(text.encode(), "mine.yaml"))
    assert [c.spec.particles for c in cells] == [5, 1, 10]
    assert {c.spec.budget.score_evaluations for c in cells} == {60.0 * 5}


def test_chains_that_never_step_within_the_budget_say_so() -> None:
    text = SUITE.partition("tune:")[0].replace("bnn-diabetes-sklearn, ", "").replace("60", "5")
    hmc, svgd = expand(parse_suite(text.replace("[sgld]", "[hmc, svgd]").encode(), "mine.yaml"))
    stood, moved = run_chunk(hmc, [0]), run_chunk(svgd, [0])
    assert (stood.iterations, moved.iterations) == (0, 5)
    assert [any("its start is judged" in f for f in found.flags) for found in (stood, moved)] == [True, False]
