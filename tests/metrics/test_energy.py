"""Energy distance against SciPy, and the closed form of point masses."""

import math

import pytest
from scipy import stats

from parvibench.metrics import common as pairwise
from parvibench.metrics.mmd import energy_distance, mean_distance


def test_agrees_with_scipy_in_one_dimension(make_context, randn) -> None:
    """SciPy integrates the squared difference of the distribution functions, and takes the root."""
    x = randn(40, 1) + 0.3
    y = 2 * randn(70, 1)
    expected = stats.energy_distance(x[:, 0], y[:, 0]) ** 2
    assert energy_distance(x[None], make_context(1, y)).item() == pytest.approx(expected, rel=1e-5)


def test_gaussians_far_apart(make_context, randn) -> None:
    """In D dimensions E||X - Y|| of unit Gaussians is sqrt(2) E chi_D; shifted far by t it tends to t."""
    n, dim, far = 2000, 3, 1e4
    draws, x = randn(n, dim), randn(1, n, dim)
    x[..., 0] += far
    within = math.sqrt(2) * math.sqrt(2) * math.gamma((dim + 1) / 2) / math.gamma(dim / 2)
    expected = 2 * (far + (dim - 1) / far) - 2 * within  # second order in 1 / far
    # Mean shift: each side's mean has standard error n^(-1/2).
    assert energy_distance(x, make_context(dim, draws)).item() == pytest.approx(expected, abs=4 * 2 * math.sqrt(2 / n))


def test_the_reference_itself_and_blocks(make_context, monkeypatch: pytest.MonkeyPatch, randn) -> None:
    draws = randn(100, 2)
    assert energy_distance(draws[None], make_context(2, draws)).item() == 0
    whole = mean_distance(draws, draws[:30])
    monkeypatch.setattr(pairwise, "WIDE_BLOCK", 70)
    assert mean_distance(draws, draws[:30]) == pytest.approx(whole, rel=1e-6)
