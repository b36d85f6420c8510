"""Intervals, paired tests and ranks."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from parvibench.statistics import BOOTSTRAP_PAIRS, average_ranks, contest, holm, median_interval, paired_difference


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 1), (5, 1), (6, 1), (9, 2), (10, 2), (20, 6), (25, 8)])
def test_median_interval_takes_the_tabulated_order_statistics(n: int, k: int) -> None:
    """k as in tables of the sign test; the range below six."""
    values = np.random.default_rng(n).permutation(n).astype(float)
    median, low, high = median_interval(values)
    assert (median, low, high) == ((n - 1) / 2, k - 1, n - k)


def test_failures_sort_last() -> None:
    assert median_interval([1.0, math.inf, 2.0]) == (2.0, 1.0, math.inf)
    assert median_interval([1.0, math.nan]) == (math.inf, 1.0, math.inf)
    assert median_interval([math.inf, math.inf]) == (math.inf, math.inf, math.inf)
    assert all(map(math.isnan, median_interval([])))


def test_paired_difference_agrees_with_scipy_and_drops_failures() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 12))
    expected = stats.ttest_rel(a, b)
    found = paired_difference([*a, math.inf], [*b, 1.0])
    interval = expected.confidence_interval()
    assert found.n == 12
    assert found.mean == pytest.approx(np.mean(a - b))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p_t == pytest.approx(expected.pvalue)


def test_paired_difference_of_constants_and_of_nothing() -> None:
    same = paired_difference([1.0, 2.0], [1.0, 2.0])
    assert (same.mean, same.p_t) == (0.0, 1.0)
    assert paired_difference([2.0, 3.0], [1.0, 2.0]).p_t == 0.0
    assert math.isnan(paired_difference([math.nan], [1.0]).mean)
    with pytest.raises(ValueError, match="one length"):
        paired_difference([1.0], [1.0, 2.0])


def test_thirty_pairs_are_bootstrapped() -> None:
    """Both intervals agree to a few per cent on thirty normal differences; fewer pairs keep Student's."""
    d = np.random.default_rng(3).normal(1, 1, BOOTSTRAP_PAIRS)
    found, again, fewer = (paired_difference(x, np.zeros(len(x))) for x in (d, d, d[1:]))
    low, high = stats.ttest_1samp(d, 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.07 * (high - low))
    assert (found.low, found.high) != pytest.approx((low, high), abs=1e-6)
    assert again == found
    assert (fewer.low, fewer.high) == pytest.approx(stats.ttest_1samp(d[1:], 0).confidence_interval())


def test_holm_against_the_textbook() -> None:
    """Example of Wright (1992), Biometrics 48:1005-1013; and order does not matter."""
    p = [0.010, 0.020, 0.022, 0.09]
    assert holm(p) == pytest.approx([0.04, 0.06, 0.06, 0.09])
    assert holm(p[::-1]) == pytest.approx(holm(p)[::-1])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_weighted_holm_is_the_closed_test_of_weighted_bonferroni() -> None:
    """By its definition: a hypothesis is rejected when every set that holds it is, by the smallest p / w times the set's
    weight. And in its own words: equal weights are none."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        p, w = rng.uniform(size=4) ** 3, rng.uniform(0.5, 10, size=4)
        sets = [s for size in range(1, 5) for s in itertools.combinations(range(4), size)]
        local = {s: min(p[i] / w[i] for i in s) * sum(w[i] for i in s) for s in sets}
        expected = [min(1.0, max(local[s] for s in sets if i in s)) for i in range(4)]
        assert holm(p, w) == pytest.approx(expected)
        assert holm(p, [2.0] * 4) == pytest.approx(holm(p))


def test_average_ranks_put_failures_last_and_share_ties() -> None:
    table = [[1.0, 2.0, math.inf], [1.0, 1.0, math.nan], [3.0, 4.0, 5.0]]
    found = average_ranks(table)
    assert found.ranks == pytest.approx([3.5 / 3, 5.5 / 3, 3.0])
    ranks = np.array([[1, 2, 3], [1.5, 1.5, 3], [1, 2, 3]])
    assert found.p_value == pytest.approx(stats.friedmanchisquare(*ranks.T).pvalue)


def test_friedman_needs_three_algorithms_and_is_one_when_all_tie() -> None:
    assert math.isnan(average_ranks([[1.0, 2.0], [2.0, 1.0]]).p_value)
    assert average_ranks([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]).p_value == 1.0


def test_of_two_equal_algorithms_neither_is_called_better() -> None:
    """Whoever leads is called significantly better in 5% of 2,000 cases; one-sided tests would do so in 10%."""
    generator = np.random.default_rng(4)
    alarms = 0
    for _ in range(2000):
        values = generator.normal(0, 1, (2, 6))
        alarms += not contest(values, int(np.argmin(values.mean(1)))).rivals()
    assert alarms / 2000 == pytest.approx(0.05, abs=5 * math.sqrt(0.05 * 0.95 / 2000))


def test_a_contest_is_a_paired_t_test_with_bonferroni() -> None:
    x = np.random.default_rng(1).normal([[0.0], [0.3], [1.0]], 0.2, (3, 8))
    found = contest(x, 0)
    expected = [2 * stats.ttest_rel(x[0], x[i]).pvalue for i in (1, 2)]
    assert found.p_values[1:] == pytest.approx(np.minimum(1, expected))
    assert math.isnan(found.p_values[0])


def test_failures_lose_a_contest_by_rank() -> None:
    generator = np.random.default_rng(2)
    x = generator.normal([[0.0], [1.0]], 0.1, (2, 10))
    x[1, :3] = math.inf
    # All ten pairs won: the least that the signed-rank test can give.
    assert contest(x, 0).p_values[1] == pytest.approx(2.0**-9)
    x[1, 3:] = -1.0  # now seven of ten are lost
    assert contest(x, 0).rivals() == [1]


def test_overlapping_splits_widen_the_interval() -> None:
    a, b = np.random.default_rng(3).normal(0, 1, (2, 20))
    plain, corrected = paired_difference(a, b), paired_difference(a, b, overlap=1 / 9)
    ratio = (corrected.high - corrected.low) / (plain.high - plain.low)
    assert ratio == pytest.approx(math.sqrt((1 / 20 + 1 / 9) / (1 / 20)))
    assert corrected.p_t > plain.p_t
