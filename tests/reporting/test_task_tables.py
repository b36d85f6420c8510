"""The table of whole paths: converged chains first, by equivalent n; the others without numbers."""

import math

from records import make_record

from parvibench.reporting.tables.task_tables import path_table


def chain(label, rhat, size, primary, kind="chains"):
    values = {"rhat": rhat, "path_equivalent_n": size, "path_primary": primary, "ess_per_evaluation": 0.002}
    return make_record(label, label=label, kind=kind, values={m: [v] * 3 for m, v in values.items()})


def test_converged_chains_come_first_by_equivalent_n() -> None:
    table = path_table([chain("a", 1.01, 50.0, 0.2), chain("b", 1.3, 900.0, 0.1), chain("c", 1.0, 80.0, 0.3)])
    assert table is not None
    assert [row.entries[0].text for row in table.rows] == ["c", "a", "b"]
    equivalent, primary, ess = table.rows[0].entries[2:5]
    assert float(equivalent.sort) == 80
    assert float(primary.sort) == 0.3
    assert math.isclose(float(ess.sort), 2)  # per 1,000 scores
    unconverged = table.rows[2].entries
    assert unconverged[1].note == "not converged"
    assert [e.text for e in unconverged[2:5]] == ["", "", ""]


def test_only_chains_with_paths_are_listed() -> None:
    assert path_table([chain("a", 1.0, 5.0, 0.1, kind="particles")]) is None
