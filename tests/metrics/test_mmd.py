"""Maximum mean discrepancy against the Gaussians' closed form and a naive loop."""

import math

import pytest
import torch
from torch import Generator, Tensor

from parvibench.metrics import pairwise
from parvibench.metrics.mmd import kernel_mean, mmd2

#: Kernel means are taken in single precision.
SINGLE = 3e-7


def naive(x: Tensor, y: Tensor, h: float) -> float:
    total = [math.exp(-float((a - b).square().sum()) / (2 * h * h)) for a in x for b in y]
    return sum(total) / len(total)


def test_against_the_naive_loop(make_context, generator: Generator) -> None:
    """Catches a bandwidth taken as a variance, and a statistic without its diagonal."""
    x = torch.randn(13, 3, generator=generator, dtype=torch.float64) + 100
    y = torch.randn(17, 3, generator=generator, dtype=torch.float64) + 100.5
    context = make_context(3, y)
    h = context.reference.bandwidth
    expected = naive(x, x, h) - 2 * naive(x, y, h) + naive(y, y, h)
    assert mmd2(x[None], context).item() == pytest.approx(expected, abs=SINGLE)


def test_gaussians_have_the_closed_form(make_context, generator: Generator) -> None:
    """N(0, I) against N(t, I): E k = (h^2 / (h^2 + 2))^(D/2) exp(-|difference of means|^2 / (2 (h^2 + 2)))."""
    n, dim = 4000, 2
    draws = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    shift = torch.tensor([1.0, -0.5], dtype=torch.float64)
    samples = shift + torch.randn(1, n, dim, generator=generator, dtype=torch.float64)
    context = make_context(dim, draws)
    h2 = context.reference.bandwidth**2
    peak = (h2 / (h2 + 2)) ** (dim / 2)
    expected = 2 * peak * (1 - math.exp(-float(shift.square().sum()) / (2 * (h2 + 2))))
    # The cross term's standard error is below 1 / sqrt(n); both diagonals add (1 - peak) / n.
    assert mmd2(samples, context).item() == pytest.approx(expected, abs=4 / math.sqrt(n) * expected)


def test_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch, generator: Generator) -> None:
    x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    whole = kernel_mean(x, x[:30], 2.0)
    monkeypatch.setattr(pairwise, "WIDE_BLOCK", 70)
    assert kernel_mean(x, x[:30], 2.0) == pytest.approx(whole, rel=3e-7)


def test_the_reference_against_itself_is_zero(make_context, generator: Generator) -> None:
    draws = torch.randn(100, 2, generator=generator, dtype=torch.float64)
    assert mmd2(draws[None], make_context(2, draws)).item() == pytest.approx(0, abs=SINGLE)


def test_a_recorded_self_similarity_is_used_only_for_the_whole_reference(
    make_context, generator: Generator
) -> None:
    draws = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    x = torch.randn(1, 10, 2, generator=generator, dtype=torch.float64)
    context = make_context(2, draws)
    plain = mmd2(x, context)
    h = context.reference.bandwidth
    context.reference.certificate["self_similarity"] = kernel_mean(draws, draws, h) + 0.25
    assert mmd2(x, context).item() == pytest.approx(plain.item() + 0.25)
    partial = make_context(2, draws, excluded_rows=torch.arange(5)[None])
    partial.reference.certificate.update(context.reference.certificate)
    rest = draws[5:]
    expected = kernel_mean(x[0], x[0], h) - 2 * kernel_mean(x[0], rest, h) + kernel_mean(rest, rest, h)
    assert mmd2(x, partial).item() == pytest.approx(expected, abs=SINGLE)
