"""Floors, verdicts and equivalent sample sizes: on synthetic floors, then on the shipped banana."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.registry import load_task
from parvibench.metrics import floors
from parvibench.metrics.compute import compute
from parvibench.metrics.floors import equivalent_sample_size, holm, mean_similarity, simulate_floors, verdict
from parvibench.metrics.mmd import self_similarity

QUICK = ("sliced_w2", "mmd2", "ksd", "mean_error", "sd_error")


def power_law_reference() -> Reference:
    """Sliced floors of 200 values spread over [0.5, 1.5] / sqrt(n)."""
    spread = np.linspace(0.5, 1.5, 200)
    table = {str(n): list(spread / math.sqrt(n)) for n in floors.CURVE_SIZES}
    return Reference(torch.zeros(2, 1), True, {"floors": {"sliced_w2": table}})


@pytest.mark.parametrize("size", [3.0, 70.0, 700.0])
def test_a_power_law_is_inverted_exactly(size: float) -> None:
    found, interval, reason = equivalent_sample_size("sliced_w2", size**-0.5, 1000, power_law_reference())
    assert found == pytest.approx(size, rel=1e-5)
    # The value is the 97.5% quantile, 1.475 / sqrt(e), of a larger size, and the 2.5% one of a smaller.
    assert interval == pytest.approx((max(2, size * 0.525**2), size * 1.475**2), rel=1e-5)
    assert reason == ""


def test_the_number_is_capped_and_never_guessed() -> None:
    reference = power_law_reference()
    assert equivalent_sample_size("sliced_w2", 1e-3, 100, reference)[::2] == (400, "at least 400")
    assert equivalent_sample_size("sliced_w2", 1e-9, 1000, reference)[::2] == (4000, "at least 4000")
    assert equivalent_sample_size("sliced_w2", 10.0, 100, reference) == (
        None,
        None,
        "worse than 2 exact draws",
    )
    assert equivalent_sample_size("ksd", 0.1, 100, reference)[0] is None
    assert equivalent_sample_size("mmd2", 0.1, 100, reference)[2] == "the reference has no floors"
    assert equivalent_sample_size("sliced_w2", math.inf, 100, reference)[0] is None


def test_holm_against_the_textbook() -> None:
    """Example of Wright (1992), Biometrics 48:1005-1013; and order does not matter."""
    p = [0.010, 0.020, 0.022, 0.09]
    assert holm(p) == pytest.approx([0.04, 0.06, 0.06, 0.09])
    assert holm(p[::-1]) == pytest.approx(holm(p)[::-1])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert [verdict(v) for v in ([], [0.03, 0.5], [0.02, 0.5])] == [
        "not applicable",
        "indistinguishable",
        "distinguishable",
    ]


def test_simulated_floors_have_the_laws_of_theory(make_context, monkeypatch: pytest.MonkeyPatch) -> None:
    """mean_error^2 of exact draws is chi^2_D / (D n); E mmd2 = (1 - E k) / n + b."""
    monkeypatch.setattr(floors, "SIZES", (50, 100))
    monkeypatch.setattr(floors, "CURVE_SIZES", (50,))
    generator = Generator().manual_seed(8)
    draws = torch.randn(3000, 2, generator=generator, dtype=torch.float64)
    context = make_context(2, draws, task={"metrics": ("sliced_w2", "mmd2", "mean_error", "rhat")})
    context.reference.certificate.update(mean=[0.0, 0.0], sd=[1.0, 1.0])
    sets = {n: torch.randn(200, n, 2, generator=generator, dtype=torch.float64) for n in (50, 100)}
    found = simulate_floors(context.task, context.reference, lambda n: iter(sets[n]))
    assert {name: list(table) for name, table in found.items()} == {
        "sliced_w2": ["50"],
        "mmd2": ["50", "100"],
        "mean_error": ["50", "100"],
    }
    errors = 100 * 2 * np.square(found["mean_error"]["100"])
    assert stats.kstest(errors, stats.chi2(2).cdf).pvalue > 1e-3
    h = context.reference.bandwidth
    similarity = mean_similarity(sets[100], h)
    assert similarity == pytest.approx(h**2 / (h**2 + 2), abs=0.01)
    values = np.array(found["mmd2"]["100"])
    bias = self_similarity(draws, h) - 2 * kernel_to_law(draws, h) + h**2 / (h**2 + 2)
    expected = (1 - h**2 / (h**2 + 2)) / 100 + bias
    assert abs(values.mean() - expected) < 4 * values.std() / math.sqrt(200)


def kernel_to_law(draws: torch.Tensor, h: float) -> float:
    """Mean over draws of E k(y, X), X ~ N(0, I_2)."""
    return float((h**2 / (h**2 + 1) * (-draws.square().sum(1) / (2 * (h**2 + 1))).exp()).mean())


@pytest.fixture(scope="module")
def banana() -> Context:
    task = load_task("banana")
    return Context(task, task.reference(), task.target([0], "cpu", torch.float64))


@pytest.fixture(scope="module")
def exact_values(banana: Context) -> dict[str, np.ndarray]:
    """Metrics of 100 sets of 100 fresh exact draws."""
    generator = Generator().manual_seed(77)
    samples = torch.stack([banana.task.exact(100, generator) for _ in range(100)])
    return {name: v.numpy() for name, v in compute(QUICK, samples, banana)[0].items()}


def test_exact_draws_are_called_distinguishable_at_about_alpha(
    banana: Context, exact_values: dict[str, np.ndarray]
) -> None:
    """A floor of 200 values has the true level Beta(10, 191): the count is beta-binomial."""
    limit = stats.betabinom.ppf(0.999, 100, 10, 191)
    p = {
        name: [banana.reference.floor(name, 100).p_value(v) for v in values]
        for name, values in exact_values.items()
    }
    for name, values in p.items():
        assert sum(v <= floors.ALPHA for v in values) <= limit, name
    called = [verdict(trial) for trial in zip(*p.values(), strict=True)]
    assert called.count("distinguishable") <= limit


@pytest.mark.parametrize("metric", ["sliced_w2", "mmd2"])
def test_exact_draws_are_worth_their_number(
    metric: str, banana: Context, exact_values: dict[str, np.ndarray]
) -> None:
    """The pooled value gives n within three of its standard errors; the intervals hold n 95 times in 100."""
    values = exact_values[metric]
    # Bars of three standard errors: 12% by the median and its curve, 7% by the mean.
    pooled, bar = (np.median(values), 0.36) if metric == "sliced_w2" else (values.mean(), 0.21)
    size, _, _ = equivalent_sample_size(metric, float(pooled), 100, banana.reference)
    assert size == pytest.approx(100, rel=bar)
    intervals = [equivalent_sample_size(metric, float(v), 100, banana.reference)[1] for v in values]
    assert sum(low <= 100 <= high for low, high in intervals) >= stats.binom.ppf(0.0005, 100, 0.95)
