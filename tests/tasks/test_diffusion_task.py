"""The observed diffusion: density, forward-backward recursion, exact draws, and an independent sampler.

Bounds: 6 standard errors (2e-9 a number, 4e-6 for the file's 2000 at other seeds), p > 1e-6 for its 24
Kolmogorov-Smirnov tests. Seeds are fixed.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from task_laws import draws, hmc, moment_z_scores, stein_z_scores, z_scores
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from parvibench.core.registry import load_task

NAMES = [f"diffusion-{d}{drift}" for drift in ("", "-ksivi-code") for d in (50, 100, 200)]
BOUND = 6


@pytest.mark.parametrize("name", NAMES)
def test_density_is_transitions_times_likelihood(name: str) -> None:
    """Catches observations one step late, dt for sqrt(dt), and the two drifts exchanged."""
    task = load_task(name)
    x = torch.randn(2, 3, task.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    dt = 1 / task.dim
    expected = torch.zeros(2, 3, dtype=torch.float64)
    before = torch.zeros(2, 3, dtype=torch.float64)
    for k in range(1, task.dim + 1):
        drift = 10 * before * (1 - before**2)
        if name.endswith("code"):
            drift = drift / (1 + before**2)
        expected += Normal(before + drift * dt, math.sqrt(dt)).log_prob(x[..., k - 1])
        if k % 5 == 0:
            expected += Normal(x[..., k - 1], 0.1).log_prob(torch.tensor(task.y[k // 5 - 1]))
        before = x[..., k - 1]
    torch.testing.assert_close(task.target((0, 1), "cpu", torch.float64).log_density(x), expected)


def linear_gaussian(rate: float, dt: float, y: list[float]) -> tuple[Tensor, Tensor, float]:
    """Mean, covariance and log evidence of x_k = rate x_{k-1} + N(0, dt), by one Gaussian of all variables."""
    steps = 5 * len(y)
    innovations = torch.eye(steps, dtype=torch.float64)
    innovations[range(1, steps), range(steps - 1)] = -rate
    prior = torch.linalg.inv(innovations.T @ innovations / dt)
    prior = (prior + prior.T) / 2
    seen = torch.arange(4, steps, 5)
    data = torch.tensor(y, dtype=torch.float64)
    total = prior[seen][:, seen] + 0.01 * torch.eye(len(y), dtype=torch.float64)
    gain = prior[:, seen] @ torch.linalg.inv(total)
    evidence = MultivariateNormal(torch.zeros_like(data), total).log_prob(data)
    return gain @ data, prior - gain @ prior[seen], evidence.item()


def test_recursion_equals_the_gaussian_closed_form() -> None:
    """With a linear map the posterior is Gaussian: means, deviations, marginals, evidence, and the draws' covariances.

    Catches an observation counted twice or left out at its step (evidence off by 1.0 and 0.7 nats), and draws
    whose steps are independent given y (covariances off by 96 standard errors).
    """
    y = [-0.3, 0.2, -0.4, 0.1]
    mean, covariance, evidence = linear_gaussian(0.8, 0.02, y)
    smoother = type(load_task("diffusion-50").smoother)(lambda x: 0.8 * x, 0.02, y)
    found_mean, found_sd = smoother.moments()
    sd = covariance.diagonal().sqrt()
    np.testing.assert_allclose(found_mean, mean, atol=1e-12)
    np.testing.assert_allclose(found_sd, sd, atol=1e-12)
    densities = stats.norm.pdf(smoother.grid, np.asarray(mean)[:, None], np.asarray(sd)[:, None])
    np.testing.assert_allclose(smoother.marginals, densities, atol=1e-9)
    assert smoother.log_evidence == pytest.approx(evidence, abs=1e-12)

    x = smoother.sample(20_000, torch.Generator().manual_seed(4)) - mean
    products = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(1)
    assert z_scores(x, 0.0).abs().max() < BOUND
    assert z_scores(products, covariance.flatten()).abs().max() < BOUND
    for k in range(len(mean)):
        assert stats.kstest((x[:, k] / sd[k]).numpy(), "norm").pvalue > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_facts_do_not_depend_on_the_grid(name: str) -> None:
    """A grid of other spacing and ends gives the same numbers: neither cuts mass off nor is too coarse."""
    task = load_task(name)
    other = type(task.smoother)(task.euler, task.euler.dt, task.y, -3.2, 2.2, 0.012)
    mean, sd = other.moments()
    np.testing.assert_allclose(mean, task.facts.mean, atol=1e-9)
    np.testing.assert_allclose(sd, task.facts.sd, atol=1e-9)
    assert other.log_evidence == pytest.approx(task.facts.constants["log evidence"], abs=1e-9)


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_draws_have_the_densitys_law(name: str) -> None:
    """Moments, Stein's identity with the density's own score, and marginals.

    Catches, at d = 100, draws that ignore what is observed later (z = 119), that count observations twice (63),
    of the other drift (71), and a lattice too coarse (2.5 sqrt(dt): 13).
    """
    task, x = load_task(name), draws(name)
    assert moment_z_scores(name, x).abs().max() < BOUND
    assert stein_z_scores(name, x).abs().max() < BOUND
    for k in (0, task.dim // 2, task.dim - 1):
        p = task.smoother.marginals[k] / task.smoother.marginals[k].sum()
        cdf = p.cumsum() - p / 2
        found = stats.kstest(x[:, k].numpy(), lambda t, cdf=cdf: np.interp(t, task.smoother.grid, cdf))
        assert found.pvalue > 1e-6


@pytest.mark.parametrize(
    ("name", "trajectories", "step", "leaps"),
    [
        ("diffusion-50", 100, 0.06, 10),
        ("diffusion-100", 100, 0.045, 14),
        ("diffusion-100-ksivi-code", 100, 0.045, 14),
        pytest.param("diffusion-100", 3000, 0.045, 14, marks=pytest.mark.slow),
        pytest.param("diffusion-200", 3000, 0.03, 20, marks=pytest.mark.slow),
    ],
)
def test_hmc_from_the_data_agrees(name: str, trajectories: int, step: float, leaps: int) -> None:
    """From straight lines through the data. Catches facts of another posterior: the other drift's has z = 73."""
    task = load_task(name)
    times = np.arange(0, task.dim + 1)
    start = torch.from_numpy(np.interp(times[1:], times[::5], [0.0, *task.y])).expand(100, -1)
    x = hmc(task.target((0,), "cpu", torch.float64), start, trajectories, step, leaps)
    assert z_scores(x.mean(0), task.facts.mean).abs().max() < BOUND
    assert z_scores(((x - task.facts.mean) ** 2).mean(0), task.facts.sd**2).abs().max() < BOUND


@pytest.mark.ci
def test_the_papers_drift_has_spurious_modes_and_the_authors_none() -> None:
    """What a sampler of small steps meets: spikes at least 50 nats below the others' path."""
    task = load_task("diffusion-50")
    start = torch.randn(1, 100, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    stuck = {}
    for damped in (False, True):
        euler = type(task.euler)(50, damped)
        y = torch.tensor(task.y, dtype=torch.float64)
        target = type(task.target((0,), "cpu", torch.float64))(euler, y, "cpu", torch.float64)
        x = torch.cat([start, task.facts.mean.expand(1, 1, -1)], 1)
        for _ in range(6000):
            score = target.score(x)
            x = x + 2e-4 * score / (1 + 1e-3 * score.abs().amax(-1, keepdim=True))
        below = target.log_density(x)[0, -1] - target.log_density(x)[0, :-1]
        stuck[damped] = below[(x[0, :-1] - x[0, -1]).abs().amax(-1) > 0.3]
    assert 5 <= len(stuck[False]) <= 50
    assert stuck[False].min() > 50
    assert len(stuck[True]) == 0
