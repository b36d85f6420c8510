"""Chain diagnostics on autoregressive processes of known mixing and on degenerate chains; rates; peak memory."""

import math

import numpy as np
import psutil
import pytest
import torch
from scipy import stats
from torch import Generator

from parvibench.core import registry
from parvibench.core.metric import Context, Cost, NotApplicable
from parvibench.harness.run.clock import peak_memory as process_peak
from parvibench.metrics import chains
from parvibench.metrics.chains import (
    autocorrelation,
    ess_autocorrelation,
    ess_bulk,
    ess_per_evaluation,
    ess_per_second,
    ess_tail,
    rhat,
)
from parvibench.metrics.recorded import peak_memory, score_evaluations, seconds

NOTHING = torch.zeros(1, 2, 2, dtype=torch.float64)


def ar1(rho: float, t: int, n: int, generator: Generator, dim: int = 1) -> torch.Tensor:
    """Stationary AR(1) paths (1, T, N, D) with unit variance."""
    noise = torch.randn(t, n, dim, generator=generator, dtype=torch.float64)
    x = [noise[0]]
    for row in noise[1:]:
        x.append(rho * x[-1] + math.sqrt(1 - rho**2) * row)
    return torch.stack(x)[None]


def test_ess_of_an_autoregression_is_not_cut_at_its_length(make_context, generator: Generator) -> None:
    """T N (1 - rho) / (1 + rho) is above T N; the estimate's own sd is about 4%. The check asks for rho >= 0."""
    rho, t, n = -0.4, 1250, 20
    found = ess_bulk(NOTHING, make_context(path=ar1(rho, t, n, generator))).item()
    assert found == pytest.approx(t * n * (1 - rho) / (1 + rho), rel=0.15)


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.8])
def test_size_by_autocorrelations_of_an_autoregression(rho: float, make_context, generator: Generator) -> None:
    """T N (1 - rho) / (1 + rho), above T N for antithetic chains; the mean over coordinates, of which one never moved.

    Catches autocovariances of another normalisation, pairs that begin at lag one, and a cut at T N.
    """
    t, n = 4000, 5
    path = ar1(rho, t, n, generator, dim=2)
    found = ess_autocorrelation(NOTHING, make_context(path=path)).item()
    assert found == pytest.approx(t * n * (1 - rho) / (1 + rho), rel=0.15)
    stuck = torch.cat([path, torch.zeros(1, t, n, 2, dtype=torch.float64)], -1)
    assert ess_autocorrelation(NOTHING, make_context(path=stuck)).item() == pytest.approx(found / 2)


@pytest.mark.parametrize("rho", [0.6, 0.95])
def test_sizes_of_long_paths_are_of_all_states(rho: float, make_context, generator: Generator) -> None:
    """1000 times of 100 chains, of which 25,000 states are used. Chains of 0.6 mix faster than these are apart, and cutting
    their size at 25,000 would say 19,279 for 25,000; those of 0.95 mix more slowly."""
    found = ess_bulk(NOTHING, make_context(path=ar1(rho, 1000, 100, generator))).item()
    assert found == pytest.approx(100_000 * (1 - rho) / (1 + rho), rel=0.15)


def test_the_size_of_independent_draws_is_their_number(make_context, generator: Generator) -> None:
    found = ess_bulk(NOTHING, make_context(path=ar1(0.0, 1000, 100, generator))).item()
    assert found == pytest.approx(100_000, rel=0.05)


def test_the_worst_coordinate_counts(make_context, generator: Generator) -> None:
    good, bad = ar1(0.0, 400, 4, generator), ar1(0.9, 400, 4, generator)
    both = make_context(path=torch.cat([good, bad], -1))
    assert ess_bulk(NOTHING, both).item() == ess_bulk(NOTHING, make_context(path=bad)).item()


def test_rhat_sees_chains_apart_and_a_trend_in_one(make_context, generator: Generator) -> None:
    mixed = ar1(0.0, 500, 4, generator, 2)
    assert rhat(NOTHING, make_context(path=mixed)).item() < 1.01
    apart = mixed + torch.arange(4.0)[:, None]
    assert rhat(NOTHING, make_context(path=apart)).item() > 1.5
    trend = mixed[:, :, :1] + torch.linspace(0, 4, 500)[:, None, None]
    assert rhat(NOTHING, make_context(path=trend)).item() > 1.5


def test_chains_that_never_moved(make_context) -> None:
    """ArviZ alone would report the full T N."""
    context = make_context(path=torch.ones(1, 20, 3, 2))
    assert ess_bulk(NOTHING, context).item() == 0
    assert rhat(NOTHING, context).item() == float("inf")


@pytest.mark.parametrize("wrong", ["stuck", "apart", "slow", "switching"])
@pytest.mark.parametrize("coordinate", [1, 98])
def test_one_wrong_coordinate_of_a_hundred_is_found(wrong: str, coordinate: int, make_context, randn) -> None:
    """Coordinates that lie between any fifty evenly spaced ones. All others are independent draws: R-hat 1.00."""
    path = randn(1, 500, 4, 100)
    if wrong == "stuck":
        path[:, :, 2, coordinate] = 0.3
    elif wrong == "apart":
        path[..., coordinate] += torch.tensor([0.0, 0.0, 0.0, 1.5])
    elif wrong == "slow":
        path[..., coordinate] = ar1(0.97, 500, 4, Generator().manual_seed(5))[..., 0]
    else:  # one chain is wider: only the folded ranks see it
        path[:, :, 1, coordinate] *= 4
    context = make_context(100, path=path)
    assert rhat(NOTHING, context).item() > 1.02
    if wrong == "slow":
        assert ess_bulk(NOTHING, context).item() < 200
    if wrong in ("apart", "slow"):
        assert ess_bulk(NOTHING, make_context(100, path=randn(1, 500, 4, 100))).item() > 1000


def test_the_screen_is_for_speed_only(make_context, generator: Generator) -> None:
    """Sixty coordinates of different mixing: the same as ranking every one of them, in parts of at most fifty."""
    path = torch.cat([ar1(0.015 * i, 300, 4, generator) for i in range(60)], -1)
    whole = make_context(60, path=path)
    parts = [make_context(30, path=path[..., half]) for half in (slice(30), slice(30, 60))]
    for metric, worst in ((ess_bulk, min), (ess_tail, min), (rhat, max)):
        assert metric(NOTHING, whole).item() == worst(metric(NOTHING, part).item() for part in parts)


def test_a_coordinate_that_never_moved_is_found(make_context, generator: Generator) -> None:
    path = torch.randn(1, 10, 2, 250, generator=generator)
    path[..., 1] = 0.0
    context = make_context(250, path=path)
    assert ess_bulk(NOTHING, context).item() == 0
    assert rhat(NOTHING, context).item() == math.inf


@pytest.mark.parametrize(("shape", "reason"), [(None, "no chain path"), ((1, 3, 2, 2), "3 draws")])
def test_no_path_or_too_few_draws(shape, reason: str, make_context) -> None:
    path = None if shape is None else torch.zeros(shape)
    for metric in (ess_bulk, rhat):
        with pytest.raises(NotApplicable, match=reason):
            metric(NOTHING, make_context(path=path))


def test_a_short_single_chain_cannot_be_split(make_context) -> None:
    with pytest.raises(NotApplicable, match="too short"):
        rhat(NOTHING, make_context(path=torch.zeros(1, 7, 1, 2)))


def test_chains_apart_are_correlated_and_stuck_ones_fully(make_context, generator: Generator) -> None:
    """Catches means taken chain by chain, which would give zero."""
    apart = ar1(0.0, 500, 4, generator) + 10 * torch.arange(4.0)[:, None]
    assert autocorrelation(NOTHING, make_context(path=apart)).item() > 0.98
    stuck = torch.cat([torch.ones(1, 500, 4, 1, dtype=torch.float64), ar1(0.0, 500, 4, generator)], -1)
    found = autocorrelation(NOTHING, make_context(path=stuck)).item()
    assert found == pytest.approx(0.5, abs=0.5 * 4 / math.sqrt(2000))


def test_tail_sizes_of_independent_draws(make_context, generator: Generator) -> None:
    """T N for independent draws, to about 5%; zero when nothing moved."""
    independent = make_context(path=ar1(0.0, 1000, 8, generator))
    assert ess_tail(NOTHING, independent).item() == pytest.approx(8000, rel=0.2)
    assert ess_tail(NOTHING, make_context(path=torch.ones(1, 20, 3, 2))).item() == 0


def test_tails_see_what_the_bulk_does_not(make_context, randn) -> None:
    """Volatility that switches every 50 steps leaves no correlation, and few visits to the tails."""
    x = randn(1, 1000, 8, 1)
    calm = (torch.arange(1000) // 50 % 2 == 0)[:, None, None]
    context = make_context(path=torch.where(calm, 0.1 * x, x))
    assert ess_tail(NOTHING, context).item() < 0.5 * ess_bulk(NOTHING, context).item()


def test_rates_divide_the_bulk_size(make_context, generator: Generator) -> None:
    context = make_context(path=ar1(0.5, 200, 4, generator), cost=Cost(200, 1600.0, 0.25))
    bulk = ess_bulk(NOTHING, context).item()
    assert ess_per_evaluation(NOTHING, context).item() == pytest.approx(bulk / 1600)
    assert ess_per_second(NOTHING, context).item() == pytest.approx(bulk / 0.25)


@pytest.mark.parametrize("metric", [ess_per_evaluation, ess_per_second])
def test_rates_need_a_path_and_a_cost(metric, make_context, generator: Generator) -> None:
    path = ar1(0.0, 20, 2, generator)
    for context, reason in (
        (make_context(path=path), "no cost"),
        (make_context(cost=Cost(1, 1.0, 1.0)), "no chain path"),
        (make_context(path=path, cost=Cost(1, 0.0, 0.0)), "nothing was spent"),
    ):
        with pytest.raises(NotApplicable, match=reason):
            metric(NOTHING, context)


def test_costs_are_those_recorded(make_context) -> None:
    context = make_context(cost=Cost(1, 30.0, 2.0, 512.0))
    assert [m(NOTHING, context).tolist() for m in (score_evaluations, seconds, peak_memory)] == [[30.0], [2.0], [512.0]]
    for context in (make_context(), make_context(cost=Cost(1, 1.0, 1.0))):
        with pytest.raises(NotApplicable, match="recorded"):
            peak_memory(NOTHING, context)


def test_the_process_peak_is_in_mebibytes() -> None:
    """At least what psutil says is resident now; catches KiB taken for bytes."""
    resident = psutil.Process().memory_info().rss / 2**20
    assert 0.99 * resident < process_peak(torch.device("cpu")) < psutil.virtual_memory().total / 2**20


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpu_peak_is_in_mebibytes() -> None:
    torch.cuda.reset_peak_memory_stats()
    before = process_peak(torch.device("cuda"))
    torch.zeros(2**20, 64, dtype=torch.uint8, device="cuda")
    assert process_peak(torch.device("cuda")) - before == pytest.approx(64, abs=2)


def short_chains(rng, n, states, *, spread=0.0, memory=0.0):
    """Autoregressive chains of few states from stationarity, each around a centre of its own (sd ``spread``)."""
    x = np.empty((1, states, n, 2))
    x[:, 0] = rng.normal(size=(1, n, 2))
    for t in range(1, states):
        x[:, t] = memory * x[:, t - 1] + math.sqrt(1 - memory**2) * rng.normal(size=(1, n, 2))
    return torch.as_tensor(x + spread * rng.normal(size=(1, 1, n, 2)))


def test_many_short_chains_have_a_nested_rhat(make_context) -> None:
    """100 mixed chains of 20 states stay below 1.05 where halves of 10 do not; chains that stay apart are far above."""
    rng = np.random.default_rng(0)
    found = {}
    for name, options in {"mixed": {}, "apart": {"spread": 1.0}, "slow": {"memory": 0.99}}.items():
        values = [
            float(
                chains.rhat.compute(torch.zeros(1, 5, 2), make_context(2, path=short_chains(rng, 100, 20, **options)))
            )
            for _ in range(20)
        ]
        found[name] = np.sort(values)
    assert found["mixed"][-1] < 1.05
    assert found["apart"][0] > 1.1
    assert found["slow"][0] > 1.1


def test_nested_rhat_is_the_papers_formula(make_context) -> None:
    """Normal scores of the second half in five groups by start, worked out from B and W (Margossian et al. 2024, Eq. 3)."""
    rng = np.random.default_rng(1)
    path = np.sort(rng.normal(size=20))[:, None] + rng.normal(size=(20, 12))  # (N, T)
    path[:, 0] = np.arange(20)
    late = path[:, 6:]
    found = []
    for values in (late, np.abs(late - np.median(late))):
        order = values.ravel().argsort().argsort() + 1
        z = stats.norm.ppf((order - 3 / 8) / (order.size + 1 / 4)).reshape(5, 4, 6)
        means = z.mean((1, 2))
        between = ((means - means.mean()) ** 2).sum() / 4
        chain_means = z.mean(2)
        within = ((chain_means - means[:, None]) ** 2).sum(1) / 3
        within += ((z - chain_means[..., None]) ** 2).sum((1, 2)) / (4 * 5)
        found.append(math.sqrt(1 + between / within.mean()))
    context = make_context(1, path=torch.as_tensor(path.T[None, ..., None]))
    assert float(chains.rhat.compute(torch.zeros(1, 5, 1, dtype=torch.float64), context)) == pytest.approx(
        max(found), rel=1e-12
    )


def test_networks_are_judged_by_what_they_say() -> None:
    """Chains whose hidden units are exchanged predict alike: their R-hat is that of the predictions, not of the weights."""
    task = registry.load_task("bnn-diabetes-sklearn")
    held_out = task.predictive((0,), "cpu", torch.float64)
    rng = np.random.default_rng(2)
    p, h = 11, 50
    centre = rng.normal(size=task.dim) / 5
    path = np.tile(centre, (1, 200, 8, 1)) + 0.02 * rng.normal(size=(1, 200, 8, task.dim))
    for chain in range(8):
        order = rng.permutation(h)
        x = path[0, :, chain]
        first = x[:, : (p - 1) * h].reshape(200, p - 1, h)[:, :, order].reshape(200, -1)
        rest = [x[:, (p - 1) * h : p * h][:, order], x[:, p * h : p * h + h][:, order], x[:, p * h + h :]]
        path[0, :, chain] = np.concatenate([first, *rest], 1)
    context = Context(task, predictive=held_out, path=torch.as_tensor(path))
    plain = Context(registry.load_task("banana"), path=torch.as_tensor(path))
    samples = torch.zeros(1, 5, task.dim, dtype=torch.float64)
    assert chains.rhat.compute(samples, plain) > 1.5
    assert chains.rhat.compute(samples, context) < 1.02
    assert chains.ess_bulk.compute(samples, context) > 1000
    means, sds = held_out.predict(torch.as_tensor(path[0, :, 0])[None])
    rows = np.arange(20) * held_out.y.shape[1] // 20
    said = chains._said(torch.as_tensor(path), context)[0, :, 0].numpy()
    np.testing.assert_allclose(said[:, :20], means[0][:, rows])
    log_likelihood = stats.norm.logpdf(held_out.y[0, rows], means[0][:, rows], sds[0][:, None]).sum(1)
    np.testing.assert_allclose(said[:, 20], log_likelihood + 10 * math.log(2 * math.pi))
