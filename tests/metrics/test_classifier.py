"""The classifier test on exact draws, on separable samples, and where other classifiers see no difference."""

import math

import pytest
import torch

from parvibench.core.metric import NotApplicable
from parvibench.metrics.divergence import c2st


def test_exact_draws_are_guessed(make_context, randn) -> None:
    """Accuracy 1/2 on average. Catches folds that train on what they test (0.6 and more).

    Accuracies over folds of one set have about the binomial spread 1/sqrt(4 * 2n), mean over ten sets within
    five of its standard errors and 0.01 of negative bias: false alarms below 1e-5.
    """
    n, sets = 150, 10
    values = [c2st(randn(1, n, 2), make_context(2, randn(n, 2))) for _ in range(sets)]
    assert abs(torch.cat(values).mean().item() - 0.5) < 0.01 + 5 / math.sqrt(4 * 2 * n * sets)


def test_separable_samples(make_context, randn) -> None:
    assert c2st(randn(1, 200, 2) + 6, make_context(2, randn(300, 2))).item() > 0.99


@pytest.mark.parametrize(("dim", "spread", "least"), [(2, 0.5, 0.65), (50, 0.8, 0.7)])
def test_narrow_samples_are_seen(dim: int, spread: float, least: float, make_context, randn) -> None:
    """Means agree, so a linear classifier guesses; in 50 dimensions nearest neighbours do too."""
    assert c2st(spread * randn(1, 500, dim), make_context(dim, randn(500, dim))).item() > least


def test_same_answer_twice_and_any_unit(make_context, randn) -> None:
    draws, x = randn(60, 2), randn(1, 40, 2)
    first = c2st(x, make_context(2, draws))
    assert torch.equal(first, c2st(x, make_context(2, draws)))
    assert torch.equal(first, c2st(8 * x, make_context(2, 8 * draws)))


def test_too_few_points_for_the_folds(make_context, randn) -> None:
    draws = randn(50, 2)
    with pytest.raises(NotApplicable, match="got 4"):
        c2st(draws[None, :4], make_context(2, draws))
