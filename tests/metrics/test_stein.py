"""Kernel Stein discrepancy against a Stein kernel written with autograd, and its behaviour."""

import pytest
import torch
from torch import Generator, Tensor

from parvibench.core.metric import Context, NotApplicable
from parvibench.metrics import pairwise
from parvibench.metrics.stein import ksd


def stein_kernel(x: Tensor, y: Tensor, c: float) -> Tensor:
    """k_p(x, y) for the standard normal, all derivatives by autograd."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    k = (1 + (x - y).square().sum() / c**2) ** -0.5
    kx, ky = torch.autograd.grad(k, (x, y), create_graph=True)
    trace = sum(torch.autograd.grad(kx[i], y, retain_graph=True)[0][i] for i in range(len(x)))
    return (k * (x @ y) - x @ ky - y @ kx + trace).detach()


def test_against_autograd(make_context, generator: Generator) -> None:
    """Catches every sign: each of the four terms is nonzero here."""
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64) + 0.4
    draws = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    context = make_context(3, draws)
    c = context.reference.bandwidth
    expected = torch.stack([stein_kernel(a, b, c) for a in x for b in x]).mean().sqrt()
    assert ksd(x[None], context).item() == pytest.approx(expected.item(), rel=1e-10)


def test_exact_draws_scale_as_one_over_root_n(make_context, generator: Generator) -> None:
    """E ksd^2 = E k_p(x, x) / n = (E|s|^2 + D / c^2) / n since E k_p(x, y) = 0: here D (1 + 1 / c^2) / n."""
    dim, n = 2, 200
    context = make_context(dim)  # no reference: c^2 = D
    samples = torch.randn(400, n, dim, generator=generator, dtype=torch.float64)
    squares = ksd(samples, context).square()
    expected = dim * (1 + 1 / dim) / n
    assert abs(squares.mean().item() - expected) < 4 * squares.std().item() / 400**0.5


def test_grows_with_a_shift(make_context, generator: Generator) -> None:
    x = torch.randn(500, 2, generator=generator, dtype=torch.float64)
    shifted = torch.stack([x + t for t in (0.0, 0.25, 0.5, 1.0)])
    values = ksd(shifted, make_context())
    assert (values.diff() > 0).all()


def test_block_size_does_not_matter(
    make_context, monkeypatch: pytest.MonkeyPatch, generator: Generator
) -> None:
    x = torch.randn(1, 50, 4, generator=generator, dtype=torch.float64)
    whole = ksd(x, make_context(4))
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 120)
    assert ksd(x, make_context(4)).item() == pytest.approx(whole.item(), rel=1e-12)


def test_no_target(make_context) -> None:
    with pytest.raises(NotApplicable, match="density"):
        ksd(torch.zeros(1, 3, 2, dtype=torch.float64), Context(make_context().task))
