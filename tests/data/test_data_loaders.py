"""Loaders: shapes, columns and a checksum of values of every set."""

import os

import numpy as np
import pytest

from parvibench.data.fetch import FOLDER_VARIABLE, registry
from parvibench.data.loaders import BUNDLED, load


def needs_data(test):
    """Skips a test where the data sets are not on disk."""
    reason = f"needs data sets on disk: set {FOLDER_VARIABLE}"
    return pytest.mark.data(pytest.mark.skipif(FOLDER_VARIABLE not in os.environ, reason=reason)(test))


@needs_data
@pytest.mark.parametrize("name", [n for n, row in registry().items() if row.target_column])
def test_registered_sets_load(name: str) -> None:
    X, y = load(name)
    entry = registry()[name]
    assert X.shape == (entry.rows, entry.features)
    assert y.shape == (entry.rows,)
    assert X.dtype == y.dtype == np.float64
    assert np.isfinite(X).all()
    assert np.isfinite(y).all()


@needs_data
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("bostonHousing", 5, 50),
        ("wine-quality-red", 3, 8),
        ("wine-quality-white", 3, 9),
        ("naval-propulsion-plant", 0.95, 1.0),
        ("yacht", 0.01, 62.42),
        ("protein-tertiary-structure", 0, 20.999),
        ("sifg-protein", 0, 20.999),
        ("sifg-power", 420.26, 495.76),
    ],
)
def test_the_response_is_the_right_column(name: str, low: float, high: float) -> None:
    """Ranges as the sources state them. Catches naval's second target (0.975 .. 1) taken for the first."""
    y = load(name).y
    assert (y.min(), y.max()) == (low, high)


@needs_data
def test_navals_second_target_is_no_feature() -> None:
    """Catches the turbine decay (column 17) leaking into the features."""
    X = load("naval-propulsion-plant").X
    assert X.shape[1] == 16
    assert (np.ptp(X, axis=0) == 0).nonzero()[0].tolist() == [8, 11]


@needs_data
def test_waveform_is_the_training_part_without_its_ones() -> None:
    """268 of 400 responses are 1 (of 5000 rows in all, 3353). Catches the intercept left in, or the test rows."""
    X, y = load("waveform")
    assert y.sum() == 268
    assert set(y) == {0.0, 1.0}
    assert X.std(axis=0).min() > 0.9
    assert X.std(axis=0).max() < 1.1


@needs_data
def test_mushrooms_letters_become_columns() -> None:
    """4208 of 8124 are edible, 2480 miss their stalk root. Catches a code e = 0, and `?` dropped as missing."""
    X, y = load("mushroom")
    assert X.shape == (8124, 117)
    assert set(np.unique(X)) == {0.0, 1.0}
    assert (X.sum(axis=1) == 22).all()  # one letter each
    assert y.sum() == 4208
    assert 2480 in X.sum(axis=0)


@needs_data
@pytest.mark.parametrize(
    ("name", "ones", "whole"), [("sifg-diabetes", 268, None), ("sifg-wine-binary", 855, "wine-quality-red")]
)
def test_sifgs_outcomes_are_binary(name: str, ones: int, whole: str | None) -> None:
    """Counts as published. Catches a header line read as data, or the wine's scores in place of good and bad."""
    X, y = load(name)
    assert set(y) == {0.0, 1.0}
    assert y.sum() == ones
    if whole:
        np.testing.assert_allclose(X, load(whole).X, atol=1e-8, rtol=0)  # written with fewer digits
        np.testing.assert_array_equal(y, load(whole).y >= 6)


@needs_data
def test_sifgs_copies_hold_the_rows_of_the_known_sets() -> None:
    """Power: the same rows in another order. Protein: the first ones, one column rounded to 0.001."""
    own, known = load("sifg-power"), load("power-plant")
    np.testing.assert_array_equal(
        np.sort(np.column_stack(own).view("f8,f8,f8,f8,f8"), axis=0),
        np.sort(np.column_stack(known).view("f8,f8,f8,f8,f8"), axis=0),
    )
    own, known = load("sifg-protein"), load("protein-tertiary-structure")
    np.testing.assert_allclose(own.X, known.X[:13543], atol=5.001e-4, rtol=0)
    np.testing.assert_array_equal(own.y, known.y[:13543])


@pytest.mark.parametrize(("name", "shape"), list(zip(BUNDLED, [(569, 30), (442, 10)], strict=True)))
def test_bundled_sets_need_no_download(name: str, shape: tuple[int, int]) -> None:
    X, y = load(name)
    assert X.shape == shape
    assert y.shape == shape[:1]
    assert X.dtype == y.dtype == np.float64


def test_loaded_arrays_are_shared_and_read_only() -> None:
    X, _ = load("sklearn-diabetes")
    assert load("sklearn-diabetes").X is X
    with pytest.raises(ValueError, match="read-only"):
        X[0, 0] = 1.0
