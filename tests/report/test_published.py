"""Published numbers: all there, flagged where a paper contradicts itself, compared with the right spread."""

import math

import numpy as np
import pytest
from made_stores import make_record, write_store
from scipy import stats

from parvibench.core import registry
from parvibench.report import published as pub

BOSTON = np.array([2.9, 3.4, 2.6, 3.1, 3.8, 2.7, 3.0])


def boston(tmp_path, task="bnn-boston", **changes):
    values = {"rmse": BOSTON.tolist(), "nll": (BOSTON - 0.5).tolist()} | changes
    cells = [
        (make_record(f"{i}", task, name, values=values), None, None)
        for i, name in enumerate(("sgld", "svgd", "srld", "ksivi"))
    ]
    return pub.comparisons(write_store(tmp_path, cells))


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
            tasks = pub._tasks(paper, row["task"], row["dataset"])
            assert any(t in registry.tasks() for t in tasks), row
            if row["algorithm"] in pub._ALGORITHMS:
                assert pub._ALGORITHMS[row["algorithm"]] in registry.algorithms()


def test_numbers_stand_beside_ours_in_our_sign(tmp_path):
    found = boston(tmp_path)
    ours = {(c.paper, c.table, c.theirs, c.metric): c for c in found}
    srld = ours["srld", "Table 1", "SRLD", "nll"]
    assert (srld.published, srld.spread) == (2.5, 0.054)  # printed as a log-likelihood of -2.500
    assert srld.mean == pytest.approx(BOSTON.mean() - 0.5)
    assert srld.sd == pytest.approx(BOSTON.std(ddof=1))
    assert ours["sifg", "Table 1", "SVGD", "rmse"].published == 2.944
    assert ours["ksivi", "Table 1", "KSIVI", "rmse"].published == 2.555
    assert "standard protocol" in ours["sifg", "Table 1", "SVGD", "rmse"].remarks


def test_a_mean_over_seeds_on_one_split_counts_as_one_draw(tmp_path):
    """Equal to a prediction interval of our splits for one-split papers, to a two-sample test for papers with splits."""
    found = {(c.paper, c.theirs): c for c in boston(tmp_path) if c.metric == "rmse" and c.table == "Table 1"}
    n, mean, sd = len(BOSTON), BOSTON.mean(), BOSTON.std(ddof=1)
    for (paper, theirs), draws in {("sifg", "SGLD"): 1, ("srld", "LD"): 20}.items():
        c = found[paper, theirs]
        t = abs(mean - c.published) / (sd * math.sqrt(1 / n + 1 / draws))
        assert c.p_value == pytest.approx(2 * stats.t.sf(t, n - 1))


def test_the_test_keeps_its_level():
    """A published mean over ten seeds on one split of our own protocol differs in 5% of 1,500 cases, not in most."""
    generator = np.random.default_rng(0)
    alarms, naive = 0, 0
    for _ in range(1500):
        ours = generator.normal(3, 0.7, 5) + generator.normal(0, 0.05, 5)
        seeds = generator.normal(3, 0.7) + generator.normal(0, 0.05, 10)  # one split, ten seeds
        alarms += pub.consistency(seeds.mean(), 1, ours.mean(), ours.std(ddof=1), 5) <= 0.05
        naive += stats.ttest_ind(ours, seeds, equal_var=False).pvalue <= 0.05
    assert 0.022 < alarms / 1500 < 0.078  # five standard errors
    assert naive / 1500 > 0.12


def test_suspicious_numbers_are_shown_but_not_tested(tmp_path):
    table = pub.published_table(boston(tmp_path, task="bnn-power"))
    rows = [[e.text for e in row.entries] for row in table.rows]
    svgd = [r for r in rows if r[0] == "SIFG Table 1" and r[2] == "svgd"]
    assert len(svgd) == 2
    assert all(r[7] == "not tested" and r[8].startswith("suspicious: ") for r in svgd)
    sentence = pub.published_sentence(boston(tmp_path, task="bnn-power"))
    assert "2 more contradict" in sentence


def test_variants_compare_seed_by_seed(tmp_path):
    (c,) = (c for c in boston(tmp_path, task="bnn-boston-sifg") if c.theirs == "SVGD" and c.metric == "rmse")
    n, sd = len(BOSTON), BOSTON.std(ddof=1)
    t = abs(BOSTON.mean() - 2.944) / (sd * math.sqrt(1 / n + 1 / 10))
    assert c.p_value == pytest.approx(2 * stats.t.sf(t, n - 1))
    assert c.remarks == "as in the paper's code"
