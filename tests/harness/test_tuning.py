"""Tuning: one grid for all, replicates of its own, a choice that lands in the suite file."""

from pathlib import Path
from typing import Any

import pytest

from parvibench.core.errors import InputError
from parvibench.core.task import TUNING_REPLICATES
from parvibench.harness.session import run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite import tuning
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import load_suite
from parvibench.harness.workers.executors import InProcess

SUITE = """\
name: mine  # a comment that stays
tasks: [multimodal]
algorithms: [ula, svgd, exact]
replicates: 2
particles: 50
budget: {scores_per_particle: 60}
tune: {step_size: [1.0e-3, 10.0], points: 3}
profiles:
  short: {budget: {scores_per_particle: 30}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(SUITE)
    return file


def test_every_method_gets_the_same_grid_and_budget_on_replicates_of_their_own(path: Path) -> None:
    cells = tuning.tuning_cells(load_suite(str(path)).with_profile("short"))
    assert [c.label for c in cells] == [f"{a} @ {s}" for s in ("0.001", "0.1", "10") for a in ("ula", "svgd")]
    assert {c.spec.budget.score_evaluations for c in cells} == {30 * 50}
    assert {r for c in cells for r in c.spec.replicates} == {TUNING_REPLICATES, TUNING_REPLICATES + 1}


def tune(path: Path, folder: Path) -> Any:
    """The choice after a run of the file's grid, in its short profile."""
    suite = load_suite(str(path)).with_profile("short")
    results = run_cells(tuning.tuning_cells(suite), Store(folder), InProcess(), suite=suite.resolved())
    return tuning.choose(results, suite)


def test_the_best_step_is_chosen_stored_and_used(path: Path, tmp_path: Path) -> None:
    tuned = tune(path, tmp_path / "store")
    # 10 makes ULA leave the unit Gaussians for good, 0.001 does not leave the start.
    assert tuned.step_size["multimodal"]["ula"] == 0.1
    assert tuned.score_evaluations["multimodal"]["ula"] == 3 * 2 * 30 * 50
    tuning.write_tuned(path, tuned, "short")
    assert "# a comment that stays" in path.read_text()
    used = {c.label: c for c in expand(load_suite(str(path)).with_profile("short"))}
    assert (used["ula"].settings["step_size"], used["ula"].tuned) == (0.1, True)
    assert not used["exact"].tuned
    untouched = {c.label: c for c in expand(load_suite(str(path)), settings={"ula": {"step_size": 0.5}})}
    assert (untouched["ula"].settings["step_size"], untouched["ula"].tuned) == (0.5, False)


def test_a_best_value_at_the_end_of_the_grid_is_flagged(path: Path, tmp_path: Path) -> None:
    path.write_text(SUITE.replace("[1.0e-3, 10.0]", "[1.0e-5, 1.0e-3]"))
    tuned = tune(path, tmp_path / "store")
    assert tuned.step_size["multimodal"]["ula"] == 1e-3
    assert "multimodal/ula" in tuned.at_edge


def test_a_suite_without_a_grid_says_how_to_add_one(path: Path) -> None:
    path.write_text("\n".join(line for line in SUITE.splitlines() if not line.startswith("tune")))
    with pytest.raises(InputError, match="add for example: tune:"):
        tuning.tuning_cells(load_suite(str(path)).with_profile("short"))
