"""Linear regression against the algebra it is made of."""

import torch
from scipy import stats
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


def test_noise_by_formula_is_normal() -> None:
    """The quasi-random noise looks Gaussian: its Kolmogorov-Smirnov distance is below that of independent draws."""
    residual = (TASK.model.y - TASK.model.X @ torch.tensor([0.5, 1.0, -1.0], dtype=torch.float64)) / 0.5
    assert stats.kstest(residual.numpy(), "norm").pvalue > 0.5
