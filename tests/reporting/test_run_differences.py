"""Two runs against each other: the right pairs, the right tests, nothing lost."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from made_stores import make_record, write_store
from scipy import stats
from typer.testing import CliRunner

from parvibench.cli import app
from parvibench.core.errors import InputError
from parvibench.reporting.facts import differences as run_differences
from parvibench.reporting.text import comparing

FIRST = np.random.default_rng(1).normal(1, 0.2, 7)
SECOND = FIRST - 0.1 + np.random.default_rng(2).normal(0, 0.01, 7)


def make(root, values, **changes):
    """A run of ``ula`` on a task without a reference and one with a floor, and of a cell that crashed."""
    plain, banana = ({m: values.tolist() for m in names} for names in (["oddity"], ["sliced_w2", "modes_found"]))
    cells = [
        make_record("a", "plain", "ula", values=plain, **changes),
        make_record("b", "banana", "ula", values=banana, **changes),
        make_record("c", "banana", "mala", status="crashed", reason="out of luck"),
    ]
    return write_store(root, [(cell, None, None) for cell in cells])


@pytest.fixture
def runs(tmp_path):
    return make(tmp_path / "a", FIRST), make(tmp_path / "b", SECOND)


def test_changes_are_paired_within_a_seed(runs):
    frame = run_differences.compare(*runs).set_index(["task", "label"])
    plain, banana = frame.loc[("plain", "ula")], frame.loc[("banana", "ula")]
    ratio = np.log(SECOND / FIRST)
    expected = stats.ttest_1samp(ratio, 0)
    assert plain["scale"] == "%"
    assert plain["change"] == pytest.approx(100 * (np.exp(ratio.mean()) - 1))
    assert plain["p_value"] == pytest.approx(2 * expected.pvalue)  # Holm over two cells
    interval = 100 * (np.exp(expected.confidence_interval()) - 1)
    assert (plain["low"], plain["high"]) == pytest.approx(tuple(interval))
    assert (plain["a"], plain["b"]) == pytest.approx((np.median(FIRST), np.median(SECOND)))
    assert plain["verdict"] == "significantly better"
    assert (banana["unit"], banana["a"]) == ("floors", pytest.approx(np.median(FIRST) / 0.05))
    crashed = frame.loc[("banana", "mala")]
    assert (crashed["verdict"], crashed["note"]) == ("not comparable", "the first is crashed: out of luck")


def test_other_seeds_are_not_paired(tmp_path):
    a, b = make(tmp_path / "a", FIRST), make(tmp_path / "b", SECOND, seed=1)
    row = run_differences.compare(a, b).set_index("task").loc["plain"]
    assert not row["paired"]
    p = stats.ttest_ind(np.log(SECOND), np.log(FIRST), equal_var=False).pvalue
    assert row["p_value"] == pytest.approx(min(1, 2 * p))
    assert row["verdict"] == "not significantly different"  # the spread over replicates hides what pairing shows


def test_the_direction_of_the_metric_decides(runs):
    row = run_differences.compare(*runs, metric="modes_found").set_index("label").loc["ula"]
    assert row.loc[row["task"] == "banana", "verdict"].item() == "significantly worse"


@pytest.mark.parametrize("seed", [0, 1], ids=["paired", "unpaired"])
def test_a_failed_replicate_counts_as_the_worst(tmp_path, seed):
    failed = np.where(np.arange(len(SECOND)) < 5, math.nan, SECOND)
    a, b = make(tmp_path / "a", FIRST), make(tmp_path / "b", failed, seed=seed)
    row = run_differences.compare(a, b).set_index("task").loc["plain"]
    assert row["b"] == math.inf  # the leaderboard's median: five of seven have no value
    assert math.isnan(row["change"])
    assert row["note"] == "replicates without a value: 0 and 5"
    assert row["p_value"] > 0.01


def test_cells_of_one_run_are_listed(tmp_path, runs):
    more = [make_record("a", "plain", "ula", values={"oddity": SECOND.tolist()}), make_record("n", "plain", "svgd")]
    other = write_store(tmp_path / "more", [(cell, None, None) for cell in more])
    frame = run_differences.compare(runs[0], other).set_index(["task", "label"])
    assert frame.loc[("plain", "svgd"), "verdict"] == "only in the second"
    assert frame.loc[("banana", "ula"), "verdict"] == "only in the first"
    assert frame.loc[("banana", "mala"), "note"] == "crashed"


def test_what_differs_is_said_first(tmp_path, runs):
    changes = {"settings": {"step_size": 0.2}, "device": "cuda", "algorithm_version": 7, "iterations": 99}
    other = make(tmp_path / "c", SECOND, **changes)
    differs = run_differences.conditions(runs[0], other).set_index("what")
    assert differs.loc["device", ["first", "second"]].tolist() == ["cpu", "cuda"]
    assert {"settings.step_size", "algorithm_version", "iterations"} <= set(differs.index)
    assert differs.loc["device", ["cells", "shared", "example"]].tolist() == [2, 3, "ula on plain"]
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "c"), "--to", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "240"}).output
    assert shown.index("differs") < shown.index("method")  # the console may be narrow: whole words only
    assert run_differences.conditions(runs[0], runs[0]).empty


def test_changed_tasks_and_foreign_runs_are_refused(tmp_path, runs):
    other = make(tmp_path / "c", FIRST, task_version=2)
    frame = run_differences.compare(runs[0], other)
    assert set(frame["verdict"]) == {"not comparable"}
    assert comparing.OTHER_TASK.format(first=1, second=2) in set(frame["note"])
    foreign = write_store(tmp_path / "d", [(make_record("z", "elsewhere", "ula"), None, None)])
    with pytest.raises(InputError, match=f"{runs[0].run.id}.*{foreign.run.id}"):
        run_differences.compare(runs[0], foreign)


def test_the_command_prints_and_writes(tmp_path, runs):
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--to", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    assert "2 significantly better, 1 not comparable (paired by replicate; medians; 5%, Holm)" in shown.output
    table = pd.read_csv(tmp_path / "out" / "differences.csv")
    assert table["verdict"].tolist() == ["significantly better", "significantly better", "not comparable"]
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert document["cells"][2]["p_value"] is None
    assert document["files"] == [str(tmp_path / "out" / "differences.csv")]
    assert document["differs"] == []
