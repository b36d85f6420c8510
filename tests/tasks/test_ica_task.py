"""Independent component analysis: model, data, scaling, and what its modes say of the known matrix."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from parvibench.core.metric import Context
from parvibench.core.registry import load_metric, load_task


@pytest.fixture(scope="module")
def target():
    return load_task("ica-synthetic").target((0, 1), "cpu", torch.float64)


def points(seed: int = 2) -> Tensor:
    return torch.randn(2, 3, 25, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_density_is_sources_times_prior(target) -> None:
    """Catches W applied transposed, a lost Jacobian, and the code's tempered likelihood."""
    x = points()
    w = x.view(2, 3, 5, 5)
    sources = torch.einsum("rnij,tj->rnti", w, target._x)
    likelihood = -(math.pi * sources.cosh()).log().sum((-2, -1)) + 1000 * w.det().abs().log()
    prior = torch.distributions.Normal(0.0, 10.0).log_prob(x).sum(-1)
    torch.testing.assert_close(target.log_density(x), likelihood + prior)
    assert target.prior_precision == 0.01


def test_known_matrix_recovers_the_sources(target) -> None:
    """W0 x are independent Laplace variables. Catches mixing by W0 in place of its inverse."""
    sources = target._x @ load_task("ica-synthetic").facts.unmixing.T
    for column in sources.T:
        assert stats.kstest(column.numpy(), "laplace").pvalue > 1e-6
    correlations = torch.corrcoef(sources.T) - torch.eye(5)
    assert correlations.abs().max() < 5 / 1000**0.5


def test_modes_lie_at_the_known_matrix() -> None:
    """Ascent from W0 and 20 small matrices. Catches an unmixing fact that is transposed or inverted."""
    task = load_task("ica-synthetic")
    target = task.target((0,), "cpu", torch.float64)
    start = task.problem(1, seed=1, dtype=torch.float64, particles=20).init() / 30
    x = torch.cat([task.facts.unmixing.reshape(1, 1, 25), start], 1)
    for _ in range(400):
        # The relative gradient, times W^T W, which is free of the scale of the channels.
        w = x.view(1, -1, 5, 5)
        x = x + 2e-4 * (target.score(x).view_as(w) @ w.mT @ w).flatten(-2)
    log_p = target.log_density(x)[0]
    torch.testing.assert_close(log_p, log_p[0].expand(21), rtol=0, atol=1e-6)
    assert load_metric("amari").compute(x.transpose(0, 1), Context(task)).max() < 0.01


def test_singular_matrices_raise_nothing() -> None:
    """A sampler that hits one is recorded as diverged, not crashed; large sources stay finite."""
    target = load_task("ica-synthetic").target((0,), "cpu", torch.float32)
    zero = torch.zeros(1, 1, 25)
    assert target.log_density(zero) == -math.inf
    assert not torch.isfinite(target.score(zero)).any()
    far = 1e4 * torch.eye(5).reshape(1, 1, 25)
    assert torch.isfinite(target.log_density(far)).all()
    assert torch.isfinite(target.score(far)).all()


def test_canonical_points_forget_order_and_signs() -> None:
    """Catches an order applied in place of its inverse, and signs of the wrong rows."""
    task = load_task("ica-synthetic")
    target = task.target((0,), "cpu", torch.float64)
    g = torch.Generator().manual_seed(5)
    near = task.facts.unmixing + 0.05 * torch.randn(1, 40, 5, 5, generator=g, dtype=torch.float64)
    orders = torch.stack([torch.randperm(5, generator=g) for _ in range(40)])
    signs = torch.randint(0, 2, (40, 5, 1), generator=g) * 2.0 - 1
    shuffled = signs * near[0].gather(1, orders.unsqueeze(-1).expand(40, 5, 5))
    found = task.canonical(shuffled.reshape(1, 40, 25))
    torch.testing.assert_close(found, near.reshape(1, 40, 25))
    torch.testing.assert_close(target.log_density(found), target.log_density(shuffled.reshape(1, 40, 25)))
    torch.testing.assert_close(task.canonical(points()), task.canonical(task.canonical(points())))
