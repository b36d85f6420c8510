"""Exact W1 against SciPy, and W2 inside a window."""

import math

import pytest
import torch
from scipy import stats
from torch import Generator

from parvibench.core.metric import NotApplicable
from parvibench.core.registry import load_metric
from parvibench.metrics.transport import w1, w2, w2sq_window

HEAVY = {"tags": frozenset({"heavy-tailed"})}


def test_w1_agrees_with_scipy(make_context, generator: Generator) -> None:
    """In one dimension by quantiles, in three by another linear programme; catches squared costs."""
    for dim, expected in ((1, lambda a, b: stats.wasserstein_distance(a[:, 0], b[:, 0])),
                          (3, stats.wasserstein_distance_nd)):  # fmt: skip
        x = torch.randn(25, dim, generator=generator, dtype=torch.float64) + 1
        y = torch.randn(30, dim, generator=generator, dtype=torch.float64)
        found = w1(x[None], make_context(dim, y)).item()
        assert found == pytest.approx(expected(x.numpy(), y.numpy()), rel=1e-7)


def test_w1_of_a_shift_and_never_above_w2(make_context, generator: Generator) -> None:
    draws = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    shift = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64)
    context = make_context(3, draws)
    assert w1((draws + shift)[None], context).item() == pytest.approx(shift.norm().item(), rel=1e-9)
    x = 2 * torch.randn(1, 100, 3, generator=generator, dtype=torch.float64)
    assert w1(x, context).item() < w2(x, context).item()


def test_only_the_window_counts(make_context, generator: Generator) -> None:
    """A shift inside gives its square; rows beyond, in any one coordinate, change nothing."""
    draws = torch.rand(100, 2, generator=generator, dtype=torch.float64) - 0.5
    shift = torch.tensor([0.3, -0.2], dtype=torch.float64)
    far = torch.tensor([[0.0, 5.0], [-9.0, 0.0], [40.0, 40.0]], dtype=torch.float64)
    context = make_context(2, torch.cat([draws, far]), task=HEAVY)
    for name in ("w2sq_window_5", "w2sq_window_8", "w2sq_window_10"):
        assert load_metric(name).compute is not None
    x = torch.cat([draws + shift, far[[0]].expand(50, 2)])
    found = load_metric("w2sq_window_5").compute(x[None], context).item()
    assert found == pytest.approx(shift.square().sum().item(), rel=1e-9)
    # The window of 8 holds (0, 5) as well.
    expected = w2(x[None], make_context(2, torch.cat([draws, far[:1]]))).item() ** 2
    assert load_metric("w2sq_window_8").compute(x[None], context).item() == pytest.approx(expected)


def test_windows_without_rows_and_other_tasks(make_context, generator: Generator) -> None:
    draws = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    context = make_context(2, draws, task=HEAVY)
    assert w2sq_window(draws[None] + 100, context, 5.0).item() == math.inf
    with pytest.raises(NotApplicable, match="no reference row"):
        w2sq_window(draws[None], make_context(2, draws + 100, task=HEAVY), 5.0)
    with pytest.raises(NotApplicable, match="heavy-tailed"):
        w2sq_window(draws[None], make_context(2, draws), 5.0)
