"""Divergence along the line of the modes and across it, against quadrature and a closed form."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from parvibench.core.metric import Context, NotApplicable
from parvibench.core.task import Facts, Modes
from parvibench.metrics.modes import kl_projected


def context(means, sds=None, weights=None):
    means = torch.as_tensor(means, dtype=torch.float64)
    k = len(means)
    modes = Modes(
        means,
        torch.ones(k) if sds is None else torch.tensor(sds),
        torch.full((k,), 1 / k) if weights is None else torch.tensor(weights),
    )
    return Context(SimpleNamespace(facts=Facts(modes=modes)))


def pair(dim, distance=1.5):
    """Two modes on the diagonal, off the origin."""
    line = np.ones(dim) / math.sqrt(dim)
    return np.array([3.0 + distance * line, 3.0 - distance * line]), line


def draws(rng, dim, n, *, along=1.0, across=1.0, weight=0.5):
    means, line = pair(dim)
    centre = np.where(rng.random((40, n, 1)) < weight, means[0], means[1])
    z = rng.normal(size=(40, n, dim))
    t = (z @ line)[..., None] * line
    return torch.as_tensor(centre + along * t + across * (z - t))


@pytest.mark.parametrize("dim", [2, 64])
def test_exact_draws_have_mean_zero(dim):
    """40 sets of 400; five standard errors. Catches spacings without their correction (0.1) and a lost dimension."""
    found = kl_projected(draws(np.random.default_rng(0), dim, 400), context(pair(dim)[0]))
    # The variance across costs 1 / (2 n) on average: v has 400 (D - 1) degrees of freedom.
    assert abs(found.mean() - 1 / 800) < 5 * found.std() / math.sqrt(40)
    assert found.std() < 0.03


def test_a_variance_across_the_line_has_its_closed_form():
    dim, v = 50, 1.1
    rng = np.random.default_rng(1)
    found = kl_projected(draws(rng, dim, 400, across=math.sqrt(v)), context(pair(dim)[0]))
    expected = (dim - 1) / 2 * (v - 1 - math.log(v))
    assert found.mean().item() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("along", "weight"), [(1.0, 0.8), (0.6, 0.5), (1.5, 0.5)])
def test_a_wrong_law_along_the_line_agrees_with_quadrature(along, weight):
    def density(t, sd, w):
        return w * stats.norm.pdf(t, 1.5, sd) + (1 - w) * stats.norm.pdf(t, -1.5, sd)

    def integrand(t):
        q = density(t, along, weight)
        return q * math.log(q / density(t, 1.0, 0.5))

    expected = integrate.quad(integrand, -9, 9)[0]
    found = kl_projected(draws(np.random.default_rng(2), 3, 4000, along=along, weight=weight), context(pair(3)[0]))
    assert found.mean().item() == pytest.approx(expected, rel=0.05, abs=0.005)


def test_modes_off_a_line_or_of_two_spreads_have_no_projection():
    x = torch.randn(1, 20, 2, dtype=torch.float64)
    for known in (context([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), context([[0.0, 0.0], [1.0, 0.0]], sds=[1.0, 2.0])):
        with pytest.raises(NotApplicable):
            kl_projected(x, known)
    with pytest.raises(NotApplicable, match="at least 10"):
        kl_projected(x[:, :9], context([[0.0, 0.0], [1.0, 0.0]]))
