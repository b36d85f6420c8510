"""Moment errors, correlations, marginal distances and modes, against SciPy, NumPy and constructed samples."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

from parvibench.core.metric import NotApplicable
from parvibench.core.task import Facts, Modes
from parvibench.metrics.modes import MASS, mode_weight_tv, modes_found, radius
from parvibench.metrics.moments import (
    correlation_error,
    ks_marginal,
    mean_error,
    sd_error,
    w1_marginal,
    worst_coordinate,
    worst_named,
)


def points(means: torch.Tensor, *counts: int) -> torch.Tensor:
    """So many copies of every mean, (n, D) float64."""
    return torch.repeat_interleave(means, torch.tensor(counts), 0).double()


def test_errors_are_in_units_of_the_target(make_context) -> None:
    facts = Facts(mean=torch.tensor([1.0, 0.0]), sd=torch.tensor([2.0, 5.0]))
    # Coordinate 0: mean 3, sd sqrt(2); coordinate 1: mean 0, sd sqrt(200).
    samples = torch.tensor([[[2.0, -10.0], [4.0, 10.0]]], dtype=torch.float64)
    context = make_context(task={"facts": facts})
    assert mean_error(samples, context).item() == pytest.approx((0.5 * (1 + 0)) ** 0.5)
    a, b = 2**0.5 / 2 - 1, 200**0.5 / 5 - 1
    assert sd_error(samples, context).item() == pytest.approx((0.5 * (a * a + b * b)) ** 0.5)


def test_moments_fall_back_on_the_reference(make_context, randn) -> None:
    draws = randn(100, 2)
    assert mean_error(draws[None], make_context(2, draws)).item() == pytest.approx(0, abs=1e-14)
    with pytest.raises(NotApplicable, match="moments"):
        mean_error(draws[None], make_context())


def test_a_mode_needs_two_percent_within_three_sds(make_context, randn) -> None:
    means = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    modes = Modes(means, torch.tensor([0.1, 0.2, 0.3]), torch.full((3,), 1 / 3))
    context = make_context(task={"facts": Facts(modes=modes)})

    for counts, found in (((96, 2, 2), 3), ((98, 1, 1), 1), ((100, 0, 0), 1)):
        assert modes_found(points(means, *counts)[None], context).item() == found
    # 0.35 off: outside three sds of the first mode only.
    offset = torch.tensor([0.35, 0.0])
    assert modes_found(points(means + offset, 40, 30, 30)[None], context).item() == 2


@pytest.mark.parametrize(("n", "m"), [(7, 12), (200, 31)])
@pytest.mark.parametrize("ties", [False, True])
def test_marginals_agree_with_scipy(n: int, m: int, ties: bool, make_context, randn) -> None:
    """Ties within and across the sets included; catches suprema that miss the left limits."""
    x = randn(n, 3) + 0.4
    y = randn(m, 3)
    if ties:
        x, y = x.round(decimals=1), y.round(decimals=1)
    expected = max(stats.ks_2samp(x[:, d], y[:, d], method="asymp").statistic for d in range(3))
    assert ks_marginal(x[None], make_context(3, y)).item() == pytest.approx(expected, rel=1e-12)
    distances = [stats.wasserstein_distance(x[:, d], y[:, d]) for d in range(3)]
    assert w1_marginal(x[None], make_context(3, y)).item() == pytest.approx(sum(distances), rel=1e-12)


def test_correlations_against_numpy(make_context, randn) -> None:
    mix = randn(4, 4)
    x = randn(2, 30, 4) @ mix
    y = randn(50, 4)
    pairs = np.triu_indices(4, 1)
    target = np.corrcoef(y.numpy(), rowvar=False)[pairs]
    expected = [np.sqrt(np.mean((np.corrcoef(a, rowvar=False)[pairs] - target) ** 2)) for a in x.numpy()]
    assert correlation_error(x, make_context(4, y)).tolist() == pytest.approx(expected)


def test_one_coordinate_has_no_correlation(make_context, randn) -> None:
    with pytest.raises(NotApplicable, match="one coordinate"):
        correlation_error(randn(1, 9, 1), make_context(1, randn(9, 1)))


@pytest.mark.parametrize("metric", [mean_error, sd_error, correlation_error])
def test_infinite_moments_have_no_errors(metric, make_context, randn) -> None:
    draws = randn(50, 2)
    context = make_context(2, draws, task={"facts": Facts(infinite_moments=True)})
    with pytest.raises(NotApplicable, match="infinite"):
        metric(draws[None], context)


def test_mode_weights_of_exact_draws(make_context, randn, generator: Generator) -> None:
    """Overlapping modes, unequal weights and spreads: shares are unbiased. False alarms: 6e-5 per mode.

    Catches shares by the largest responsibility, which are off by 0.03 here.
    """
    n = 20_000
    means = torch.tensor([[0.0, 0.0], [1.5, 0.0]], dtype=torch.float64)
    sds, weights = torch.tensor([1.0, 0.5]), torch.tensor([0.7, 0.3])
    labels = torch.multinomial(weights, n, replacement=True, generator=generator)
    noise = randn(n, 2)
    x = means[labels] + sds[labels, None] * noise
    context = make_context(2, task={"facts": Facts(modes=Modes(means, sds, weights))})
    assert mode_weight_tv(x[None], context).item() < 4 * math.sqrt(0.7 * 0.3 / n)


def test_mode_weights_by_hand(make_context) -> None:
    """Modes far apart: all samples in the first of three, or 50:30:20, or so far away that all underflow."""
    means = torch.tensor([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    modes = Modes(means, torch.ones(3), torch.tensor([0.5, 0.3, 0.2]))
    context = make_context(2, task={"facts": Facts(modes=modes)})

    batch = torch.stack([points(means, 10, 0, 0), points(means, 5, 3, 2), 1e9 + points(means, 10, 0, 0)])
    found = mode_weight_tv(batch, context)
    assert found[:2].tolist() == pytest.approx([0.5, 0.0], abs=1e-7)
    assert 0 <= found[2] <= 1
    for metric in (mode_weight_tv, modes_found):
        with pytest.raises(NotApplicable, match="modes"):
            metric(batch, make_context())


def test_the_worst_coordinate_by_hand(make_context, randn) -> None:
    """Of five Gaussian coordinates one sd is a fifth off, of another the mean; a heavy tail is judged by its 10-90% range."""
    draws = randn(4000, 5)
    reference = make_context(5, draws).reference
    kurtosis = stats.kurtosis(draws.numpy(), fisher=False)
    x = draws.clone()
    x[:, 2] = reference.mean[2] + 0.8 * (x[:, 2] - reference.mean[2])
    context = make_context(5, draws)
    assert worst_coordinate(x[None], context).item() == pytest.approx(0.2 / np.sqrt((kurtosis[2] - 1) / 4), rel=1e-6)
    names = ["a", "b", "tau", "d", "e"]
    assert worst_named(x, context, names, 0.1) == "sd of tau: 0.80 of the reference's"
    assert worst_named(x + torch.tensor([0, 0, 0, 3.0, 0]), context, names, 0.1).startswith("mean of d: +3.0")
    draws = draws.clone()
    draws[:, 2] = torch.tensor(stats.t.ppf(np.linspace(1e-5, 1 - 1e-5, 4000), 2))
    context = make_context(5, draws)
    x = draws.clone()
    x[:, 2] *= 0.5
    within = stats.t.cdf(2 * stats.t.ppf(0.9, 2), 2) * 2 - 1
    assert worst_coordinate(x[None], context).item() == pytest.approx((within - 0.8) / 0.4, abs=0.01)
    assert worst_named(x, context, names, 0.1) == "10-90% range of tau: 0.50 of the reference's"


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_a_mode_s_radius_holds_its_share_of_a_gaussian(dim: int, randn) -> None:
    """Of 40,000 draws, within five standard errors."""
    share = (randn(40_000, dim).norm(dim=1) < radius(dim)).double().mean().item()
    assert share == pytest.approx(MASS, abs=5 * math.sqrt(MASS * (1 - MASS) / 40_000))
