"""At equal budgets every method is shown at its checkpoint that is nearest to the level by ratio."""

from pathlib import Path

import records
from made_stores import make_record, write_store

from parvibench.harness.run.judging import AFTERWARDS
from parvibench.reporting.facts.courses import at_equal_budgets


def test_three_times_too_little_is_further_than_two_and_a_third_times_too_much(tmp_path: Path) -> None:
    """Level 300, the median of what was spent: 100 differs from it by less than 700 does; calls in blocks are no steps."""
    cells = []
    for label, costs in {"ula": (100.0, 700.0), "sgld": (30.0, 300.0), "svgd": (20.0, 290.0)}.items():
        rows = [(r, c, 10 * c + 10, cost, cost, "oddity", 1 / cost) for c, cost in enumerate(costs) for r in range(7)]
        known = {"values": {"oddity": [1.0 / costs[-1]] * 7}, "flags": [AFTERWARDS] * (label == "svgd")}
        record = make_record(label, "plain", label, label=label, score_evaluations=costs[-1] * 7, **known)
        cells.append((record, records.make_curve(rows), None))
    results = write_store(tmp_path, cells)
    found = at_equal_budgets(results, results.cells, "oddity")
    assert {row.cell.label: row.spent for row in found["score_evaluations"][1]} == {"ula": 700.0, "sgld": 300.0, "svgd": 290.0}  # fmt: skip
    assert {row.cell.label for row in found["sequential_steps"][1]} == {"ula", "sgld"}
