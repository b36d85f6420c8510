"""Maximum mean discrepancy against scikit-learn's kernels; `tests/regression/laws` has the bias."""

import numpy as np
import pytest
import torch
from sklearn.metrics import pairwise as kernels

from parvibench.metrics import common as pairwise
from parvibench.metrics.mmd import kernel_mean, mmd2, mmd2_u, mmd2_u_fixed

#: Kernel means are taken in single precision.
SINGLE = 3e-7


def statistics(kernel, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """V- and U-statistic from whole kernel matrices."""
    xx, xy, yy = kernel(x, x), kernel(x, y), kernel(y, y)

    def off_diagonal(k: np.ndarray) -> float:
        return (k.sum() - np.trace(k)) / (len(k) * (len(k) - 1))

    v = xx.mean() - 2 * xy.mean() + yy.mean()
    return float(v), float(off_diagonal(xx) - 2 * xy.mean() + off_diagonal(yy))


def test_against_whole_kernel_matrices(make_context, randn) -> None:
    """Catches a bandwidth taken for a variance, a V-statistic without its diagonal, a U-statistic that keeps one or divides by n^2."""
    x = randn(13, 3) + 100
    y = randn(17, 3) + 100.5
    context = make_context(3, y)
    h2 = context.reference.bandwidth**2
    rbf = statistics(lambda a, b: kernels.rbf_kernel(a, b, gamma=0.5 / h2), x, y)
    fixed = statistics(lambda a, b: kernels.rbf_kernel(a, b, gamma=0.1), x, y)
    assert mmd2_u_fixed(x[None], context).item() == pytest.approx(fixed[1], abs=SINGLE)
    assert [m(x[None], context).item() for m in (mmd2, mmd2_u)] == pytest.approx(rbf, abs=SINGLE)


def test_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch, randn) -> None:
    x = randn(50, 4)
    whole = kernel_mean(x, x[:30], 2.0)
    monkeypatch.setattr(pairwise, "WIDE_BLOCK", 70)
    assert kernel_mean(x, x[:30], 2.0) == pytest.approx(whole, rel=SINGLE)


def test_a_recorded_self_similarity_is_used_only_for_the_whole_reference(make_context, randn) -> None:
    draws, x = randn(60, 2), randn(1, 10, 2)
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


def test_the_recorded_term_serves_the_u_statistic(make_context, randn) -> None:
    """The certificate states the V-statistic's mean, diagonal included."""
    draws, x = randn(60, 2), randn(1, 10, 2)
    context = make_context(2, draws)
    plain = mmd2_u(x, context)
    term = kernel_mean(draws, draws, context.reference.bandwidth)
    context.reference.certificate["self_similarity"] = term + 0.25
    assert mmd2_u(x, context).item() == pytest.approx(plain.item() + 0.25 * 60 / 59)
