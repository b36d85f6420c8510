"""Equivalent sample sizes against closed forms."""

import math

import numpy as np
import pytest
import torch
from torch import Generator

from parvibench.core.reference import Reference
from parvibench.metrics.compute import compute
from parvibench.metrics.equivalent import V_STATISTICS, equivalent_sample_size, v_constants

CURVE_SIZES = (2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000, 4000)


def power_law_reference() -> Reference:
    """Sliced floors of 200 values spread over [0.5, 1.5] / sqrt(n)."""
    spread = np.linspace(0.5, 1.5, 200)
    return Reference(torch.zeros(2, 1), True, {}, {"sliced_w2": {n: spread / math.sqrt(n) for n in CURVE_SIZES}})


@pytest.mark.parametrize("size", [3.0, 70.0, 700.0])
def test_a_power_law_is_inverted_exactly(size: float) -> None:
    found, interval, reason = equivalent_sample_size("sliced_w2", size**-0.5, 1000, power_law_reference())
    assert found == pytest.approx(size, rel=1e-5)
    # The value is the 97.5% quantile, 1.475 / sqrt(e), of a larger size, and the 2.5% one of a smaller.
    assert interval == pytest.approx((max(2, size * 0.525**2), size * 1.475**2), rel=1e-5)
    assert reason == ""


def test_pooled_replicates_narrow_the_interval() -> None:
    one, wide, _ = equivalent_sample_size("sliced_w2", 0.1, 1000, power_law_reference())
    many, narrow, _ = equivalent_sample_size("sliced_w2", [0.1] * 40, 1000, power_law_reference())
    assert one == many
    assert wide[0] < narrow[0] < many < narrow[1] < wide[1]


def test_the_number_is_capped_and_never_guessed() -> None:
    reference = power_law_reference()
    for value, n, cap in ((1e-3, 100, 400), (1e-9, 1000, 4000), (0.0, 1000, 4000), (1e-9, 3000, CURVE_SIZES[-1])):
        found = equivalent_sample_size("sliced_w2", value, n, reference)
        assert found[::2] == (cap, f"at least {cap}")
    found = equivalent_sample_size("sliced_w2", 10.0, 100, reference)
    assert found == (None, None, "worse than 2 exact draws")
    assert equivalent_sample_size("ksd", 0.1, 100, reference)[0] is None
    assert equivalent_sample_size("mmd2", 0.1, 100, reference)[2] == "the reference has no floors"
    assert equivalent_sample_size("sliced_w2", [0.1, math.inf], 100, reference)[0] is None


def test_gap_and_bias_of_a_gaussian(make_context) -> None:
    """A gap that kept the diagonal, or a bias without its 1/n term, is off by ten times as much."""
    g = Generator().manual_seed(3)
    draws = torch.randn(2000, 2, generator=g, dtype=torch.float64)
    context = make_context(2, draws)
    h = context.reference.bandwidth
    pools = [torch.randn(500, 2, generator=g, dtype=torch.float64) for _ in range(100)]
    found = v_constants(context.task, context.reference, iter(pools))
    assert found.keys() == V_STATISTICS.keys()
    law = h**2 / (h**2 + 2)
    to_law = (h**2 / (h**2 + 1) * (-draws.square().sum(1) / (2 * (h**2 + 1))).exp()).mean()
    own = (-torch.cdist(draws, draws).square() / (2 * h**2)).exp().mean()
    gap, bias = 1 - law, float(own - 2 * to_law + law)
    assert found["mmd2"]["gap"] == pytest.approx(gap, rel=0.05)
    error = compute(["mmd2"], torch.stack(pools), context)[0]["mmd2"].numpy().std() / math.sqrt(100)
    assert abs(found["mmd2"]["bias"] - bias) < 4 * error
    assert error < 0.2 * gap / 500
    assert found["energy_distance"]["gap"] == pytest.approx(math.sqrt(math.pi), rel=0.05)


def test_the_closed_form_is_inverted() -> None:
    spread = np.linspace(0.2, 1.8, 400)
    constants = {"mmd2": {"gap": 0.5, "bias": 1e-4}}
    floors = {"mmd2": {n: 1e-4 + 0.5 / n * spread for n in (100, 500, 1000)}}
    reference = Reference(torch.zeros(2, 1), True, {"v_statistics": constants}, floors)
    size, (low, high), _ = equivalent_sample_size("mmd2", 1e-4 + 0.5 / 250, 1000, reference)
    assert size == pytest.approx(250)
    assert (low, high) == pytest.approx((250 * 0.24, 250 * 1.76), rel=1e-2)
    assert equivalent_sample_size("mmd2", 0.5e-4, 100, reference)[::2] == (400, "at least 400")
    # One size, whose band begins below the bias: at 0.7 of the mean there, and one draw never comes as close.
    constants = {"mmd2": {"gap": 0.15, "bias": 1.1e-3}}
    only = Reference(torch.zeros(2, 1), True, {"v_statistics": constants}, {"mmd2": {500: np.full(2, 1e-3)}})
    assert equivalent_sample_size("mmd2", 1.1e-3 + 0.003, 500, only)[1] == pytest.approx((50 / 1.4,) * 2, rel=1e-2)
