"""Linear regression against the algebra it is made of."""

import torch
from scipy import stats
from task_laws import draws, moment_z_scores, stein_z_scores
from torch.distributions import MultivariateNormal

from parvibench.core.registry import load_task

TASK = load_task("linear-regression")


def test_the_density_is_the_gaussian_of_the_facts() -> None:
    """Log density less that of N(mean, P^-1) is one constant."""
    target = TASK.target((0,), "cpu", torch.float64)
    x = torch.randn(1, 50, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gaussian = MultivariateNormal(TASK.facts.mean, TASK.model.covariance)
    difference = target.log_density(x) - gaussian.log_prob(x)
    torch.testing.assert_close(difference, difference.mean().expand_as(difference), rtol=0, atol=1e-9)


def test_exact_draws_follow_the_facts() -> None:
    """Moments and Stein's identities: largest of 26 |z| under 5, false alarm 2e-5; the seed is fixed."""
    x = draws("linear-regression", 40_000)
    assert moment_z_scores("linear-regression", x).abs().max() < 5
    assert stein_z_scores("linear-regression", x).abs().max() < 5


def test_batches_of_an_epoch_average_to_the_full_score() -> None:
    """Catches a wrong factor n/B, and a prior counted once per batch."""
    target = TASK.target((0, 1), "cpu", torch.float64)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    epoch = torch.stack([torch.randperm(60, generator=generator) for _ in range(2)])
    scores = [target.score(x, batch) for batch in epoch.split(12, dim=1)]
    torch.testing.assert_close(torch.stack(scores).mean(0), target.score(x), rtol=1e-10, atol=1e-9)


def test_noise_by_formula_is_normal() -> None:
    """The quasi-random noise looks Gaussian: its Kolmogorov-Smirnov distance is below that of independent draws."""
    residual = (TASK.model.y - TASK.model.X @ torch.tensor([0.5, 1.0, -1.0], dtype=torch.float64)) / 0.5
    assert stats.kstest(residual.numpy(), "norm").pvalue > 0.5
