"""Winners, aggregates and sentences follow from tests that an independent script repeats from the Parquet files."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_stores import make_curve, make_record, only_reference, stored_curves, with_values, write_store
from scipy import stats

from parvibench.core.reference import Reference
from parvibench.reporting.figures.figure import label_styles
from parvibench.reporting.figures.over_tasks import methods_to_use
from parvibench.reporting.formatting import number
from parvibench.reporting.page import across_tasks
from parvibench.reporting.tables import aggregate_tables, floor_comparison, winners
from parvibench.reporting.tables.winners import Findings

TASKS = ("banana", "correlated-2d", "gmm5-2d")
METHODS = {"svgd": 1.0, "ula": 1.02, "mala": 2.0, "lapd": 2.1}
FLOOR = 0.05


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    generator = np.random.default_rng(3)
    cells = []
    for task in TASKS:
        for label, scale in METHODS.items():
            curve = make_curve(generator, ["sliced_w2"], scale)
            cells.append((with_values(make_record(f"{task}-{label}", task, label), curve), curve, None))
    return write_store(tmp_path_factory.mktemp("verdicts"), cells)


@pytest.fixture(scope="module")
def findings(store):
    table = {"sliced_w2": {n: np.linspace(0.4, 0.6, 201) / n**0.5 for n in (25, 100, 400)}}
    with pytest.MonkeyPatch.context() as patch, only_reference(None, None):
        from parvibench.reporting.tables import floor_comparison

        for load in ("load_reference", "load_floored"):
            patch.setattr(floor_comparison, load, lambda name: Reference(np.zeros((9, 2)), True, {}, table))
        yield Findings.of(store)


@pytest.fixture(scope="module")
def final(store):
    """Ratios to the floor of the last checkpoint, straight from the files: (task, label) -> by replicate."""
    return {cell: last["value"].to_numpy() / FLOOR for cell, last in stored_curves(store.store).items()}


def test_winners_are_those_of_paired_tests(findings, final):
    for winner in findings.tasks:
        rows = {m: final[winner.where, m] for m in METHODS}
        medians = pd.Series({m: np.median(v) for m, v in rows.items()}).sort_values()
        assert (winner.label, winner.next) == tuple(medians.index[:2])
        assert winner.value.value == pytest.approx(medians.iloc[0])
        assert winner.margin == f"{100 * (1 - medians.iloc[0] / medians.iloc[1]):.0f}% below"
        lead = np.log(rows.pop(winner.label))
        p = {m: stats.ttest_rel(lead, np.log(v)).pvalue for m, v in rows.items()}
        assert set(winner.rivals) == {m for m, value in p.items() if 3 * value > 0.05}
        assert winner.beaten == 3 - len(winner.rivals) >= 2


def test_aggregates_are_interquartile_means(findings, final):
    found = winners.aggregates(findings.board, findings.scores, TASKS)
    for label in METHODS:
        pooled = np.concatenate([final[task, label] for task in TASKS])
        assert found.loc[label, "value"] == pytest.approx(stats.trim_mean(pooled, 0.25))
        assert found.loc[label, "low"] <= found.loc[label, "value"] <= found.loc[label, "high"]
    assert found["value"].is_monotonic_increasing
    assert (found.loc[["mala", "lapd"], "p_value"] < 0.001).all()
    close = found.index[found["p_value"] > 0.05]
    assert close.tolist() == [found.index[1]]  # 2% apart, 7 replicates


def test_friedman_is_scipys(findings, final):
    medians = pd.DataFrame({m: [np.median(final[t, m]) for t in TASKS] for m in METHODS})
    found = winners.friedman(findings.board, TASKS)
    assert found.p_value == pytest.approx(stats.friedmanchisquare(*medians.to_numpy().T).pvalue)
    assert found.table["average_rank"].to_dict() == medians.rank(axis=1).mean().to_dict()
    assert ("finds no significant difference" if found.p_value > 0.05 else "tasks are significant") in found.sentence


def test_paired_differences_are_adjusted_over_the_table(findings, final):
    found = winners.differences(findings.board, findings.scores, TASKS, "svgd")
    pairs = zip(found["task"], found["label"], strict=True)
    raw = [stats.ttest_rel(final[task, label], final[task, "svgd"]).pvalue for task, label in pairs]
    adjusted, worst = {}, 0.0
    for place, p in enumerate(sorted(raw)):
        worst = adjusted[p] = max(worst, min(1.0, p * (len(raw) - place)))
    np.testing.assert_allclose(found["p_value"], [adjusted[p] for p in raw])


def test_sentences_say_what_the_tests_say(findings):
    for winner in [*findings.tasks, *findings.groups]:
        if winner.rivals:
            assert f"best, but not significantly better than {winner.rivals[0]}" in winner.sentence
        else:
            assert "significantly better than all others" in winner.sentence
        assert f"On {winner.where}, {winner.label} leads with" in winner.sentence
    assert [g.where for g in findings.groups] == ["curved, 2-D"]
    assert findings.groups[0].tasks == ("banana", "correlated-2d")


def test_the_winners_table_shows_margin_and_cost(findings):
    table = aggregate_tables.winners_table(findings, {})
    rows = {row.entries[0].text: [e.text for e in row.entries] for row in table.rows}
    assert list(rows) == ["curved, 2-D (2 tasks)", "banana", "correlated-2d", "gmm5-2d"]
    for winner in findings.tasks:
        _, best, _, margin, sure, evaluations, seconds = rows[winner.where]
        assert best == winner.label
        assert re.fullmatch(r"\d+% below \w+", margin)
        assert sure == winner.confidence
        assert (evaluations, float(seconds)) == ("40,000", pytest.approx(0.1))


def test_the_first_picture_names_what_the_answers_name(findings):
    """A group or task a row, the method of the answer at the answer's number; nobody where nobody has converged."""
    unfinished = replace(findings.groups[0], label="", nobody="no method has converged on all of these targets")
    changed = replace(findings, groups=(unfinished,))
    styles = label_styles(findings.results.cells)
    for shown in (findings, changed):
        answers = {a.winner.where: a for a in across_tasks.answers(shown, {})}
        (drawing,) = methods_to_use(shown, styles)
        data = drawing.data
        assert list(dict.fromkeys(data["target"])) == list(answers) == ["curved, 2-D", "gmm5-2d"]
        named = data[data["named"]].set_index("target")
        assert named["label"].to_dict() == {t: a.winner.label for t, a in answers.items() if a.winner.label}
        for target, row in named.iterrows():
            assert answers[target].result.startswith(f"{number(row['floor_ratio'])} × floor")
        assert set(data.loc[data["target"] == "curved, 2-D", "label"]) == set(METHODS)
        nobody = not answers["curved, 2-D"].winner.label
        assert ("none has converged" in drawing.pictures[0].content.decode()) == nobody
        assert ("curved, 2-D: none" in drawing.pictures[0].alt) == nobody


def test_overlapping_splits_are_corrected():
    assert winners.overlap("bnn-boston") == pytest.approx(1 / 9)
    assert winners.overlap("bnn-boston-srld") == pytest.approx(1 / 9)
    assert winners.overlap("bnn-boston-sifg") == 0  # all replicates on one split
    assert winners.overlap("banana") == winners.overlap("unknown") == 0


def test_the_best_method_says_that_replicates_diverged(tmp_path):
    """Its median is the best, and one of seven replicates has no value."""
    generator = np.random.default_rng(4)
    cells = []
    for label, scale, lost in (("svgd", 0.1, (0,)), ("ula", 2.0, ())):
        curve = make_curve(generator, ["sliced_w2"], scale, lost=lost)
        record = make_record(label, "banana", label, n_diverged=len(lost), diverged=dict.fromkeys(lost, 3))
        cells.append((with_values(record, curve), curve, None))
    with only_reference(None, None):
        (winner,) = Findings.of(write_store(tmp_path, cells)).tasks
    assert winner.label == "svgd"
    assert "1 of its 7 replicates diverged" in winner.sentence
    assert "1 of its 7 replicates diverged" in winner.confidence


def test_states_of_one_chain_have_no_interval_and_few_replicates_no_verdict():
    """Chains of fewer states than samples repeat themselves; two replicates cannot be found worse."""
    values = np.linspace(0.4, 0.6, 400)
    metrics = ("sliced_w2", "mmd2", "kl_knn")
    table = {m: {n: values / n**0.5 for n in (50, 100)} for m in metrics}
    with only_reference("banana", Reference(np.zeros((9, 2)), True, {}, table)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(floor_comparison, "_task_metrics", lambda name: metrics)
        for particles, interval in ((1, False), (100, True)):
            record = make_record("x", "banana", "ula", particles=particles)
            record = record.model_copy(update={"values": {m: [0.05] * 7 for m in metrics}})
            found = floor_comparison.compare_with_floor(record, "sliced_w2")
            assert found.equivalent == pytest.approx(100, rel=0.05)
            assert np.isfinite(found.low) == np.isfinite(found.high) == interval
            assert (found.verdict, found.basis) == ("indistinguishable", "n = 100, by sliced_w2, mmd2, kl_knn")
        few = record.model_copy(update={"values": {m: [0.05] * 2 for m in metrics}})
        wide = dict.fromkeys(("w2", "ksd", "mean_error", "sd_error", "correlation_error"), table["mmd2"])
        reference = Reference(np.zeros((9, 2)), True, {}, table | wide)
        with only_reference("banana", reference):
            few = record.model_copy(update={"values": {m: [0.05] * 2 for m in table | wide}})
            assert floor_comparison.compare_with_floor(few, "sliced_w2").verdict == "too few replicates"


def test_cells_of_another_size_are_judged_by_their_thinned_values():
    """Those of 150 samples by the values of 100, which the record holds beside its own."""
    table = {m: {100: np.linspace(1, 2, 400)} for m in ("sliced_w2", "ksd")}
    record = make_record("x", "banana", "ula", samples=150)
    values = {m: [5.0] * 7 for m in table}
    with only_reference("banana", Reference(np.zeros((9, 2)), True, {}, table)):
        for judged, verdict in ((1.5, "indistinguishable"), (5.0, "distinguishable")):
            thinned = {m: [judged] * 7 for m in table}
            cell = record.model_copy(update={"values": values, "judged": thinned})
            found = floor_comparison.compare_with_floor(cell, "sliced_w2")
            assert (found.verdict, found.basis) == (verdict, "n = 100, by sliced_w2, ksd")


@pytest.mark.parametrize(
    ("ratio", "exact", "unfinished", "verb"),
    [
        (1.4, True, "", "use"),
        (0.6, False, "", "use"),
        (1.4, False, "", "the best method within this budget is"),
        (1.4, True, "; sgld has a better value but is transient", "the best converged method is"),
    ],
)
def test_a_method_is_recommended_as_far_as_it_is_good(ratio: float, exact: bool, unfinished: str, verb: str) -> None:
    value = winners.Aggregate(ratio, ratio, ratio)
    quantity = "sliced W2 over its floor"
    winner = winners.Winner(
        "banana", ("banana",), "ula", quantity, value, indistinguishable=exact, unfinished=unfinished
    )
    found = across_tasks._advice(winner, {}, {})
    assert found.verb == verb
    assert bool(found.caution) == (ratio > 1 and not exact)
