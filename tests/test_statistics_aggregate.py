"""Aggregates over tasks and runtime-to-target profiles."""

import math

import numpy as np
import pytest
from scipy import stats

from parvibench import statistics
from parvibench.statistics import hitting_times, interquartile_mean, runtime_profile


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240601)


def test_interquartile_mean_drops_a_quarter_on_either_side(rng: np.random.Generator) -> None:
    """Of 1..12 the values 4 to 9 remain, however they are spread over tasks."""
    values = rng.permutation(np.arange(1.0, 13.0))
    found = interquartile_mean([values[:5], values[5:]], rng)
    assert found.value == 6.5
    assert found.low < 6.5 < found.high


def test_resampling_stays_within_tasks(rng: np.random.Generator) -> None:
    """Tasks on far levels without spread of their own leave no doubt; a pooled bootstrap would see much."""
    tasks = [np.full(6, level) for level in (1.0, 5.0, 30.0)]
    found = interquartile_mean(tasks, rng)
    assert found.value == (2 * 1 + 6 * 5 + 2 * 30) / 10  # 18 values, four trimmed at either end
    assert found.low == found.value == found.high


def test_failures_are_infinitely_bad_until_trimmed(rng: np.random.Generator) -> None:
    few = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, math.inf]
    assert interquartile_mean([few], rng).value == 4.5
    assert interquartile_mean([[*few[:5], math.nan, math.inf, math.inf]], rng).value == math.inf
    assert interquartile_mean([few], rng).high == math.inf


def test_intervals_cover_what_they_say(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Coverage at 10 replicates of 5 tasks is 92 to 95%; false alarms of all four bars together: at most 5e-3.

    Catches resamples of the wrong size (half the replicates: 99%; twice as many: 80%).
    """
    monkeypatch.setattr(statistics, "RESAMPLES", 250)
    trials, hits = 300, np.zeros(2)
    for _ in range(trials):
        mean = interquartile_mean(list(rng.standard_normal((5, 10))), rng)  # truth 0 by symmetry
        times = {str(t): rng.exponential(size=(10, 2)) for t in range(5)}
        band = runtime_profile(times, [0.7], int(rng.integers(2**32))).iloc[0]
        hits += [mean.low <= 0 <= mean.high, band["low"] <= 1 - math.exp(-0.7) <= band["high"]]
    assert (hits / trials > 0.87).all(), hits / trials
    assert (hits / trials < 0.985).all(), hits / trials


def test_targets_are_hit_first_and_failures_never() -> None:
    """Getting worse again does not undo a hit; null values and replicates without values never hit."""
    nan, inf = math.nan, math.inf
    values = np.array([[8.0, 3.0, 9.0, 1.0], [nan, inf, 4.0, 4.0]]).T
    spent = np.repeat([[100.0], [200.0], [300.0], [400.0]], 2, axis=1)
    assert hitting_times(values, spent, [4.0, 2.0], 3).tolist() == [[200.0, 400.0], [300.0, inf], [inf, inf]]
    assert hitting_times(np.empty((0, 0)), np.empty((0, 0)), [2.0], 2).tolist() == [[inf], [inf]]


def test_a_profile_by_hand() -> None:
    """Tasks weigh the same whatever their replicates; what is never reached stays in the denominator."""
    inf = math.inf
    times = {"a": np.array([[10.0, 20.0], [inf, inf]]), "b": np.array([[10.0, inf]])}
    profile = runtime_profile(times, [5.0, 10.0, 20.0, 1e9], 0)
    assert profile["share"].tolist() == [0.0, 0.375, 0.5, 0.5]
    assert (profile["low"] <= profile["share"]).all()
    assert (profile["share"] <= profile["high"]).all()
    # Task b has one replicate, and no spread: only a's half can move.
    assert (profile["low"].iloc[-1], profile["high"].iloc[-1]) == (0.25, 0.75)


@pytest.mark.parametrize("counts", [(3,), (3, 3), (10, 4, 7)])
def test_percentile_intervals_of_few_replicates_are_expanded(counts: tuple[int, ...]) -> None:
    """Cut at shares whose normal quantile is Student's, over the root of the mean of (n - 1) / n, of the bootstrap's variance."""
    student = stats.t.ppf(0.975, sum(counts) - len(counts))
    shrunk = math.sqrt(sum(1 - 1 / n for n in counts) / len(counts))
    assert stats.norm.isf(statistics._tail(counts)) == pytest.approx(student / shrunk, rel=1e-9)
    assert statistics._tail(counts) < 0.025
