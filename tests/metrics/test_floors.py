"""Floors and verdicts: on synthetic floors, then on the shipped banana."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

from parvibench.core import registry
from parvibench.core.metric import Context
from parvibench.core.reference import Floor, Reference
from parvibench.core.registry import load_task
from parvibench.metrics import floors
from parvibench.metrics.compute import compute
from parvibench.metrics.equivalent import equivalent_sample_size
from parvibench.metrics.floors import floor_sets, p_value, simulate_floors, verdict

FLOOR = Floor(100, np.arange(1.0, 301.0))


def test_p_values_rank_one_value_among_the_floor() -> None:
    assert p_value("w2", 1000.0, FLOOR) == pytest.approx(1 / 301)
    assert p_value("w2", 297.0, FLOOR) == pytest.approx((1 + 4 + 2) / 301)
    assert p_value("w2", 0.0, FLOOR) == 1.0
    assert p_value("w2", math.nan, FLOOR) == p_value("w2", math.inf, FLOOR) == pytest.approx(1 / 301)


def test_p_values_know_the_direction() -> None:
    """Finding fewer modes is worse; a tie with every exact draw is not."""
    always_five = Floor(100, np.full(300, 5.0))
    assert p_value("modes_found", 4.0, always_five) == pytest.approx(1 / 301)
    assert p_value("modes_found", 5.0, always_five) == 1.0
    assert p_value("modes_found", math.nan, always_five) == pytest.approx(1 / 301)


def test_replicates_are_compared_with_the_floor_by_ranks() -> None:
    values = FLOOR.values[::30] + 20
    expected = stats.mannwhitneyu(values, FLOOR.values, alternative="greater", method="asymptotic").pvalue
    assert p_value("w2", values, FLOOR) == pytest.approx(expected)
    failed = p_value("w2", [*values[:5], *[math.nan] * 5], FLOOR)
    assert failed < p_value("w2", values, FLOOR)


def test_the_verdict_is_holms() -> None:
    found = [verdict(v) for v in ([], [0.03, 0.5], [0.02, 0.5])]
    assert found == ["not applicable", "indistinguishable", "distinguishable"]


def test_between_sizes_power_laws_are_exact_and_signed_floors_are_joined() -> None:
    spread = np.linspace(0.5, 1.5, 300)
    table = {
        "w2": {n: spread / math.sqrt(n) for n in (100, 500)},
        "mmd2_u": {n: (spread - 1) / n for n in (100, 500)},
        "kl_knn": {100: spread - 1, 500: spread - 0.9},
        "mmd2": {100: np.linspace(1, 2, 1000), 500: np.linspace(0.5, 1, 300)},
        "c2st": {n: spread for n in (100, 500)},
    }
    reference = Reference(torch.zeros(2, 1), True, {}, table)
    assert reference.floor("w2", 250).values == pytest.approx(spread / math.sqrt(250))
    assert reference.floor("mmd2_u", 250).values == pytest.approx((spread - 1) / 250)
    joined = reference.floor("kl_knn", 250)
    assert joined.values.shape == (300,)
    assert (np.diff(joined.values) >= 0).all()
    assert (table["kl_knn"][100] <= joined.values).all()
    assert (joined.values <= table["kl_knn"][500]).all()
    assert len(reference.floor("mmd2", 250).values) == 300
    assert reference.floor("c2st", 100) is not None
    assert reference.floor("c2st", 250) is None  # it meets other reference rows there
    assert reference.floor("w2", 99) is reference.floor("w2", 501) is reference.floor("w1", 100) is None


def test_simulated_floors_have_the_laws_of_theory(make_context, monkeypatch: pytest.MonkeyPatch) -> None:
    """mean_error^2 of exact draws is chi^2_D / (D n)."""
    monkeypatch.setattr(floors, "SIZES", (50, 100))
    monkeypatch.setattr(floors, "CURVE_SIZES", (50,))
    monkeypatch.setattr(floors, "COSTLY_SETS", 20)
    generator = Generator().manual_seed(8)
    draws = torch.randn(3000, 2, generator=generator, dtype=torch.float64)
    context = make_context(2, draws)
    context.reference.certificate.update(mean=[0.0, 0.0], sd=[1.0, 1.0])
    sets = {n: torch.randn(200, n, 2, generator=generator, dtype=torch.float64) for n in (50, 100)}
    found = simulate_floors(context.task, context.reference, lambda n: iter(sets[n]))
    judged = {m for m, row in registry.metrics().items() if row.need in ("reference", "target", "moments")}
    assert set(found) == {m for m in judged if not m.startswith("w2sq_window")}
    assert set(found["sliced_w2"]) == {50}
    assert all(len(table[50]) == min(200, floor_sets(m, 50)) for m, table in found.items())
    assert stats.kstest(200 * np.square(found["mean_error"][100]), stats.chi2(2).cdf).pvalue > 1e-3


@pytest.fixture(scope="module")
def banana() -> Context:
    task = load_task("banana")
    return Context(task, task.reference(), task.target([0], "cpu", torch.float64))


POOLED = ("sliced_w2", "mmd2", "mmd2_linear", "mmd2_imq", "energy_distance")


@pytest.fixture(scope="module")
def exact_values(banana: Context) -> dict[str, np.ndarray]:
    """Metrics of 100 sets of 100 fresh exact draws."""
    generator = Generator().manual_seed(77)
    samples = torch.stack([banana.task.exact(100, generator) for _ in range(100)])
    return {name: v.numpy() for name, v in compute(POOLED, samples, banana)[0].items()}


@pytest.mark.parametrize("metric", POOLED)
def test_equivalent_n_of_exact_draws(metric: str, banana: Context, exact_values) -> None:
    """The intervals of single sets, and of all pooled, hold n: 95 times in 100 (99.95% limits)."""
    values = exact_values[metric]
    intervals = [equivalent_sample_size(metric, v, 100, banana.reference)[1] for v in values]
    assert sum(low <= 100 <= high for low, high in intervals) >= stats.binom.ppf(0.0005, 100, 0.95)
    size, (low, high), _ = equivalent_sample_size(metric, values, 100, banana.reference)
    assert low < size < high
    assert low < 120
    assert high > 83
    assert high / low < 2.2
