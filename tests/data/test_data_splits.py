"""Splits equal the published recipe; standardisation sees training rows only."""

import numpy as np
import pytest

from parvibench.core.task import TUNING_REPLICATES
from parvibench.data.loaders import Table
from parvibench.data.splits import moments, regression_split, split, training_rows


@pytest.mark.parametrize("n", [5, 308, 455])
def test_splits_follow_one_stream_of_permutations(n: int) -> None:
    """The recipe written out once more; catches a reseed per split, and sizes that are not rounded half up."""
    stream = np.random.RandomState(1)
    cut = int(np.floor(0.9 * n + 0.5))
    for replicate in range(22):
        rows = stream.choice(n, n, replace=False)
        found = split(n, replicate)
        np.testing.assert_array_equal(found.train, rows[:cut])
        np.testing.assert_array_equal(found.test, rows[cut:])


def test_splits_stay_what_they_were() -> None:
    """Row numbers pinned: NumPy's legacy generator must not drift under the results."""
    assert split(308, 0).test[:6].tolist() == [121, 115, 286, 216, 264, 209]
    assert split(308, 19).test[:6].tolist() == [74, 54, 250, 21, 71, 231]


def test_tuning_splits_are_their_own() -> None:
    """Catches tuning on rows that are reported: every row it sees is a training row of the benchmark's split."""
    n = 200
    tuning = [split(n, TUNING_REPLICATES + r) for r in range(3)]
    for r, found in enumerate(tuning):
        assert sorted([*found.train, *found.test]) == sorted(split(n, r).train)
        assert len(found.test) == training_rows(n) // 5
    assert not np.array_equal(tuning[0].test, tuning[1].test)
    np.testing.assert_array_equal(tuning[0].test, split(n, TUNING_REPLICATES).test)


def table(n: int = 50, p: int = 3) -> Table:
    rng = np.random.default_rng(7)
    return Table(rng.normal(3.0, 5.0, (n, p)), rng.normal(-20.0, 4.0, n))


def test_training_part_has_mean_zero_and_population_sd_one() -> None:
    found = regression_split(table(), 3)
    np.testing.assert_allclose(found.X_train.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(found.X_train.std(0), 1)
    np.testing.assert_allclose([found.y_train.mean(), found.y_train.std()], [0, 1], atol=1e-12)


def test_test_rows_change_nothing_in_training() -> None:
    """Catches scaling by all rows or by test statistics (as one paper's code does)."""
    before = table()
    rows = split(50, 3)
    X, y = before.X.copy(), before.y.copy()
    X[rows.test] *= 1000
    y[rows.test] += 1e6
    one, two = regression_split(before, 3), regression_split(Table(X, y), 3)
    np.testing.assert_array_equal(one.X_train, two.X_train)
    np.testing.assert_array_equal(one.y_train, two.y_train)
    assert (one.y_mean, one.y_sd) == (two.y_mean, two.y_sd)


def test_test_part_is_scaled_by_training_and_keeps_its_units() -> None:
    data, found, rows = table(), regression_split(table(), 3), split(50, 3)
    train = data.X[rows.train]
    np.testing.assert_allclose(found.X_test, (data.X[rows.test] - train.mean(0)) / train.std(0))
    np.testing.assert_array_equal(found.y_test, data.y[rows.test])
    np.testing.assert_allclose(found.y_train * found.y_sd + found.y_mean, data.y[rows.train])


def test_constant_columns_are_divided_by_one() -> None:
    """0.1 in binary: the computed deviation is a rounding error, which division would blow up."""
    values = np.column_stack([np.full(1000, 0.1), np.arange(1000.0)])
    mean, sd = moments(values)
    assert sd[0] == 1.0
    assert np.abs((values - mean) / sd)[:, 0].max() < 1e-12
