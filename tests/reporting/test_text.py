"""Sentences as a reader meets them, each with several fillings."""

import math

import pytest

from parvibench.reporting.text import averages, facts, leaders, marks, validity


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({}, "significantly better than all others"),
        ({"beaten": 1}, "significantly better than the other"),
        ({"second": "", "finite": 1}, "the only method with a result"),
        ({"second": "", "unfinished": leaders.better_but_unfinished([("ula", "transient")])},
         "the only method with a converged result; ula has a better value but is transient"),
        ({"rivals": ["ula", "mala"]}, "best, but not significantly better than ula and mala"),
        ({"rivals": ["a", "b", "c", "d", "e"], "lost": 2},
         "best, but not significantly better than a, b, c and 2 more; 2 of its 6 replicates diverged"),
    ],
)  # fmt: skip
def test_how_sure_a_lead_is(numbers: dict, sentence: str) -> None:
    known = {"second": "ula", "finite": 4, "beaten": 3, "rivals": (), "unfinished": "", "lost": 0, "replicates": 6}
    assert leaders.confidence(**known | numbers) == sentence


@pytest.mark.parametrize(
    ("values", "relative", "words"),
    [
        ((1.2, 1.5), True, "20% below"),
        ((0.001, 1.5), True, "far below"),
        ((2.0, 2.0), False, "tied with"),
        ((2.0, 2.5), False, "0.500 below"),
        ((0.9, 0.5), False, "0.400 above"),
    ],
)
def test_margins(values: tuple[float, float], relative: bool, words: str) -> None:
    assert leaders.margin(*values, relative=relative) == words


def test_who_leads() -> None:
    value = (1.16, 0.923, 1.32)
    told = leaders.leads("banana", "svgd", "a ratio to the floor of", value, "5% below ula", "the outcome", exact=True)
    assert told == (
        "On banana, svgd leads with a ratio to the floor of 1.16 [0.923, 1.32], 5% below ula: the outcome; "
        "its samples are indistinguishable from exact draws."
    )
    assert leaders.result(value, "× floor") == "1.16 × floor [0.923, 1.32]"
    assert leaders.result(value, "nll") == "nll 1.16 [0.923, 1.32]"


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([0.98, 0.02], ", and ranks first in 98% of 2,000 bootstrap resamples of the replicates"),
        ([0.93, 0.04],
         "; no clear winner: it ranks first in 93% of 2,000 bootstrap resamples of the replicates (95% required)"),
        ([0.6, 0.1, 0.3], "; no clear winner: it ranks first in 60% of 2,000 bootstrap resamples of the replicates "
         "(95% required; c 30% and b 10%)"),
    ],
)  # fmt: skip
def test_a_clear_winner_needs_95_percent_of_the_resamples(shares: list[float], words: str) -> None:
    assert averages.stability(list(zip("abc", shares, strict=False)), 2000) == words


def test_friedman_and_counts() -> None:
    assert averages.friedman(4, 3, math.nan) == "Friedman's test needs three methods on at least two tasks."
    assert "between the 4 methods over 3 tasks are significant (Friedman's test, p = 0.0100)." in averages.friedman(
        4, 3, 0.01
    )
    assert averages.friedman(4, 3, 0.2).endswith("(p = 0.200): differences in rank may be due to chance.")
    assert averages.best_average(["svgd"], 1.5, 1) == "svgd has the best average rank, 1.50 over 1 task"
    assert averages.best_average(["svgd", "ula", "mala"], 2, 3).startswith(
        "svgd and 2 others share the best average rank"
    )
    assert averages.finished(3, 3).startswith("No run has converged")
    assert averages.finished(1, 3) == "2 of 3 results have converged. "
    assert averages.finished(0, 3) == averages.left_out(0) == ""
    assert "(1 method without a rank" in averages.left_out(1)


@pytest.mark.parametrize(
    ("beaten", "lost", "sentence"),
    [
        ({"ula": 2, "mala": 1}, {}, "Of 3 tasks, it is significantly better than ula on 2 and mala on 1."),
        (
            {"ula": 2},
            {"hmc": 1},
            "Of 3 tasks, it is significantly better than ula on 2, and significantly worse than hmc on 1.",
        ),
        ({}, {}, "It is significantly better than another method on none of the 3 tasks."),
    ],
)
def test_paired_differences(beaten: dict, lost: dict, sentence: str) -> None:
    assert averages.paired("svgd", 3, beaten, lost) == f"svgd has the best average rank. {sentence}"


def test_what_was_equal_tuned_and_spent() -> None:
    assert validity.same("budget", []) == "All methods of a task had the same budget."
    labels = list("abcdefgh")
    assert validity.same("budget", labels).endswith("except a, b, c, d, e, f and 2 more.")
    assert validity.protocol({"iterations": 2000}, 100, None, 6) == (
        "Budget of each method: 2,000 iterations, 100 particles or chains and 6 replicates."
    )
    assert validity.protocol({}, 100, None, 6) == ""
    assert validity.cost(1000, None, 0) == "1,000 score evaluations."
    assert validity.untuned(2, 2).startswith("No step size was tuned: ")
    assert validity.untuned(1, 2).startswith("1 of 2 step sizes were not tuned: ")
    assert validity.converged(4, {"flat": 3, "transient": 1}, 1, ("transient", "still improving")) == (
        "Of 4 results: 3 flat, 1 transient. 1 is no better than the initial distribution. "
        "Results that are transient or still improving cannot be the best of a task."
    )


def test_marks_beside_a_number() -> None:
    assert marks.entry("ok", 1.234, exact=True, diverged=True, words="transient, edge") == "≈1.23*†|"
    assert marks.entry("crashed", math.nan, exact=False, diverged=False, words="") == "crashed"
    assert [line[0] for line in marks.legend("|†")] == ["†", "|"]
    assert facts.among("generator") + facts.among("chains") + facts.among("") == "Among generators: Among chains: "
