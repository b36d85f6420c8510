"""Bayesian logistic regression: likelihood, prior, scaling and standardisation."""

import os

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from task_laws import assert_score_is_gradient, hmc
from torch.distributions import Bernoulli

from parvibench.core.registry import load_task
from parvibench.data.fetch import FOLDER_VARIABLE


def design() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return np.column_stack([np.ones(len(y)), (X - X.mean(0)) / X.std(0)]), y.astype(np.float64)


@pytest.fixture(scope="module")
def target():
    return load_task("blr-breast-cancer").target((0, 1), "cpu", torch.float64)


def points(seed: int = 2) -> torch.Tensor:
    return torch.randn(2, 5, 31, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_density_is_bernoulli_times_gaussian(target) -> None:
    X, y = (torch.from_numpy(a) for a in design())
    x = points()
    likelihood = Bernoulli(logits=x @ X.T).log_prob(y).sum(-1)
    torch.testing.assert_close(target.log_density(x), likelihood - 0.005 * x.square().sum(-1))
    assert target.prior_precision == 0.01


def test_score_vanishes_at_scikit_learns_map(target) -> None:
    """1/C = 0.01. Catches an unpenalised intercept, and a precision of 0.01 read as a variance."""
    fit = LogisticRegression(C=100.0, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    best = torch.from_numpy(fit.fit(*design()).coef_)
    assert target.score(best.expand(2, 1, 31)).abs().max() < 1e-6


def test_a_batch_of_all_rows_is_no_batch(target) -> None:
    x, everything = points(), torch.arange(569).expand(2, 569)
    torch.testing.assert_close(target.score(x, everything), target.score(x))
    torch.testing.assert_close(target.log_density(x, everything), target.log_density(x))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 50.0])
def test_density_without_logarithms_equals_the_plain_one(target, scale: float) -> None:
    """With a gradient asked for, the density is the plain sum of log sigmoids: from logits of 0 to thousands."""
    x = scale * points()
    plain = target.log_density(x.clone().requires_grad_()).detach()
    torch.testing.assert_close(target.log_density(x), plain, rtol=1e-12, atol=1e-9)


def test_minibatch_score_is_the_gradient(target) -> None:
    batch = torch.randint(569, (2, 20), generator=torch.Generator().manual_seed(4))
    assert_score_is_gradient(target, points(), batch)


def test_large_logits_stay_finite() -> None:
    """Catches log(1 + exp(b.x)) written out: float32 overflows at 89."""
    target = load_task("blr-breast-cancer").target((0,), "cpu", torch.float32)
    x = torch.full((1, 1, 31), 100.0)
    assert torch.isfinite(target.log_density(x)).all()
    assert torch.isfinite(target.score(x)).all()


@pytest.mark.data
@pytest.mark.skipif(FOLDER_VARIABLE not in os.environ, reason=f"needs data on disk: set {FOLDER_VARIABLE}")
def test_waveform_posterior_has_the_authors_moments() -> None:
    """Means of the authors' MALA chains and deviations of their SGLD chains, each of 1000 draws, by our own HMC.

    Their two sets of means differ by up to 0.09 deviations; ours by 0.05 from MALA's. Catches rows counted four times
    (deviations halved), features standardised once more (0.59), and a prior of precision 1 (2.6).
    """
    mean = torch.tensor([
        5.751, -.099, -.477, .442, -.247, -.100, .462, -.064, -1.935, -.993, -.926, -1.217, .367, -.129, .791, .786,
        1.585, .748, 1.921, .638, .917, .098,
    ])  # fmt: skip
    sd = torch.tensor([
        .819, .221, .279, .271, .367, .386, .447, .486, .455, .445, .400, .363, .363, .413, .412, .441, .455, .396,
        .409, .292, .275, .253,
    ])  # fmt: skip
    target = load_task("blr-waveform").target((0,), "cpu", torch.float64)
    found = hmc(target, mean.double().expand(200, 22), 60, 0.1, 15).flatten(0, 1).float()
    assert ((found.mean(0) - mean).abs() / sd).max() < 0.15
    assert (found.std(0) / sd - 1).abs().max() < 0.1
