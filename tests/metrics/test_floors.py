"""Floors and verdicts: on synthetic floors, then on the shipped banana."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from few import every
from scipy import stats
from torch import Generator

from parvibench.core.metric import Context
from parvibench.core.reference import Floor, Reference
from parvibench.core.registry import load_task
from parvibench.metrics import own_floors
from parvibench.metrics.compute import compute
from parvibench.metrics.equivalent import equivalent_sample_size
from parvibench.metrics.floors import ALPHA, SIZES, exact_p_value, floor_tests, judged_size, p_value, verdict_metrics

FLOOR = Floor(100, np.arange(1.0, 301.0))


def test_p_values_rank_one_value_among_the_floor() -> None:
    assert p_value("w2", 1000.0, FLOOR) == pytest.approx(1 / 301)
    assert p_value("w2", 297.0, FLOOR) == pytest.approx((1 + 4 + 2) / 301)
    assert p_value("w2", 0.0, FLOOR) == 1.0
    assert p_value("w2", math.nan, FLOOR) == p_value("w2", math.inf, FLOOR) == pytest.approx(1 / 301)


def test_exact_p_values_count_the_orders_of_replicates_and_floor() -> None:
    """All five beyond all 300: one order of C(305, 5); ties with the floor and a failure do not make it smaller."""
    one = 1 / math.comb(305, 5)
    assert exact_p_value("w2", [1000.0, 2000, 301, 302, math.nan], FLOOR) == pytest.approx(one)
    top = float(FLOOR.values[-1])
    assert exact_p_value("w2", [1000.0, 2000, 301, 302, top], FLOOR) == pytest.approx(2 * one)
    assert exact_p_value("w2", 1000.0, FLOOR) == p_value("w2", 1000.0, FLOOR)
    found = [3.5, 120.5, 200.5, 250.5, 280.5]
    assert exact_p_value("w2", found, FLOOR) == pytest.approx(p_value("w2", found, FLOOR), rel=0.05)


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


NAMES = ("sliced_w2", "mmd2", "kl_knn", "ks_marginal")


def flat_reference(metrics: Sequence[str] = NAMES, sets: int = 400, sizes: Sequence[int] = (100,)) -> Reference:
    """Floors 1, 2, ... of every metric."""
    table = {metric: {n: np.arange(1.0, sets + 1) for n in sizes} for metric in metrics}
    return Reference(torch.zeros(2, 1), True, {}, table)


def judge(worst: int, metrics: Sequence[str] = NAMES, task: Sequence[str] = NAMES, **reference: Any) -> str:
    """The verdict on one value per metric, of which the first is worse than all but ``worst`` of the floor's."""
    known = flat_reference(**reference)
    values = {metric: 1.5 for metric in metrics} | {metrics[0]: 400.5 - worst}
    return floor_tests(values, 100, known, task).verdict


def test_the_verdict_is_holms() -> None:
    """Four metrics: (1 + k + sqrt(k)) / 401 is within 5% / 4 for k = 2, not for 3."""
    assert [judge(worst) for worst in (0, 2, 3)] == ["distinguishable"] * 2 + ["indistinguishable"]
    found = floor_tests(dict.fromkeys(NAMES, 400.5), 100, flat_reference(), NAMES)
    assert list(found.adjusted.values()) == pytest.approx([4 / 401] * 4)


def test_a_metric_of_more_weight_keeps_its_power() -> None:
    """Beside ten others mode_weight_tv has eight of eighteen parts, not one of eleven, of the level: (1 + k + sqrt(k)) / 401 is within 2.2% for k = 5;
    within 5% / 11 for k = 0 only."""
    names = ("mode_weight_tv", *NAMES, "w2", "ksd", "mean_error", "sd_error", "correlation_error", "modes_found")
    reference = flat_reference(names)
    verdicts = []
    for worst in (5, 6):
        values = dict.fromkeys(names, 1.5) | {"mode_weight_tv": 400.5 - worst, "modes_found": 400.0}
        verdicts.append(floor_tests(values, 100, reference, names).verdict)
    assert verdicts == ["distinguishable", "indistinguishable"]


def test_too_few_metrics_never_make_samples_indistinguishable() -> None:
    """They may still be found distinguishable. A task that does not name a metric does not need it."""
    for metrics in (("sliced_w2",), ("sliced_w2", "mmd2"), ("mmd2", "kl_knn"), ("sliced_w2", "ks_marginal")):
        assert judge(200, metrics) == "not applicable"
        assert judge(0, metrics) == "distinguishable"
    for metrics in (("sliced_w2", "mmd2", "kl_knn"), ("sliced_w2", "mmd2", "ks_marginal")):
        assert judge(200, metrics) == "indistinguishable"
    assert judge(200, ("mmd2", "kl_knn"), task=("mmd2", "kl_knn")) == "indistinguishable"
    found = floor_tests({"sliced_w2": 1.5, "mmd2": 1.5}, 100, flat_reference(), NAMES)
    assert found.reason == "not judged by kl_knn or ks_marginal"


def test_verdicts_are_at_stored_sizes_only() -> None:
    known = flat_reference(sizes=(50, 100, 500))
    assert [judged_size(n, known) for n in (49, 50, 99, 100, 499, 501, 5000)] == [None, 50, 50, 100, 100, 500, 500]
    found = floor_tests(dict.fromkeys(NAMES, 400.5), 250, known, NAMES)
    assert (found.verdict, found.floors) == ("not applicable", {})
    assert found.reason == "floors are known at n = 50, 100, 500, not at 250"
    curve_only = Reference(torch.zeros(2, 1), True, {}, {"sliced_w2": {n: np.ones(300) for n in SIZES}})
    assert judged_size(1000, curve_only) is None


@pytest.mark.parametrize("replicates", range(2, 7))
def test_few_replicates_are_said_to_be_too_few(replicates: int) -> None:
    """The rank test's smallest p-value is about that of z = sqrt(3 R): below 5% / 9 from three replicates on."""
    names = (*NAMES, "w2", "ksd", "mean_error", "sd_error", "correlation_error")
    reference = flat_reference(names)
    smallest = p_value("w2", [math.inf] * replicates, Floor(100, reference.floors["w2"][100]))
    assert smallest == pytest.approx(stats.norm.sf(math.sqrt(3 * replicates)), rel=0.3)
    values = {name: [200.5] * replicates for name in names}
    verdict = floor_tests(values, 100, reference, names).verdict
    assert verdict == ("too few replicates" if replicates == 2 else "indistinguishable")
    worst = {name: [math.inf] * replicates for name in names}
    assert floor_tests(worst, 100, reference, names).verdict != "indistinguishable"


@pytest.mark.parametrize("name", ["banana", "multimodal", "student-t"])
@pytest.mark.parametrize("replicates", every((1, 3, 5), [1, 2, 3, 5, 10]))
def test_starting_points_are_never_indistinguishable(name: str, replicates: int) -> None:
    task = load_task(name)
    context = Context(task, task.reference(), task.target([0], "cpu", torch.float64))
    problem = task.problem(replicates, seed=replicates, dtype=torch.float64)
    values, _ = compute(verdict_metrics(task), problem.init(100), context)
    found = floor_tests({m: v.numpy() for m, v in values.items()}, 100, context.reference, task.metrics)
    assert found.verdict in ("distinguishable", "too few replicates")
    assert replicates == 2 or found.verdict == "distinguishable"


def test_ties_of_shares_survive_storage() -> None:
    """A third is no float32: a value equal to all of the floor's is no evidence."""
    stored = np.float32([1 / 3] * 300).astype(float)
    assert p_value("c2st", 1 / 3, Floor(100, stored)) == 1.0
    assert p_value("mode_weight_tv", 1e300, Floor(100, stored)) == pytest.approx(1 / 301)


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
    """mean_error^2 of exact draws is chi^2_D / (D n); every metric that has floors and applies has one."""
    monkeypatch.setattr(own_floors, "FEWEST", 200)
    monkeypatch.setattr(own_floors, "SETS_A_METRIC", 1)
    generator = Generator().manual_seed(8)
    context = make_context(2, torch.randn(3000, 2, generator=generator, dtype=torch.float64))
    context.reference.certificate.update(mean=[0.0, 0.0], sd=[1.0, 1.0])
    pool = torch.randn(20_000, 2, generator=generator, dtype=torch.float64)
    drawn = own_floors.drawn_from(pool, "theory")
    found = own_floors.pooled_floors(context.task, [(context.reference, drawn)], [(100, ["mean_error", "mmd2"])])
    assert {m: set(t) for m, t in found.items()} == {"mean_error": {100}, "mmd2": {100}}
    assert len(found["mmd2"][100]) == 200
    assert stats.kstest(200 * np.square(found["mean_error"][100]), stats.chi2(2).cdf).pvalue > 1e-3


@pytest.fixture(scope="module")
def banana() -> Context:
    task = load_task("banana")
    return Context(task, task.reference(), task.target([0], "cpu", torch.float64))


POOLED = ("sliced_w2", "mmd2", "energy_distance")


@pytest.fixture(scope="module")
def exact_values(banana: Context) -> dict[str, np.ndarray]:
    """Metrics of 100 sets of 100 fresh exact draws."""
    generator = Generator().manual_seed(77)
    samples = torch.stack([banana.task.exact(100, generator) for _ in range(100)])
    names = {*POOLED, *verdict_metrics(banana.task)}
    return {name: v.numpy() for name, v in compute(sorted(names), samples, banana)[0].items()}


@pytest.mark.ci
def test_exact_draws_are_called_distinguishable_at_most_at_alpha(banana: Context, exact_values) -> None:
    """Every metric and the Holm verdict; binomial 99.99% limit, so 0.2% false alarms over all."""
    limit = stats.binom.ppf(0.9999, 100, ALPHA)
    p = {}
    for name, values in exact_values.items():
        p[name] = [p_value(name, v, banana.reference.floor(name, 100)) for v in values]
        assert sum(v <= ALPHA for v in p[name]) <= limit, name
    names = verdict_metrics(banana.task)
    called = [
        floor_tests({m: exact_values[m][i] for m in names}, 100, banana.reference, banana.task.metrics).verdict
        for i in range(100)
    ]
    assert called.count("distinguishable") <= limit
    assert set(called) <= {"distinguishable", "indistinguishable"}


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
