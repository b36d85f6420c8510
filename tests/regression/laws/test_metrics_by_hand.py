"""Metrics written out for cases that their known answers in `tests/metrics` leave open."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from parvibench.checks.summaries import generator_of
from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.registry import load_metric, load_task


def initial_positive_sequence(path: NDArray[np.float64]) -> float:
    """Effective size of chains (T, N) about the mean of all, lag by lag (Geyer 1992)."""
    times, chains = path.shape
    x = path - path.mean()
    covariance = [(x[t:] * x[: times - t]).sum(0).mean() / times for t in range(times)]
    pairs = [(covariance[t] + covariance[t + 1]) / covariance[0] for t in range(0, times - 1, 2)]
    negative = next((k for k, pair in enumerate(pairs) if pair <= 0), len(pairs))
    return float(chains * times / (2 * sum(pairs[:negative]) - 1))


def test_size_by_autocorrelations_of_chains_that_stay_apart() -> None:
    path = torch.randn(30, 4, 3, generator=generator_of("apart"), dtype=torch.float64).cumsum(0)
    path[..., 1] += torch.tensor([0.0, 5.0, 10.0, 20.0])
    sizes = [initial_positive_sequence(path[..., d].numpy()) for d in range(3)]
    context = Context(load_task("banana"), path=path[None])
    measured = load_metric("ess_autocorrelation").compute(path[:1], context)
    assert measured.item() == pytest.approx(np.mean(sizes))


def test_a_window_is_a_cube() -> None:
    """A corner is within it: (0 + 2 * 0.9^2) / 2."""
    x, y = (torch.tensor([[0.0, 0.0], [c, c]], dtype=torch.float64) for c in (4.9, 4.0))
    context = Context(load_task("student-t"), Reference(y, True, {"bandwidth": 1.0}))
    assert load_metric("w2sq_window_5").compute(x[None], context).item() == pytest.approx(0.81)
