"""The Gaussian Stein kernel against autograd, and the U-statistic's mean."""

import math

import pytest
import torch
from torch import Generator, Tensor

from parvibench.core.metric import Context, NotApplicable
from parvibench.metrics.stein import ksd, ksd_rbf, ksd_u


def stein_kernel(x: Tensor, y: Tensor, c: float) -> Tensor:
    """k_p(x, y) of the Gaussian kernel for the standard normal, all derivatives by autograd."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    k = (-(x - y).square().sum() / (2 * c**2)).exp()
    kx, ky = torch.autograd.grad(k, (x, y), create_graph=True)
    trace = sum(torch.autograd.grad(kx[i], y, retain_graph=True)[0][i] for i in range(len(x)))
    return (k * (x @ y) - x @ ky - y @ kx + trace).detach()


def test_the_gaussian_kernel_against_autograd(make_context, generator: Generator) -> None:
    """Catches every sign, and a bandwidth taken for a variance."""
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64) + 0.4
    context = make_context(3, torch.randn(40, 3, generator=generator, dtype=torch.float64))
    c = context.reference.bandwidth
    expected = torch.stack([stein_kernel(a, b, c) for a in x for b in x]).mean().sqrt()
    assert ksd_rbf(x[None], context).item() == pytest.approx(expected.item(), rel=1e-10)


def test_u_and_v_differ_by_the_diagonal(make_context, generator: Generator) -> None:
    """n^2 V = n (n - 1) U + sum_i (|s_i|^2 + D / c^2), here with s = -x and c^2 = D."""
    n, dim = 15, 3
    x = torch.randn(2, n, dim, generator=generator, dtype=torch.float64) + 0.2
    context = make_context(dim)
    v, u = ksd(x, context).square(), ksd_u(x, context)
    diagonal = x.square().sum((1, 2)) + n
    expected = (n**2 * v - diagonal) / (n * (n - 1))
    torch.testing.assert_close(u * u.abs(), expected, rtol=1e-10, atol=0)


def test_the_u_statistic_is_zero_on_average(make_context, generator: Generator) -> None:
    """False alarms: 6e-5 at four standard errors; the V-statistic would be off by 40 of them."""
    u = ksd_u(torch.randn(400, 40, 2, generator=generator, dtype=torch.float64), make_context())
    squares = u * u.abs()
    assert abs(squares.mean().item()) < 4 * squares.std().item() / math.sqrt(400)
    assert (u < 0).any()


@pytest.mark.parametrize("metric", [ksd_u, ksd_rbf])
def test_no_target(metric, make_context) -> None:
    with pytest.raises(NotApplicable, match="density"):
        metric(torch.zeros(1, 3, 2, dtype=torch.float64), Context(make_context().task))
