"""Published numbers: all there, flagged where a paper contradicts itself, compared with the right spread."""

import math

import numpy as np
import pytest
from made_stores import make_record, write_store
from scipy import stats

from parvibench.core import registry
from parvibench.report import published as pub

BOSTON = np.array([2.9, 3.4, 2.6, 3.1, 3.8, 2.7, 3.0])


def follower(key, task, algorithm, preset=None, **changes):
    """The record of a cell that ran a preset of its task, whole."""
    method, preset = registry.load_method(algorithm), preset or task
    protocol = method.protocol(preset)
    budget = {"iterations": protocol.pop("iterations", 400)}
    own = {"settings": method.make_settings({"preset": preset}).model_dump(mode="json"), "budget": budget} | protocol
    values = {"rmse": BOSTON.tolist(), "nll": (BOSTON - 0.5).tolist()}
    return make_record(key, task, algorithm, **{**own, "values": values, **changes})


def compared(tmp_path, *records):
    return pub.comparisons(write_store(tmp_path, [(r, None, None) for r in records]))


def test_every_published_number_is_there_and_the_contradictions_are_flagged():
    tables = {paper: pub.published(paper) for paper in pub.PAPERS}
    assert {paper: len(t) for paper, t in tables.items()} == {"sifg": 60, "srld": 132, "ksivi": 159}
    everything = [row for t in tables.values() for row in t.to_dict("records")]
    assert all(math.isfinite(row["value"]) for row in everything)
    assert all(row["note"] for row in everything if row["suspicious"])
    # Rows that are equal where they should not be, found again from the numbers.
    svgd = tables["srld"].query("table == 'Table 1' and algorithm == 'SVGD'").set_index("metric")
    white, red = (svgd[svgd["dataset"] == d] for d in ("WineWhite", "WineRed"))
    assert white.loc["RMSE", "value"] == red.loc["RMSE", "value"]
    assert white["suspicious"].all()
    first = tables["ksivi"].query("table == 'Table 1' and algorithm == 'SGLD'")
    eighth = tables["ksivi"].query("table == 'Table 8' and algorithm == 'KSIVI-ustat'")
    assert sorted(first["value"]) == sorted(eighth["value"])
    assert eighth["suspicious"].all()


def test_tasks_and_methods_of_the_papers_exist():
    for paper in pub.PAPERS:
        for row in pub.published(paper).to_dict("records"):
            if task := pub.task_of(paper, row["task"], row["dataset"]):
                assert task in registry.tasks(), row
            if row["algorithm"] in pub._ALGORITHMS:
                assert pub._ALGORITHMS[row["algorithm"]] in registry.algorithms()


def test_numbers_stand_beside_ours_in_our_sign(tmp_path):
    found = compared(tmp_path, follower("a", "bnn-boston-srld", "srld"), follower("b", "bnn-boston-sifg", "svgd"))
    ours = {(c.paper, c.table, c.theirs, c.metric): c for c in found}
    srld = next(c for c in found if c.paper == "srld" and c.metric == "nll" and c.table == "Table 1")
    assert (srld.published, srld.spread) == (2.5, 0.054)  # printed as a log-likelihood of -2.500
    assert srld.mean == pytest.approx(BOSTON.mean() - 0.5)
    assert srld.sd == pytest.approx(BOSTON.std(ddof=1))
    svgd = ours["sifg", "Table 1", "SVGD", "rmse"]
    assert svgd.published == 2.944
    n, sd = len(BOSTON), BOSTON.std(ddof=1)
    t = abs(BOSTON.mean() - 2.944) / (sd * math.sqrt(1 / n + 1 / 10))
    assert svgd.p_value == pytest.approx(2 * stats.t.sf(t, n - 1))


@pytest.mark.parametrize(
    "changes",
    [{"budget": {"iterations": 100}}, {"particles": 20}, {"settings": {"step_size": 0.05}}],
    ids=["iterations", "particles", "settings"],
)
def test_another_protocol_is_not_compared(tmp_path, changes):
    assert compared(tmp_path, follower("b", "bnn-boston-sifg", "svgd", **changes)) == []


def test_the_standard_protocol_is_no_papers(tmp_path):
    assert compared(tmp_path, follower("b", "bnn-boston", "svgd", "bnn-boston-sifg")) == []


def test_a_published_row_has_one_protocol(tmp_path):
    """Rows of 10,000 and of 20,000 iterations, of one step size; the Riesz kernel has its own row."""
    values = {"sliced_w2": BOSTON.tolist(), "w2sq_window_5": BOSTON.tolist()}
    long = follower("a", "blr-waveform", "ksivi", budget={"iterations": 20_000}, values=values)
    short = follower("b", "blr-waveform", "ksivi", label="short", budget={"iterations": 10_000}, values=values)
    found = {(c.theirs, c.label) for c in compared(tmp_path / "blr", long, short)}
    assert found == {("KSIVI@20k", long.label), ("KSIVI@10k", "short")}
    riesz = follower("c", "student-t", "ksivi", values=values)
    (theirs,) = {c.theirs for c in compared(tmp_path / "t", riesz)}
    assert theirs == "KSIVI-riesz"


def test_the_test_keeps_its_level():
    """A published mean over ten repeats of our own protocol differs in 5% of 1,500 cases."""
    generator = np.random.default_rng(0)
    alarms = 0
    for _ in range(1500):
        ours, theirs = generator.normal(3, 0.7, 5), generator.normal(3, 0.7, 10)
        alarms += pub.consistency(theirs.mean(), 10, ours.mean(), ours.std(ddof=1), 5) <= 0.05
    assert 0.022 < alarms / 1500 < 0.078  # five standard errors


def test_suspicious_numbers_are_shown_but_not_tested(tmp_path):
    found = compared(tmp_path, follower("a", "bnn-power-sifg", "svgd"))
    rows = [[e.text for e in row.entries] for row in pub.published_table(found).rows]
    assert len(rows) == 2
    assert all(r[7] == "not tested" and r[8].startswith("suspicious: ") for r in rows)
