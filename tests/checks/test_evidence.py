"""The tests behind a verdict: their size, their power, their far tails."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from parvibench.checks.evidence import bound_p_value, law_p_values, shift


def test_size_is_at_most_nominal() -> None:
    """4,000 clean tests at 5%: more than 6% would come up in fewer than one seed in 300."""
    rng = np.random.default_rng(1)
    law = rng.normal(size=(120, 4000))
    p = law_p_values(rng.normal(size=(20, 4000)), law)
    assert 0.02 < (p < 0.05).mean() < 0.06
    assert (p < 1e-3).mean() < 4e-3


def test_small_p_values_are_exact() -> None:
    """Where it matters no normal approximation is left."""
    law = stats.norm.ppf((np.arange(120) + 0.5) / 120)
    fresh = stats.norm.ppf((np.arange(20) + 0.5) / 20) + 1.601
    exact = stats.mannwhitneyu(fresh, law, method="exact").pvalue
    assert law_p_values(fresh[:, None], law[:, None])[0] == pytest.approx(2 * exact)


@pytest.mark.parametrize("k", [3, 5, 8])
def test_few_values_off_a_constant_are_counted_out(k: int) -> None:
    """All k in the fresh sample: hypergeometric. The normal approximation is off by a factor of 1,000 at k = 5."""
    fresh = np.r_[np.zeros(k), np.ones(20 - k)][:, None]
    expected = stats.hypergeom(140, k, 20).pmf(k)
    assert law_p_values(fresh, np.ones((120, 1)))[0] == pytest.approx(2 * expected)


def test_ties_have_their_permutation_distribution() -> None:
    fresh, law = np.array([0.0, 0, 1, 1, 1, 2, 2, 3]), np.array([3.0, 3, 4, 4, 4, 5, 5, 6])
    ranks = stats.rankdata(np.r_[fresh, law])
    sums = np.array([sum(chosen) for chosen in itertools.combinations(ranks, 8)])
    off = np.abs(sums - sums.mean())
    expected = (off >= off[0] - 1e-9).mean()
    assert expected < 1e-3  # or it would not be counted out
    assert law_p_values(fresh[:, None], law[:, None])[0] == pytest.approx(2 * expected)


def test_a_change_of_spread_alone_is_seen() -> None:
    rng = np.random.default_rng(2)
    law = rng.normal(size=(120, 1))
    assert law_p_values(0.01 * rng.normal(size=(60, 1)), law)[0] < 1e-7


def test_constants_and_divergence() -> None:
    """Equal constants are no change; replicates at +inf are one."""
    ones = np.ones((20, 1))
    assert law_p_values(ones, np.ones((120, 1)))[0] == 1
    assert law_p_values(np.full((20, 1), math.inf), np.random.default_rng(3).normal(size=(120, 1)))[0] < 1e-12


def test_bounds() -> None:
    rng = np.random.default_rng(4)
    inside, outside = 0.2 + 0.05 * rng.normal(size=20), 0.4 + 0.05 * rng.normal(size=20)
    assert bound_p_value(inside, 0.25) > 0.5
    assert bound_p_value(outside, 0.25) < 1e-8
    with np.errstate(over="raise"):
        assert bound_p_value(1e200 * outside, 0.25e200) == pytest.approx(bound_p_value(outside, 0.25), rel=1e-6)
    assert bound_p_value(-outside, 0.25) < 1e-8
    assert bound_p_value(np.array([0.0, math.inf]), 0.25) == 0
    # At limit 0 it is the usual test.
    assert bound_p_value(inside, 0.0) == pytest.approx(stats.ttest_1samp(inside, 0.0).pvalue)


def test_interval_of_the_shift_covers() -> None:
    """200 intervals at 95%: fewer than 90% covering has probability 0.2%."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        found = shift(rng.normal(loc=0.7, size=20), rng.normal(size=120))
        hits += found.low <= 0.7 <= found.high
    assert hits >= 180
