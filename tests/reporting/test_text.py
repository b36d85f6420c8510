"""Sentences as a reader meets them, each with several fillings."""

import math

import pandas as pd
import pytest

from parvibench.reporting.facts import board as leaderboard
from parvibench.reporting.text import described, leaders, validity

VALUE = (1.16, 0.923, 1.32)
TEST = " (paired t tests, Holm over 6 comparisons, 5%)"
FAR = (
    "than exact draws, with over five times the medians of the methods that pass for them"
    " (paired t tests, exact rank tests, Holm over 6 comparisons, 5%)"
)


@pytest.mark.parametrize(
    ("labels", "compared", "beaten", "sentence"),
    [
        ("", 4, 0, "no method has a finite result better than the initial distribution."),
        ("a", 1, 0, "a (1.16 × floor [0.923, 1.32]) is the only method with a finite result."),
        ("a", 4, 3, f"a (1.16 × floor [0.923, 1.32]) is the best of 4 methods: significantly better than 3 of 3 others{TEST}."),
        ("a", 5, 3, f"a (1.16 × floor [0.923, 1.32]) is the best of 5 methods: significantly better than 3 of 4 others, 1 worse {FAR}."),
        ("ab", 4, 2, "2 of 4 methods are among the best: a (1.16 × floor [0.923, 1.32]) and b (1.16); "
         f"the other 2 are each significantly worse than another method{TEST}."),
        ("ab", 3, 1, "2 of 3 methods are among the best: a (1.16 × floor [0.923, 1.32]) and b (1.16); "
         f"the other 1 is significantly worse than another method{TEST}."),
        ("ab", 3, 0, "2 of 3 methods are among the best: a (1.16 × floor [0.923, 1.32]) and b (1.16); "
         f"the other 1 is significantly worse {FAR}."),
        ("ab", 5, 1, "2 of 5 methods are among the best: a (1.16 × floor [0.923, 1.32]) and b (1.16); "
         f"the other 3 are each significantly worse, 1 than another method and 2 {FAR}."),
        ("ab", 2, 0, f"none of 2 methods is significantly better than another{TEST}: a (1.16 × floor [0.923, 1.32]) and b (1.16)."),
    ],
)  # fmt: skip
def test_who_is_among_the_best_of_a_task(labels: str, compared: int, beaten: int, sentence: str) -> None:
    best = [(label, VALUE, "") for label in labels]
    assert leaders.on_task("banana", best, "× floor", compared, beaten, 3, 6) == f"On banana, {sentence}"


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ([], "no method has a finite result better than the initial distribution."),
        ([("a", 3, ""), ("b", 2, "")], "a is the only one of 9 methods that is among the best on every task."),
        ([("a", 3, ""), ("b", 3, "transient on 2")], "2 of 9 methods are among the best on every task: a and b (transient on 2)."),
        ([("a", 2, ""), ("b", 1, "transient on 1"), ("c", 1, ""), ("d", 1, "")],
         "none of 9 methods is among the best on every task; most often are a (2), b (1, transient on 1), c (1) and 1 more."),
        ([("a", 2, ""), ("b", 2, ""), ("c", 2, ""), ("d", 1, "")],
         "none of 9 methods is among the best on every task; most often are a (2), b (2) and c (2)."),
    ],
)  # fmt: skip
def test_who_is_among_the_best_of_a_kind(counts: list[tuple[str, int, str]], sentence: str) -> None:
    assert leaders.on_tasks("paths", 3, counts, 9) == f"On paths (3 tasks), {sentence}"
    assert leaders.on_tasks("", 3, counts, 9) == f"Over all 3 tasks, {sentence}"


def test_what_was_equal_tuned_and_spent() -> None:
    assert validity.same("budget", []) == "All methods of a task had the same budget."
    labels = list("abcdefgh")
    assert validity.same("budget", labels).endswith("except a, b, c, d, e, f and 2 more.")
    assert validity.protocol({"iterations": 2000}, 100, None, 6) == (
        "Budget of each method: 2,000 iterations, 100 particles or chains and 6 replicates."
    )
    assert validity.protocol({}, 100, None, 6) == ""
    assert validity.protocol({"scores_per_particle": 3000}, 20, None, None, [146, 21_660.6, 560]).endswith(
        "counts as its share of the rows: on tasks scored by mini-batches the budget is 146 to 21,661 passes per replicate."
    )
    assert validity.cost(1000, None, 0) == "1,000 score evaluations."
    assert validity.untuned(2, 2).startswith("No step size was tuned: ")
    assert validity.untuned(1, 2).startswith("1 of 2 step sizes were not tuned: ")
    assert validity.converged(5, {"transient": 1, "converged": 1, "flat": 3}, 1) == (
        "Of 5 results: 1 converged (R-hat and ESS), 3 flat (the metric no longer falls; no test of convergence applies), "
        "1 transient. 1 is no better than the initial distribution."
    )


def test_marks_beside_a_number() -> None:
    row = {
        "status": "ok",
        "median": 3.1,
        "floor_ratio": 1.234,
        "verdict": "indistinguishable",
        "n_diverged": 1,
        "marks": "transient, edge",
    }
    crashed = {
        "status": "crashed",
        "reason": "",
        "median": math.nan,
        "floor_ratio": math.nan,
        "verdict": "",
        "n_diverged": 0,
        "marks": "",
    }
    assert leaderboard.entry(row) == "≈1.23*†|"
    assert leaderboard.entry(crashed) == "crashed"
    assert [line[0] for line in leaderboard.marks_used(pd.DataFrame([row, crashed]))] == ["≈", "*", "†", "|"]
    assert (
        described.among("generator") + described.among("chains") + described.among("")
        == "Among generators: Among chains: "
    )
