"""Distances, medians and kernels against plain formulas in float64."""

import math

import numpy as np
import pytest
import torch
from plain_programs import kernel_matrix
from torch import Tensor

from parvibench.kernels import gram, named, radial
from parvibench.kernels.gram import lower_median, median, median_bandwidth, self_distances


def points(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def broadcast_distances(x: Tensor, y: Tensor) -> Tensor:
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)


def test_distances_equal_the_broadcast_formula() -> None:
    x, y = points(3, 5, 4), points(3, 7, 4, seed=1)
    torch.testing.assert_close(gram.squared_distances(x, y), broadcast_distances(x, y), rtol=1e-12, atol=1e-12)


def test_distances_survive_an_offset_in_float32() -> None:
    """Without centring, the squares of 1e4 swallow every distance of order one."""
    x = points(2, 6, 3, dtype=torch.float32)
    torch.testing.assert_close(self_distances(x + 1e4), self_distances(x), rtol=0.02, atol=0.02)


def test_self_distances_are_symmetric_with_zero_diagonal() -> None:
    d = self_distances(points(2, 50, 3, dtype=torch.float32))
    assert (d >= 0).all()
    assert (d.diagonal(dim1=-2, dim2=-1) == 0).all()
    torch.testing.assert_close(d, d.mT)


@pytest.mark.parametrize("m", [1, 2, 9, 10, 1001])
def test_median_is_numpys(m: int) -> None:
    values = points(4, m)
    torch.testing.assert_close(median(values), torch.from_numpy(np.median(values.numpy(), axis=1)))


def test_kernel_values_are_exponentials_and_never_denormal() -> None:
    for dtype in (torch.float32, torch.float64):
        exponent = torch.tensor([0.0, -1.0, -50.0, -1e5], dtype=dtype)
        k = gram.exp_(exponent.clone())
        torch.testing.assert_close(k, exponent.exp())
        assert (k > torch.finfo(dtype).tiny).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("m", [1, 2, 9, 10, 1001, 2**17])
def test_median_is_the_same_on_a_gpu(m: int) -> None:
    values = points(4, m)
    assert torch.equal(median(values.cuda()).cpu(), median(values))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(lower_median(values.cuda()), lower_median(values), strict=True))


def test_bandwidth_counts_the_diagonal_and_stays_within_its_replicate() -> None:
    x = points(2, 6, 3)
    x[1] *= 10
    expected = [np.median(broadcast_distances(row, row).numpy()) / math.log(7) for row in x]
    np.testing.assert_allclose(median_bandwidth(self_distances(x)).flatten().numpy(), expected, rtol=1e-12)


def test_sampled_pairs_give_nearly_the_same_median() -> None:
    """Of 10,000 pairs the median's rank has a standard error of 0.5%, the median of about 1.5% in 2-d."""
    n = 300
    d = self_distances(points(3, n, 2))
    index = gram.sampled_pairs(n, torch.device("cpu"))
    assert index.max() < n * n
    assert torch.equal(index, gram.sampled_pairs.__wrapped__(n, torch.device("cpu")))
    torch.testing.assert_close(median_bandwidth(d, index), median_bandwidth(d), rtol=0.07, atol=0)
    assert gram.sampled_pairs(100, torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("kernel", "through_median"),
    [("gaussian", True), ("gaussian", False), ("imq", False), ("laplace", False), ("riesz", False)],
)
@pytest.mark.parametrize("bandwidth", [None, 0.7])
def test_pull_back_equals_autograd_of_the_broadcast_formula(
    kernel: named.Kernel, through_median: bool, bandwidth: float | None
) -> None:
    """Catches a lost term of the median, the upper median or the mean of both, and l2 for l1."""
    x, y, w = points(2, 5, 3), points(2, 6, 3, seed=1), points(2, 5, 6, seed=2)
    found = named.pull_back(kernel, x, y, w, bandwidth, through_median)
    for r in range(2):
        a, b = x[r].clone().requires_grad_(), y[r].clone().requires_grad_()
        k = kernel_matrix(kernel, a, b, bandwidth or "median", not through_median)
        expected = (k.detach(), *torch.autograd.grad((w[r] * k).sum(), (a, b)))
        torch.testing.assert_close(tuple(v[r] for v in found), expected, rtol=1e-10, atol=1e-11)


def test_a_riesz_kernel_of_points_on_opposite_sides_is_finite() -> None:
    """In one dimension most numerators are then 0, or rounding errors, and so is their median."""
    x, y, w = points(4, 9, 1), points(4, 8, 1, seed=1), points(4, 9, 8, seed=2)
    x[:2], y[:2] = x[:2].abs(), -y[:2].abs()
    x[:2, 0], y[:2, 0] = 0.3, 0.2  # one pair on one side
    y[1] += 1e-17
    found = named.pull_back("riesz", x, y, w, None, False)
    assert all(v.isfinite().all() for v in found)
    for r in range(4):
        expected = kernel_matrix("riesz", x[r], y[r], "median")
        torch.testing.assert_close(found[0][r], expected, rtol=1e-10, atol=1e-11)
    assert (found[0][0] > 0).sum() == 9  # one of y is on the side of x


@pytest.mark.parametrize("m", [1, 2, 9, 10, 2**17 + 2])
def test_lower_median_is_torchs_and_stands_where_it_says(m: int) -> None:
    """Long rows are searched in another way."""
    values = points(2, m)
    found, position = lower_median(values)
    assert torch.equal(found, values.median(1).values)
    assert torch.equal(values.gather(1, position.unsqueeze(1)).squeeze(1), found)


def test_a_replicate_of_nan_leaves_the_others_alone() -> None:
    x = points(3, 8, 2)
    clean = radial.pull_back(radial.gaussian, x, x.flip(1), points(3, 8, 8, seed=3))
    x[1] = math.nan
    dirty = radial.pull_back(radial.gaussian, x, x.flip(1), points(3, 8, 8, seed=3))
    for before, after in zip(clean, dirty, strict=True):
        assert torch.equal(before[[0, 2]], after[[0, 2]])
        assert after[1].isnan().all()
