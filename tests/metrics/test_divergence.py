"""Nearest-neighbour divergence against scikit-learn's neighbours."""

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from parvibench.core.metric import NotApplicable
from parvibench.metrics import common as pairwise
from parvibench.metrics import divergence
from parvibench.metrics.divergence import kl_knn


def by_sklearn(x: torch.Tensor, y: torch.Tensor) -> float:
    n, dim = x.shape
    rho = NearestNeighbors(n_neighbors=3).fit(x.numpy()).kneighbors()[0][:, 2]
    nu = NearestNeighbors(n_neighbors=3).fit(y.numpy()).kneighbors(x.numpy())[0][:, 2]
    return float(dim * np.mean(np.log(nu / rho)) + math.log(len(y) / (n - 1)))


@pytest.mark.parametrize("dim", [1, 3, 12])
def test_agrees_with_sklearn(dim: int, make_context, randn) -> None:
    """By tree and by blocks; catches a sample counted as its own neighbour, and n in place of n - 1."""
    x = 50 + randn(60, dim)
    y = 50 + 2 * randn(90, dim)
    assert kl_knn(x[None], make_context(dim, y)).item() == pytest.approx(by_sklearn(x, y), rel=1e-12)


def test_tree_and_blocks_agree(make_context, monkeypatch: pytest.MonkeyPatch, randn) -> None:
    x = randn(2, 50, 3)
    context = make_context(3, randn(80, 3))
    tree = kl_knn(x, context)
    monkeypatch.setattr(divergence, "TREE_DIMENSIONS", 0)
    monkeypatch.setattr(pairwise, "WIDE_BLOCK", 300)
    torch.testing.assert_close(kl_knn(x, context), tree, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dim", [2, 12])
def test_collapsed_samples_are_infinitely_bad(dim: int, make_context, randn) -> None:
    """Four copies of a point have a third neighbour at distance zero; three do not."""
    x = 10 + randn(2, 30, dim)
    x[0, :4], x[1, :3] = x[0, 0].clone(), x[1, 0].clone()
    found = kl_knn(x, make_context(dim, randn(50, dim)))
    assert found[0] == math.inf
    assert found[1].isfinite()


def test_too_few_points(make_context, randn) -> None:
    draws = randn(50, 2)
    with pytest.raises(NotApplicable, match="n = 3 samples"):
        kl_knn(draws[None, :3], make_context(2, draws))
    with pytest.raises(NotApplicable, match="2 rows"):
        kl_knn(draws[None], make_context(2, draws[:2]))
