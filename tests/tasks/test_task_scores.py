"""Hand-written scores of the analytic targets against autograd, and densities against known values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from parvibench.core.registry import load_task
from parvibench.core.target import Target

NAMES = ["gmm5-2d", "multimodal", "x-shaped", "banana", "correlated-2d", "blr-breast-cancer"]


def target_and_points(name: str) -> tuple[Target, Tensor]:
    """A float64 target and points of shape (2, 7, D) over its bulk and beyond."""
    task = load_task(name)
    generator = torch.Generator().manual_seed(11)
    x = 2 * torch.randn(2, 7, task.dim, generator=generator, dtype=torch.float64)
    return task.target((0, 1), "cpu", torch.float64), x


@pytest.mark.parametrize("name", NAMES)
def test_score_is_the_gradient(name: str) -> None:
    target, x = target_and_points(name)
    leaf = x.clone().requires_grad_()
    expected = torch.autograd.grad(target.log_density(leaf).sum(), leaf)[0]
    torch.testing.assert_close(target.score(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_both_at_once_equal_one_by_one(name: str) -> None:
    target, x = target_and_points(name)
    log_p, score = target.log_density_and_score(x)
    torch.testing.assert_close(log_p, target.log_density(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(score, target.score(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_score_is_differentiable(name: str) -> None:
    """Hessian-vector products through the score equal those through the density."""
    target, x = target_and_points(name)
    v = torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=x.dtype)
    leaf = x.clone().requires_grad_()
    through_score = torch.autograd.grad((target.score(leaf) * v).sum(), leaf)[0]
    gradient = torch.autograd.grad(target.log_density(leaf).sum(), leaf, create_graph=True)[0]
    through_density = torch.autograd.grad((gradient * v).sum(), leaf)[0]
    torch.testing.assert_close(through_score, through_density, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["gmm5-2d", "multimodal", "x-shaped"])
def test_mixture_density_equals_pytorchs(name: str) -> None:
    target, x = target_and_points(name)
    mixture = load_task(name).mixture
    oracle = MixtureSameFamily(
        Categorical(mixture.weights), MultivariateNormal(mixture.means, mixture.covariances)
    )
    torch.testing.assert_close(target.log_density(x), oracle.log_prob(x), rtol=1e-10, atol=1e-10)


def test_far_points_keep_finite_scores() -> None:
    """Catches densities summed before their logarithm: 40 sd away every component underflows."""
    target = load_task("gmm5-2d").target((0,), "cpu", torch.float32)
    score = target.score(torch.full((1, 1, 2), 40.0))
    assert torch.isfinite(score).all()
    # The widest component, at (-2.055217, -1.126106) with sd 0.5, is all that pulls there.
    torch.testing.assert_close(score[0, 0], -torch.tensor([42.055217, 41.126106]) / 0.25)
