"""Methods with different numbers of replicates are paired by replicate: the first of the longer with those of the shorter."""

from pathlib import Path

import numpy as np
import pytest
from made_stores import make_record, write_store

from parvibench.harness.store.results import StoredRun
from parvibench.reporting.facts import board as leaderboard
from parvibench.reporting.facts import differences as run_differences

#: Replicates differ by a factor of some hundreds, methods by 10%.
LONG = np.exp(np.random.default_rng(1).normal(0, 2, 12))
SHORT = 1.1 * LONG[:8] * np.exp(np.random.default_rng(2).normal(0, 0.01, 8))


def made(root: Path, **values: np.ndarray) -> StoredRun:
    cells = [
        make_record(name, "plain", name, label=name, values={"oddity": v.tolist()}, replicates=tuple(range(len(v))), chunk=len(v))
        for name, v in values.items()
    ]  # fmt: skip
    return write_store(root, [(cell, None, None) for cell in cells])


def test_two_runs(tmp_path: Path) -> None:
    frame = run_differences.compare(made(tmp_path / "a", ula=LONG), made(tmp_path / "b", ula=SHORT))
    (row,) = frame.itertuples()
    assert row.change == pytest.approx(10, abs=1.5)
    assert row.verdict == "significantly worse"


def test_two_methods_of_a_board(tmp_path: Path) -> None:
    board = leaderboard.table(made(tmp_path, ula=LONG, svgd=SHORT)).set_index("label")
    assert board.loc["ula", "beats"] == 1
    assert board["beaten"].to_dict() == {"ula": False, "svgd": True}


def test_runs_of_different_numbers_of_particles_are_not_paired(tmp_path: Path) -> None:
    first = made(tmp_path / "a", ula=LONG)
    record = make_record(
        "few",
        "plain",
        "ula",
        values={"oddity": (1.1 * LONG).tolist()},
        replicates=tuple(range(12)),
        chunk=12,
        particles=50,
    )
    (row,) = run_differences.compare(first, write_store(tmp_path / "b", [(record, None, None)])).itertuples()
    assert not row.paired
    assert row.verdict == "not significantly different"
