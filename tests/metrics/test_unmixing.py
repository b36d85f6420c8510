"""Amari distance: zero up to order and scale, and by hand."""

import numpy as np
import pytest
import torch

from parvibench.core.errors import ShapeError
from parvibench.core.metric import NotApplicable
from parvibench.core.task import Facts
from parvibench.metrics.modes import amari


def by_loops(w: np.ndarray, known: np.ndarray) -> float:
    p = np.linalg.solve(known.T, w.T).T ** 2  # W W0^(-1), squared
    d = len(p)
    total = sum(row.sum() / row.max() - 1 for row in p) + sum(c.sum() / c.max() - 1 for c in p.T)
    return total / (2 * d)


def test_against_loops(make_context, randn) -> None:
    """Catches W0 pinv(W), and entries that are not squared."""
    known = randn(3, 3)
    w = randn(2, 5, 3, 3)
    context = make_context(9, task={"facts": Facts(unmixing=known)})
    expected = [np.mean([by_loops(m, known.numpy()) for m in batch]) for batch in w.numpy()]
    assert amari(w.flatten(2), context).tolist() == pytest.approx(expected)


def test_order_and_scale_do_not_matter_and_the_worst_is_known(make_context, randn) -> None:
    known = randn(4, 4)
    context = make_context(16, task={"facts": Facts(unmixing=known)})
    scaled = torch.tensor([2.0, -0.1, 30.0, 1.0])[:, None] * known[[2, 0, 3, 1]]
    assert amari(scaled.reshape(1, 1, 16), context).item() == pytest.approx(0, abs=1e-12)
    equal = (torch.ones(4, 4, dtype=torch.float64) @ known).reshape(1, 1, 16)  # P is all ones
    assert amari(equal, context).item() == pytest.approx(3)


def test_no_matrix_or_one_that_does_not_fit(make_context) -> None:
    x = torch.zeros(1, 2, 9, dtype=torch.float64)
    with pytest.raises(NotApplicable, match="unmixing"):
        amari(x, make_context(9))
    with pytest.raises(ShapeError, match=r"\(2, 2\) does not fit samples \(1, 2, 9\)"):
        amari(x, make_context(9, task={"facts": Facts(unmixing=torch.eye(2))}))
