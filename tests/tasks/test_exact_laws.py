"""Exact samplers, densities and facts of the plane targets, compared with each other.

The oracle is the density on a fine grid; moments of draws and Stein's identity are questions of
`tests/regression/laws/test_task_densities.py`. Bounds: 5 standard errors (false alarm 6e-7 per number) and p > 1e-6 for each of the 18 Kolmogorov-Smirnov tests; seeds are fixed.
"""

from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats
from task_laws import draws, z_scores
from torch import Tensor

from parvibench.core.registry import load_task

#: Box that holds all but 1e-12 of the mass: (low, high) per coordinate.
BOXES = {
    "gmm5-2d": ((-6.5, 3.5), (-5.0, 4.5)),
    "multimodal": ((-10.0, 10.0), (-8.0, 8.0)),
    "x-shaped": ((-11.0, 11.0), (-11.0, 11.0)),
    "gmm2-2d": ((-8.0, 8.0), (-8.0, 8.0)),
    "biased-start-gaussian": ((-8.0, 8.0), (-8.0, 8.0)),
    "lapd-mixture-2": ((-9.0, 9.0), (-8.0, 8.0)),
    "banana": ((-7.0, 7.0), (-8.0, 55.0)),
    "banana-ksivi-code": ((-7.0, 7.0), (-55.0, 8.0)),
    "correlated-2d": ((-4.3, 4.3), (-4.0, 7.0)),
}
N_DRAWS = 40_000


@cache
def grid(name: str) -> tuple[list[Tensor], Tensor]:
    """Axes and the probability of each cell, by the midpoint rule on 500 x 900 cells."""
    sizes, (wide, high) = (500, 900), BOXES[name]
    edges = [torch.linspace(*wide, 501, dtype=torch.float64), torch.linspace(*high, 901, dtype=torch.float64)]
    axes = [(e[1:] + e[:-1]) / 2 for e in edges]
    points = torch.cartesian_prod(*axes).unsqueeze(0)
    density = load_task(name).target((0,), "cpu", torch.float64).log_density(points).exp()
    cell = (edges[0][1] - edges[0][0]) * (edges[1][1] - edges[1][0])
    return axes, density.view(*sizes) * cell


@pytest.mark.parametrize("name", BOXES)
def test_density_integrates_to_one(name: str) -> None:
    """Catches a wrong constant or determinant in the normalised densities."""
    assert grid(name)[1].sum().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", BOXES)
def test_facts_are_the_densitys_moments(name: str) -> None:
    """Catches a slip in the hand-derived means and standard deviations."""
    (a, b), mass = grid(name)
    facts = load_task(name).facts
    marginals = ((a, mass.sum(1)), (b, mass.sum(0)))
    mean = torch.stack([(t * p).sum() for t, p in marginals])
    variance = torch.stack([(t**2 * p).sum() for t, p in marginals]) - mean**2
    torch.testing.assert_close(mean, facts.mean, rtol=0, atol=1e-5)
    torch.testing.assert_close(variance.sqrt(), facts.sd, rtol=1e-4, atol=0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", BOXES)
def test_marginals_match_the_density(name: str, axis: int) -> None:
    """Kolmogorov-Smirnov against the grid's marginal.

    Catches what two moments and Stein's identity for them do not see: uniform noise of the right variance
    across correlated-2d's ridge (p = 2e-21).
    """
    axes, mass = grid(name)
    marginal = mass.sum(1 - axis)
    cdf = marginal.cumsum(0) - marginal / 2
    x = draws(name, N_DRAWS)[:, axis].numpy()
    assert stats.kstest(x, lambda t: np.interp(t, axes[axis].numpy(), cdf.numpy())).pvalue > 1e-6


@pytest.mark.parametrize(
    ("name", "mean", "sd"),
    [
        ("gmm5-2d", (3.0, 0.0), 0.5),
        ("multimodal", (0.0, 0.0), 1.0),
        ("x-shaped", (0.0, 0.0), 1.0),
        ("banana", (0.0, 0.0), 1.0),
        ("correlated-2d", (2.0, 2.0), stats.truncnorm(-2, 2).std()),
        ("gmm5-10d", (0.0,) * 10, 1.0),
        ("gmm2-20d", (2.0,) * 20, stats.truncnorm(-2, 2).std()),
        ("gaussian-100d", (2.0,) * 100, stats.truncnorm(-2, 2).std()),
        ("funnel-10d", (0.0,) * 10, 1.0),
        ("diffusion-50", (0.0,) * 50, 1.0),
    ],
)
def test_start_has_its_law(name: str, mean: tuple[float, ...], sd: float) -> None:
    """Catches a variance given for a standard deviation, and a start on the wrong side."""
    x = load_task(name).problem(1, seed=8, dtype=torch.float64, particles=20_000).init()[0]
    centre = torch.tensor(mean, dtype=torch.float64)
    assert z_scores(x, centre).abs().max() < 5
    assert z_scores((x - centre) ** 2, torch.tensor(sd**2)).abs().max() < 5
    if mean[0] == 2.0:
        assert x.min() >= 0
        assert x.max() <= 4


def test_biased_start_is_the_targets_left_half() -> None:
    """|x1| and x2 are standard normal, x1 < 0. Catches a start shifted or squeezed instead of cut."""
    x = load_task("biased-start-gaussian").problem(1, seed=8, dtype=torch.float64, particles=20_000).init()[0]
    assert (x[:, 0] < 0).all()
    assert stats.kstest(-x[:, 0].numpy(), "halfnorm").pvalue > 1e-6
    assert stats.kstest(x[:, 1].numpy(), "norm").pvalue > 1e-6
