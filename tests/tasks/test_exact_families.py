"""Exact samplers of targets beyond the plane or with heavy tails, family by family.

Draws are mapped to numbers whose law is known in closed form and compared by Kolmogorov-Smirnov tests with
p > 1e-6 (39 of them: false alarm 4e-5 for the file at other seeds), or averaged: moments of every coordinate and
Stein's identity within 6 standard errors (2e-9 a number, 1.2e-5 for 6000). Seeds are fixed.
"""

import pytest
import torch
from scipy import stats
from task_laws import directions, draws, moment_z_scores, stein_z_scores, z_scores

from parvibench.core.registry import load_task

MIXTURES = ["gmm5-10d", "gmm2-20d", "gaussian-100d", *(f"lapd-mixture-{d}" for d in (8, 32, 128, 512, 2048))]
#: Standard errors allowed.
BOUND = 6
#: Draws of the targets in the plane.
MANY = 40_000


@pytest.mark.parametrize("name", MIXTURES)
def test_projections_of_mixtures_are_mixtures(name: str) -> None:
    """u.x is a mixture of N(u.m_k, v_k) in one dimension.

    Catches components drawn with each other's spread (gmm5-10d: p = 3e-45), a variance taken for a standard
    deviation (gaussian-100d: p = 3e-36), one component drawn alone (lapd-mixture-8: p below 1e-300).
    """
    mixture = load_task(name).mixture
    sds = mixture.variances.expand_as(mixture.means)[:, 0].sqrt()  # components are round
    for u in directions(name):
        centres = mixture.means @ u

        def cdf(t, centres=centres):
            return stats.norm.cdf(t[:, None], centres.numpy(), sds.numpy()) @ mixture.weights.numpy()

        assert stats.kstest((draws(name) @ u).numpy(), cdf).pvalue > 1e-6


@pytest.mark.parametrize("name", [f"lapd-mixture-{d}" for d in (128, 512, 2048)])
def test_facts_and_steins_identity(name: str) -> None:
    """Beyond 100 dimensions: `tests/regression/laws/test_task_densities.py` asks the others."""
    assert moment_z_scores(name, draws(name)).abs().max() < BOUND
    assert stein_z_scores(name, draws(name)).abs().max() < BOUND


@pytest.mark.parametrize("axis", [0, 1])
def test_monomial_gamma_draws(axis: int) -> None:
    """x is generalised normal: p ~ exp(-|x / scale|^0.9), scale = 0.3^(-1/0.9).

    Catches the code's sampler, shape 0.9 for 1/0.9 (p = 4e-104), and draws without a negative half.
    """
    law = stats.gennorm(0.9, scale=0.3 ** (-1 / 0.9))
    assert stats.kstest(draws("monomial-gamma", MANY)[:, axis].numpy(), law.cdf).pvalue > 1e-6


def test_monomial_gamma_has_the_published_moments() -> None:
    """E|x| = 4.488, E x^2 = 42.60; the code's wrong sampler has 3.56 and 29.9."""
    task = load_task("monomial-gamma")
    assert task.facts.sd[0].item() ** 2 == pytest.approx(42.60, abs=0.005)
    assert z_scores(draws("monomial-gamma", MANY).abs(), 4.488).abs().max() < BOUND


@pytest.mark.parametrize("axis", [0, 1])
def test_student_draws(axis: int) -> None:
    """z = A^-1 x are independent t_2.

    Catches t_3 for t_2 (p = 1e-19), A applied inverted (p below 1e-300), and one chi-square shared by both
    coordinates, the usual multivariate t (z = 20).
    """
    a = torch.tensor([[0.28216196, -0.11803875], [-0.11803875, 0.29587176]], dtype=torch.float64)
    z = draws("student-t", MANY) @ torch.linalg.inv(a).T
    assert stats.kstest(z[:, axis].numpy(), stats.t(2).cdf).pvalue > 1e-6
    below_median = (z.abs() < stats.t(2).ppf(0.75)).double()
    assert abs(z_scores(below_median.prod(1), 0.25)) < BOUND
    assert abs(z_scores(z.sign().prod(1), 0.0)) < BOUND


def test_funnel_draws() -> None:
    """v ~ N(0, 9) and y exp(-v/2) is standard normal. Catches variance 3 for 9 (p = 3e-79) and exp(v) for sd exp(v/2)."""
    x = draws("funnel-10d")
    assert stats.kstest(x[:, 0].numpy(), stats.norm(0, 3).cdf).pvalue > 1e-6
    z = x[:, 1:] * (-x[:, :1] / 2).exp()
    assert stats.kstest(z.flatten().numpy(), "norm").pvalue > 1e-6
    assert z_scores(z * x[:, :1], 0.0).abs().max() < BOUND
