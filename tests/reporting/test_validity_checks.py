"""What a page says of equal budgets and starts follows from its cells, whatever they are."""

import re

import numpy as np
import pandas as pd
import pytest
from made_stores import make_curve, make_record, with_values, write_store
from scipy import stats

from parvibench.harness.run.judging import SEQUENTIAL
from parvibench.reporting.facts import board as leaderboard
from parvibench.reporting.page import provenance
from parvibench.reporting.tables.task_tables import equal_budget_tables
from parvibench.reporting.text import marks

pytestmark = pytest.mark.usefixtures("no_floors")


def cell(label, algorithm=None, scale=1.0, seed=0, calls=1.0, **changes):
    """A record with its curve: ``calls`` sequential steps an iteration."""
    curve = make_curve(np.random.default_rng(seed), ["sliced_w2"], scale)
    steps = curve.assign(metric=SEQUENTIAL, value=calls * curve["iteration"])
    curve = pd.concat([curve, steps], ignore_index=True)
    return with_values(make_record(label, "banana", algorithm or label, label=label, **changes), curve), curve, None


def test_methods_with_other_conditions_are_named_and_no_others(tmp_path):
    labels = {"ula", "svgd", "mala", "srld", "ksivi"}

    def named(*cells):
        said = provenance.equal_terms(write_store(tmp_path / str(len(cells)), cells))
        return set(re.findall(r"[\w-]+", said)) & labels

    assert named(cell("ula", start="task"), cell("svgd", start="task")) == set()
    odd = cell("srld", particles=1, start="task"), cell("ksivi", start="own", budget={"iterations": 90})
    assert named(cell("ula", start="task"), cell("mala", start="task"), *odd) == {"srld", "ksivi"}


def entries(table):
    return {row.entries[0].text: row.entries for row in table.rows}


def test_both_budgets_come_from_the_checkpoints_of_one_run(tmp_path):
    """One chain takes a hundred steps where the others take one: at equal steps it is judged at a hundredth of its run."""
    cells = [cell("ula", seed=1), cell("svgd", seed=2), cell("srld", seed=3, calls=100.0)]
    results = write_store(tmp_path, cells)
    work, steps = equal_budget_tables(results, "banana", "sliced_w2")
    assert work.caption == "At equal score evaluations: 4.00e6 per replicate"
    assert steps.caption == "At equal sequential steps: 40000 per replicate"
    curve = cells[2][1]
    for table, checkpoint in ((work, 4), (steps, 2)):
        shown = entries(table)
        at = curve[(curve["checkpoint"] == checkpoint) & (curve["metric"] == "sliced_w2")]
        assert float(shown["srld"][2].sort) == pytest.approx(at["value"].median(), rel=1e-5)  # the page has six digits
        assert shown["srld"][4].text == f"{4 * 10**checkpoint:,}"
        others = [float(shown[m][2].sort) for m in ("ula", "svgd", "srld")]
        assert [float(shown[m][1].text) for m in ("ula", "svgd", "srld")] == stats.rankdata(others).tolist()
    assert entries(steps)["srld"][3].text == "40,000"


def test_a_method_with_a_larger_budget_of_its_own_is_shown_and_not_ranked(tmp_path):
    """90 iterations of a hundredth of the cost are no larger budget; more scores than any other has are."""
    small, large = {"iterations": 90}, {"iterations": 90000}
    cells = [
        cell("ula", scale=2.0, start="task"),
        cell("mala", scale=3.0, start="task"),
        cell("svgd", scale=3.0, start="task"),
        cell("pathfinder", scale=2.5, start="own", budget=small),
        cell("ksivi", scale=0.1, start="own", budget=large),
    ]
    spent = {"ksivi": 1e6, "pathfinder": 10.0}
    cells = [(r.model_copy(update={"score_evaluations": spent.get(r.label, 1000.0)}), c, s) for r, c, s in cells]
    board = leaderboard.table(write_store(tmp_path, cells)).set_index("label")
    assert board.loc["ksivi", "median"] < board.loc["ula", "median"]
    assert np.isnan(board.loc["ksivi", "rank"])
    assert board["best"].to_dict() == {label: label == "ula" for label in board.index}
    assert marks.MORE in board.loc["ksivi", "marks"]
    assert not board.drop("ksivi")["marks"].str.contains(marks.MORE).any()


def test_methods_that_did_not_run_have_no_step_size_that_nobody_tuned(tmp_path):
    ran = cell("ula", tuned=True)
    record = make_record("mala", "banana", "mala", label="mala", status="unsupported", reason="offers no full-batch")
    steps, untuned = provenance.step_sizes(write_store(tmp_path, [ran, (record, None, None)]))
    assert "1 tuned" in steps
    assert not re.search("default|set", steps)
    assert untuned == ""


def test_a_step_size_that_the_suite_gives_is_set_even_where_it_is_the_default(tmp_path):
    """Of two entries of a method each is found by its own label."""
    settings = {"step_size": 0.05}
    suite = {"algorithms": [{"name": "ula"}, {"name": "ula", "label": "ula-long", "settings": settings}]}
    cells = [cell("ula", tuned=True), cell("ula-long", algorithm="ula"), cell("mala")]
    values = write_store(tmp_path, cells, suite).values().drop_duplicates("label").set_index("label")
    assert values.loc[["ula-long", "ula"], "step_origin"].tolist() == ["set", "tuned"]
