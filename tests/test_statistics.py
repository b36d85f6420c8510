"""Intervals, paired tests and ranks."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from parvibench.core.reference import Floor
from parvibench.metrics.floors import exact_p_value
from parvibench.statistics import (
    BOOTSTRAP_PAIRS,
    Comparisons,
    _moderated,
    _prior_variance,
    all_pairs,
    holm,
    median_interval,
    p_loses_more,
    p_no_better,
    paired_difference,
)


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


def test_paired_difference_of_constants_and_of_nothing() -> None:
    assert paired_difference([2.0, 3.0], [1.0, 2.0])[1:] == (1.0, 1.0, 1.0)
    assert math.isnan(paired_difference([math.nan], [1.0]).mean)


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


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_among_equal_methods_none_is_better_in_95_of_100_families(spread: float) -> None:
    """Two tasks of 12 equal methods and 5 replicates, of equal or of unlike spreads: one false difference of the family, at
    most 5% of 400 (and four standard errors)."""
    generator = np.random.default_rng(4)
    false = 0
    for _ in range(400):
        tasks = [generator.normal(0, np.exp(spread * generator.normal(0, 1, (12, 1))), (12, 5)) for _ in range(2)]
        found = all_pairs(tasks, [0.0, 0.0])
        assert found.pairs == 132
        false += any(b.any() for b in found.better)
    assert false / 400 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)


def test_better_methods_are_found_and_failures_count_as_the_worst() -> None:
    generator = np.random.default_rng(2)
    x = generator.lognormal([[0.0], [0.0], [2.0], [2.0]], 0.1, (4, 5))
    found = all_pairs([x], [0.0])
    assert found.unbeaten(0).tolist() == [True, True, False, False]
    assert found.better[0][:2, 2:].all()
    assert all_pairs([np.exp(x)], [0.0]).better[0][:2, 2:].all()
    x[2, :2] = math.inf
    assert not all_pairs([x], [0.0]).better[0][2].any()
    # One or two replicates: nothing to judge a difference by, however large.
    assert all(all_pairs([x[:, n:]], [0.0]).unbeaten(0).all() for n in (3, 4))
    assert all_pairs([], []).pairs == 0


def test_methods_far_from_those_that_pass_for_exact_draws_are_not_among_the_best() -> None:
    """Family of one pair: three replicates differ by 8 with too few of them to tell; exact draws do."""
    near = np.array([1.0, 1.6, 0.7])
    x = np.array([near, near[::-1], 8 * near[[1, 0, 2]], 4 * near])
    p_exact = [0.4, 0.6, 1e-6, 0.01]
    found = all_pairs([x], [2.0], [p_exact])
    assert found.pairs == 6 + 4
    assert found.spread[0].max() < 0.5
    assert found.unbeaten(0).all()
    assert found.told[0].tolist() == [False, False, True, False]
    ratios, passing = np.median(x, 1), [True, True, False, False]
    assert found.best(0, ratios, passing).tolist() == [True, True, False, True]
    # None passes, or one that does is almost as far off, or without floors: none is left out.
    assert found.best(0, ratios, [False] * 4).all()
    assert found.best(0, [ratios[2] / 4.9, *ratios[1:]], [True, False, False, False]).all()
    assert found.best(0, [ratios[2] / 5.1, ratios[2] / 4.9, *ratios[2:]], passing).all()
    assert not found.best(0, [ratios[2] / 5.1, *ratios[1:]], [True, False, False, False])[2]
    assert found.best(0, [math.nan] * 4, passing).all()
    # Where one of them spreads beyond what was simulated, or fails, none.
    for value in (30.0, math.inf):
        wide = x.copy()
        wide[0, 1] = value
        assert all_pairs([wide], [2.0], [p_exact]).best(0, ratios, passing).all()
    assert not all_pairs([x], [0.0]).told[0].any()
    # One that passes and is beaten is no standard.
    none, told = np.zeros(3, bool), np.array([False, False, True])
    beaten = Comparisons([np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]], bool)], [none], [told], [np.zeros(3)], 6)
    assert beaten.best(0, [1, 5, 600], [False, True, False]).tolist() == [True, False, True]


def test_many_lost_replicates_outweigh_values_and_one_does_not() -> None:
    """Four methods, twenty replicates, the first twice as good: (1/4)^4 in a family of ten is significant, (1/4)^3 is not."""
    x = np.random.default_rng(3).lognormal([[-0.7], [0.0], [0.0], [0.0]], 0.2, (4, 20))
    for lost, out in ((1, False), (3, False), (4, True), (9, True)):
        x[0, :lost] = math.inf
        found = all_pairs([x], [0.0])
        assert p_loses_more(np.isinf(x))[0] == pytest.approx(0.25**lost)
        assert found.pairs == 6 + 4
        assert found.unreliable[0].tolist() == [out, False, False, False]
        assert found.better[0][0].any() is not out
        assert found.unbeaten(0).tolist() == [not out, *[out] * 3]
    # By counting: methods of which a replicate's lost ones may be any, with equal chances.
    failed = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [0, 0, 0, 1]], bool)
    ways = list(itertools.product(*[list(itertools.combinations(range(3), k)) for k in failed.sum(0)]))
    counts = np.array([[sum(i in chosen for chosen in way) for i in range(3)] for way in ways])
    assert p_loses_more(failed) == pytest.approx((counts >= failed.sum(1)).mean(0))


def test_better_is_a_lower_median_too() -> None:
    """Twelve replicates at 0.9 and eight at 10 have the lower median of twenty at 1.0, and the higher mean of logarithms."""
    rng = np.random.default_rng(0)
    x = np.stack([np.ones(20), np.repeat([0.9, 10.0], [12, 8])]) * rng.lognormal(0, 0.01, (2, 20))
    assert stats.ttest_rel(*np.log(x)).pvalue < 0.05
    assert all_pairs([x], [0.0]).unbeaten(0).all()


@pytest.mark.slow
def test_exact_draws_share_the_familys_level() -> None:
    """Two tasks of 12 methods that are all exact: one false difference of any kind in at most 5% of 400 (and four errors)."""
    generator = np.random.default_rng(5)
    false = 0
    for _ in range(400):
        floors = [Floor(100, np.sort(generator.lognormal(0, 0.2, 200))) for _ in range(2)]
        tasks = [generator.lognormal(0, 0.2, (12, 5)) for _ in floors]
        p_exact = [[exact_p_value("sliced_w2", v, f) for v in x] for x, f in zip(tasks, floors, strict=True)]
        found = all_pairs(tasks, [0.0, 0.0], p_exact)
        false += any(b.any() for b in (*found.better, *found.told))
    assert false / 400 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)


def test_a_pair_alone_is_compared_by_the_paired_t_test() -> None:
    x = np.random.default_rng(1).normal([[0.0], [0.3]], 0.2, (2, 8))
    p = stats.ttest_rel(*x).pvalue
    assert p_no_better(x[0], x[1]) == pytest.approx(p / 2)
    assert all_pairs([x], [0.0], alpha=1.001 * p).better[0][0, 1]
    assert not all_pairs([x], [0.0], alpha=0.999 * p).better[0].any()
    assert not all_pairs([x], [1 / 9], alpha=1.001 * p).better[0].any()


def test_failures_lose_by_rank() -> None:
    x = np.random.default_rng(2).normal([[0.0], [1.0]], 0.1, (2, 10))
    x[1, :3] = math.inf
    assert p_no_better(x[0], x[1]) == pytest.approx(2.0**-10)  # all ten pairs won: the least there is


def test_overlapping_splits_widen_the_interval() -> None:
    a, b = np.random.default_rng(3).normal(0, 1, (2, 20))
    plain, corrected = paired_difference(a, b), paired_difference(a, b, overlap=1 / 9)
    ratio = (corrected.high - corrected.low) / (plain.high - plain.low)
    assert ratio == pytest.approx(math.sqrt((1 / 20 + 1 / 9) / (1 / 20)))


@pytest.mark.parametrize("spread", [8.0, math.inf])
def test_the_prior_of_variances_is_recovered(spread: float) -> None:
    """Variances with five degrees of freedom whose own law is scaled inverse chi-squared: 0.3 F(5, 8), or 0.3 chi^2_5 / 5."""
    rng = np.random.default_rng(1)
    own = rng.chisquare(5, 40_000) / 5
    freedom, scale = _prior_variance(
        0.3 * own / (1 if math.isinf(spread) else rng.chisquare(spread, own.size) / spread), 5
    )
    assert scale == pytest.approx(0.3, rel=0.03)
    assert 1 / freedom == pytest.approx(1 / spread, abs=0.005)


def test_variances_of_pairs_are_drawn_towards_the_prior() -> None:
    """By hand: (d0 s0^2 + (n - 1) s^2) / (d0 + n - 1), and as many degrees of freedom, at most those of all rows."""
    x = np.random.default_rng(4).normal(0, [[0.1], [0.4], [1.0], [2.0]], (4, 6))
    i, j = np.triu_indices(4, 1)
    own = (x[i] - x[j]).var(1, ddof=1)
    freedom, scale = _prior_variance(own, 5)
    assert 0.5 < freedom < 50
    spread = np.sqrt((freedom * scale + 5 * own) / (freedom + 5) * (1 / 6 + 0.1))
    expected = 2 * stats.t.sf(abs((x[i] - x[j]).mean(1)) / spread, min(freedom + 5, 3 * 5))
    mean, p = _moderated(x, 0.1)
    np.testing.assert_allclose(p, expected, rtol=1e-12)
    np.testing.assert_allclose(mean, (x[i] - x[j]).mean(1), rtol=1e-12)


def test_many_overlapping_splits_have_student_s_interval() -> None:
    """The bootstrap would take them for independent."""
    a, b = np.random.default_rng(5).normal(0, 1, (2, BOOTSTRAP_PAIRS + 10))
    found, d = paired_difference(a, b, overlap=0.1), a - b
    half = stats.t.ppf(0.975, len(d) - 1) * d.std(ddof=1) * math.sqrt(1 / len(d) + 0.1)
    assert (found.low, found.high) == pytest.approx((d.mean() - half, d.mean() + half))


def test_a_failure_outweighs_every_finite_difference() -> None:
    """One failure among ten pairs has rank ten alone, whatever the largest difference is: nine pairs won weigh 45 of 55."""
    won = -np.arange(1.0, 10.0)
    lost = stats.wilcoxon([*won, 10.0], alternative="less").pvalue
    assert p_no_better([*won, math.inf], np.zeros(10)) == pytest.approx(lost)
