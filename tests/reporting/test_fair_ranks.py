"""Ranks over tasks of different methods, first places, and who may be called the best."""

import numpy as np
import pandas as pd
import pytest
import records
from made_stores import make_curve, make_record, only_reference, with_values, write_store

from parvibench.core.reference import Reference
from parvibench.reporting.facts import board as leaderboard
from parvibench.reporting.facts import findings as averages
from parvibench.reporting.facts.findings import View
from parvibench.reporting.page.text_tables import to_latex
from parvibench.reporting.tables import matrix

SMALL = ("banana", "multimodal", "x-shaped", "correlated-2d", "gmm5-2d")
LARGE = ("student-t", "monomial-gamma", "gmm2-2d", "gmm5-10d", "funnel-10d")
pytestmark = pytest.mark.usefixtures("no_floors")


def store(folder, scales, **changes):
    """A run of cells, (task, label) -> median of its values; ``initial`` is an anchor."""
    generator = np.random.default_rng(5)
    cells = []
    for (task, label), scale in scales.items():
        curve = make_curve(generator, ["sliced_w2"], scale)
        own = changes.get(label, {})
        cells.append((with_values(make_record(f"{task}-{label}", task, label, label=label, **own), curve), curve, None))
    return write_store(folder, cells)


def test_a_method_that_loses_on_all_common_tasks_is_not_listed_above(tmp_path):
    """MALA runs on the five small sets alone and beats SVGD on each; SVGD leads the five others among two methods."""
    scales = {
        (task, label): s for task in SMALL for label, s in (("mala", 2.0), ("svgd", 3.0), ("sgld", 1.0), ("ula", 1.5))
    }
    scales |= {(task, label): s for task in LARGE for label, s in (("svgd", 1.0), ("sgld", 2.0))}
    board = leaderboard.table(store(tmp_path, scales))
    assert averages.common_tasks(board) == list(SMALL)
    ranks = averages.average_ranks(board)
    # Each over the tasks that its row names: SVGD is beaten by all three others on five, by none on five.
    assert ranks["n_tasks"].to_dict() == {"sgld": 10, "ula": 5, "mala": 5, "svgd": 10}
    assert ranks["average_rank"].to_dict() == {"sgld": 1.5, "ula": 2.0, "svgd": 2.5, "mala": 3.0}
    common = matrix.ranks_table(board)
    assert [[e.text for e in row.entries] for row in common.rows] == [
        ["sgld", "1.00"], ["ula", "2.00"], ["mala", "3.00"], ["svgd", "4.00"]
    ]  # fmt: skip
    assert "over the 5 tasks that all methods ran on: banana, multimodal" in common.caption


def test_a_method_of_few_tasks_narrows_nobodys_comparison(tmp_path):
    scales = {(task, label): s for task in SMALL for label, s in (("svgd", 3.0), ("sgld", 1.0))}
    board = leaderboard.table(store(tmp_path, scales | {("banana", "mala"): 0.5}))
    ranks = averages.average_ranks(board)
    assert ranks["average_rank"].to_dict() == pytest.approx({"sgld": 1.2, "svgd": 2.2, "mala": 1.0})
    assert ranks["n_tasks"].to_dict() == {"mala": 1, "sgld": 5, "svgd": 5}
    assert matrix.ranks_table(board) is None  # the methods that ran on half of the tasks ran on all


def test_what_cannot_be_told_from_exact_draws_is_not_still_improving(tmp_path):
    """Two methods halve their error over the last doubling; one of them arrives at the floor."""
    floors = {m: {100: np.linspace(0.5, 1.5, 400)} for m in ("sliced_w2", "ksd")}
    cells = []
    for label, end in (("svgd", 1.0), ("sifg", 3.0)):
        values = {0: np.full(7, 2 * end), 1: np.linspace(0.9, 1.1, 7) * end}
        rows = [
            (r, c, 10**c, 1.0, 1.0, m, v) for c, column in values.items() for m in floors for r, v in enumerate(column)
        ]
        curve = records.make_curve(rows)
        cells.append(
            (with_values(make_record(label, "banana", label, label=label, kind="particles"), curve), curve, None)
        )
    with only_reference("banana", Reference(np.zeros((9, 2)), True, {}, floors)):
        board = leaderboard.table(write_store(tmp_path, cells)).set_index("label")
    assert board["verdict"].to_dict() == {"svgd": "indistinguishable", "sifg": "distinguishable"}
    assert board["convergence"].to_dict() == {"svgd": "flat", "sifg": "still improving"}


def test_where_no_method_has_a_result_none_is_first(tmp_path):
    crashed = make_record("c", "banana", "mala", label="mala", status="crashed", reason="no memory")
    board = leaderboard.table(write_store(tmp_path, [(crashed, None, None)]))
    assert board["rank"].isna().all()
    ranks = averages.average_ranks(board)
    assert ranks.loc["mala", ["average_rank", "n_tasks"]].isna().tolist() == [True, False]
    assert ranks.loc["mala", "n_tasks"] == 0


def test_unfinished_methods_compete_and_are_marked(tmp_path):
    """A transient chain leads the numbers; a generator that has not left the start is ranked, and marked."""
    scales = {("banana", "ula"): 1.0, ("banana", "mala"): 0.98, ("banana", "ksivi"): 4.0, ("banana", "initial"): 3.0}
    found = store(tmp_path, scales, ksivi={"kind": "generator"})
    values = {"ula": 1.2, "mala": 1.0}
    cells = tuple(
        c.model_copy(update={"values": c.values | {"rhat": [values.get(c.label, 1.0)] * 7}})
        if c.kind == "chains"
        else c
        for c in found.cells
    )
    object.__setattr__(found, "cells", cells)
    board = leaderboard.table(found).set_index("label")
    assert board["convergence"].to_dict() == {"ula": "transient", "mala": "converged", "ksivi": "flat", "initial": ""}
    assert board["best"].to_dict() == {"ula": True, "mala": True, "ksivi": False, "initial": False}
    assert board.loc[["ula", "mala", "ksivi"], "rank"].tolist() == [1, 2, 3]
    assert board.loc["ksivi", "marks"] == "no better than initial"
    board = View.of(found).board.query("best or beaten")
    assert list(board.loc[board["best"], "label"]) == ["ula", "mala"]
    assert (set(board["compared"]), int(board["beaten"].sum()), set(board["pairs"])) == ({3}, 1, {3})
    # In print too: bold is the set.
    text = to_latex(found)
    bold = [line.split(" ")[0] for line in text.splitlines() if r"\textbf{" in line]
    assert bold == ["ula", "mala"]


def test_where_nothing_beats_the_start_nothing_is_best(tmp_path):
    found = store(tmp_path, {("banana", "ula"): 4.0, ("banana", "svgd"): 5.0, ("banana", "initial"): 3.0})
    assert not View.of(found).board["best"].any()


@pytest.mark.parametrize(("metric", "first"), [("ksd", "svgd"), ("sliced_w2", "map")])
def test_a_point_mass_is_no_sample_where_no_reference_tells_it_from_one(tmp_path, metric, first):
    """Judged by a discrepancy that the score alone makes; by distances to a reference it stands where its value puts it."""
    generator = np.random.default_rng(5)
    cells = []
    for label, scale, particles in (("map", 1.0, 1), ("svgd", 2.0, 20)):
        curve = make_curve(generator, [metric], scale)
        record = make_record(label, "own", label, label=label, kind="particles", particles=particles)
        cells.append((with_values(record, curve), curve, None))
    board = leaderboard.table(write_store(tmp_path, cells)).set_index("label")
    assert board["rank"].idxmin() == first
    assert np.isnan(board.loc["map", "rank"]) == (metric == "ksd")
    assert ("one point" in board.loc["map", "marks"]) == (metric == "ksd")
    assert board.loc["map", "best"] == (metric != "ksd")


def test_a_blown_up_replicate_is_counted_and_its_value_told(tmp_path):
    found = store(tmp_path, {("banana", "svgd"): 1.0, ("banana", "initial"): 3.0})
    svgd = found.cells[0]
    folder = tmp_path / "again"
    blown = svgd.model_copy(update={"values": {"sliced_w2": [168_599.0, *svgd.values["sliced_w2"][1:]]}})
    board = leaderboard.table(write_store(folder, [(blown, None, None), (found.cells[1], None, None)])).set_index(
        "label"
    )
    assert board.loc["svgd", ["n_diverged", "worst", "status"]].tolist() == [1, 168_599.0, "ok"]


def test_common_tasks_of_nothing_are_none():
    empty = pd.DataFrame(columns=list(leaderboard.COLUMNS))
    assert averages.common_tasks(empty) == []
