"""log Z is judged: against the truth, among replicates, between methods, and by the methods' own doubt."""

from pathlib import Path

import numpy as np
import pytest

import parvibench as pb
from parvibench.harness.marks.log_z import verdicts


class Cell:
    """The part of a cell's record that is read."""

    def __init__(self, label: str, log_z: list[float], se: float = 0.1, doubt: list[float] | None = None) -> None:
        self.label = label
        self.values = {"log_z": list(log_z), "log_z_se": [se] * len(log_z)} | ({"log_z_doubt": doubt} if doubt else {})


def said(truth: float | None, *cells: Cell) -> str:
    return "\n".join(verdicts([("t", truth, cells)]))  # type: ignore[list-item]


def test_false_alarms_are_rare() -> None:
    """500 tables of two right methods with ten replicates: below 1% of each kind, with and without a known truth."""
    g = np.random.default_rng(0)
    tables = [[Cell(label, list(3 + 0.1 * g.standard_normal(10))) for label in "ab"] for _ in range(500)]
    assert sum(bool(said(3.0, *cells)) for cells in tables) <= 20
    assert sum(bool(said(None, *cells)) for cells in tables) <= 28


@pytest.mark.parametrize("n", [1, 2, 10])
def test_too_small_an_error_is_said_beside_the_error(n: int) -> None:
    """Off by 1.8 with 0.15 claimed, low whatever the replicate."""
    text = said(0.0, Cell("smc", [-1.8] * n, 0.15), Cell("right", [0.1] * n, 0.15))
    wrong = f"smc claims 0.15 and is off by -1.8: 0 of {n} intervals hold 0"
    assert text == f"log Z is off by more than the stated errors explain: t ({wrong})"


def test_without_a_truth_replicates_and_methods_are_compared() -> None:
    spread = said(None, Cell("smc", [1.0, 2.0, 3.0]))
    differs = "log Z differs between replicates by more than the stated errors explain"
    assert spread == f"{differs}: t (smc over 2, claims 0.1)"
    apart = said(None, Cell("smc", [1.0, 1.1, 0.9]), Cell("pathfinder", [3.3, 3.2, 3.1]))
    assert "methods disagree on log Z" in apart
    assert "t (smc 1 ± 0.058 and pathfinder 3.2 ± 0.058)" in apart
    assert said(None, Cell("smc", [1.0, 1.1, 0.9]), Cell("pathfinder", [1.1, 1.0, 0.9])) == ""
    assert said(None, Cell("smc", [1.0])) == ""


def test_doubtful_replicates_are_named_and_not_judged() -> None:
    text = said(0.0, Cell("smc", [-9.0, 0.1, 0.0, -0.1], doubt=[1.0, 0.0, 0.0, 0.0]))
    assert text.endswith("do not rely on it: t (smc in 1 of 4 replicates)")
    assert "claims" not in text
    cell = Cell("smc", [0.0, 0.0])
    cell.values["log_z"] = [None, 5.0]  # type: ignore[list-item]
    assert "0 of 1 intervals" in said(0.0, cell)
    cell.values = {"sliced_w2": [1.0]}
    assert said(0.0, cell) == ""


def test_a_kind_of_finding_has_one_line_for_all_tasks() -> None:
    cells = Cell("pathfinder", [0.1, 0.2], doubt=[1.0, 0.0]), Cell("smc", [5.0, 5.1])
    lines = verdicts([(f"t{i}", 0.0, cells) for i in range(9)])  # type: ignore[misc]
    assert [[f" t{i} (" in line for i in range(9)] for line in lines] == [[True] * 9] * 2


def test_log_z_of_a_density_without_its_constant_is_not_reported(tmp_path: Path) -> None:
    options = {"replicates": 1, "budget": {"score_evaluations": 2000}, "workers": 0, "tracking": False, "out": tmp_path}
    run = pb.run(tasks=["banana", "eight-schools-noncentered"], algorithms=["smc"], **options)
    assert [c.task for c in run.cells if "log_z" in c.values] == ["banana"]
