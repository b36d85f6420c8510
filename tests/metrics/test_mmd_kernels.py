"""The other kernels and statistics of the discrepancy, against scikit-learn's kernels and theory."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import pairwise
from torch import Generator

from parvibench.metrics.mmd import kernel_mean, mmd2, mmd2_imq, mmd2_linear, mmd2_u


def statistics(kernel, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """V- and U-statistic from whole kernel matrices."""
    xx, xy, yy = kernel(x, x), kernel(x, y), kernel(y, y)

    def off_diagonal(k: np.ndarray) -> float:
        return (k.sum() - np.trace(k)) / (len(k) * (len(k) - 1))

    v = xx.mean() - 2 * xy.mean() + yy.mean()
    return float(v), float(off_diagonal(xx) - 2 * xy.mean() + off_diagonal(yy))


def test_against_whole_kernel_matrices(make_context, generator: Generator) -> None:
    """Catches a bandwidth taken for a variance, a U-statistic that keeps a diagonal or divides by n^2."""
    x = torch.randn(13, 3, generator=generator, dtype=torch.float64) + 100
    y = torch.randn(17, 3, generator=generator, dtype=torch.float64) + 100.5
    context = make_context(3, y)
    h2 = context.reference.bandwidth**2
    rbf = statistics(lambda a, b: pairwise.rbf_kernel(a, b, gamma=0.5 / h2), x, y)
    imq = statistics(lambda a, b: (1 + pairwise.euclidean_distances(a, b) ** 2 / h2) ** -0.5, x, y)
    linear = statistics(lambda a, b: pairwise.linear_kernel(a, b), x - 100, y - 100)
    found = [m(x[None], context).item() for m in (mmd2, mmd2_u, mmd2_imq, mmd2_linear)]
    # Kernel means are taken in single precision.
    assert found[:3] == pytest.approx([*rbf, imq[0]], abs=3e-7)
    assert found[3] == pytest.approx(linear[0], rel=1e-9)


def test_the_recorded_term_serves_the_u_statistic(make_context, generator: Generator) -> None:
    """The certificate holds the V-statistic's mean, diagonal included, and the Gaussian kernel's only."""
    draws = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    x = torch.randn(1, 10, 2, generator=generator, dtype=torch.float64)
    context = make_context(2, draws)
    plain, imq = mmd2_u(x, context), mmd2_imq(x, context)
    term = kernel_mean(draws, draws, context.reference.bandwidth)
    context.reference.certificate["self_similarity"] = term + 0.25
    assert mmd2_u(x, context).item() == pytest.approx(plain.item() + 0.25 * 60 / 59)
    assert mmd2_imq(x, context).item() == imq.item()


def test_the_u_statistic_is_unbiased(make_context, generator: Generator) -> None:
    """Zero on average for exact draws on both sides; the V-statistic would be off by 28 standard errors.

    False alarms: 6e-5 at four standard errors.
    """
    values = []
    for _ in range(300):
        context = make_context(2, torch.randn(30, 2, generator=generator, dtype=torch.float64))
        context.reference.certificate["bandwidth"] = 1.5
        x = torch.randn(1, 20, 2, generator=generator, dtype=torch.float64)
        values.append(mmd2_u(x, context).item())
    assert abs(np.mean(values)) < 4 * np.std(values) / math.sqrt(300)


def test_the_linear_kernel_averages_the_trace(make_context, generator: Generator) -> None:
    """E n mmd2_linear = (1 + n / m) tr Sigma = 3 (1 + n / m); chi^2_3 scaled. False alarms: 6e-5."""
    n, m, trials = 50, 400, 500
    draws = torch.randn(m, 3, generator=generator, dtype=torch.float64)
    draws -= draws.mean(0)  # the mean of the law
    x = torch.randn(trials, n, 3, generator=generator, dtype=torch.float64)
    values = n * mmd2_linear(x, make_context(3, draws))
    assert abs(values.mean().item() - 3) < 4 * math.sqrt(6 / trials)
