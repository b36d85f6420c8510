"""Targets of neural and multimodal samplers: densities, log Z and exact draws against other ways to them.

Moments of draws and Stein's identity within 6 standard errors (2e-9 a number); Kolmogorov-Smirnov tests with p > 1e-6.
Seeds are fixed.
"""

import math
import os
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from few import needs_data
from scipy import integrate, stats
from task_laws import assert_score_is_gradient, draws, moment_z_scores, stein_z_scores, z_scores
from torch.distributions import (
    Categorical,
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    Poisson,
    StudentT,
)

from parvibench.core.algorithm import take_steps
from parvibench.core.registry import load_algorithm, load_task
from parvibench.data.fetch import FOLDER_VARIABLE, fetch
from parvibench.tasks.student_mixture import centres

EXACT = [
    "gmm40-2d",
    "gmm40-50d",
    "many-well-32",
    "student-mixture-50d",
    "brownian-32",
    "phi4-100",
    "phase-transition-20d",
]


@pytest.mark.parametrize("name", [*EXACT, "cox-process-1600", pytest.param("pines-900", marks=needs_data("pines-900"))])
def test_score_is_the_differentiable_gradient(name: str) -> None:
    task = load_task(name)
    x = task.problem(2, seed=1, dtype=torch.float64, particles=5).init()
    assert_score_is_gradient(task.target((0, 1), "cpu", torch.float64), x, tolerance=1e-8)


@pytest.mark.parametrize("name", [n for n in EXACT if n != "student-mixture-50d"])
def test_draws_have_the_moments_and_steins_identity(name: str) -> None:
    assert moment_z_scores(name, draws(name)).abs().max() < 6
    assert stein_z_scores(name, draws(name)).abs().max() < 6


@pytest.mark.parametrize(("name", "sd"), [("gmm40-2d", 1.3132616875182228), ("gmm40-50d", 1.0)])
def test_forty_gaussians_are_pytorchs(name: str, sd: float) -> None:
    """Normalised, log Z = 0. Catches softplus(1) taken for a variance."""
    task = load_task(name)
    means = task.facts.modes.means
    weights = torch.ones(40, dtype=torch.float64)
    oracle = MixtureSameFamily(Categorical(weights), Independent(Normal(means, sd), 1))
    x = task.problem(1, seed=1, dtype=torch.float64, particles=50).init()
    found = task.target((0,), "cpu", torch.float64).log_density(x)
    torch.testing.assert_close(found, oracle.log_prob(x), rtol=1e-9, atol=1e-9)
    assert task.facts.log_z == 0


def test_centres_are_those_of_the_authors() -> None:
    """`(torch.rand((40, 2)) - 0.5) * 2 * 40` after `torch.manual_seed(0)`, as their code draws them."""
    means = load_task("gmm40-2d").facts.modes.means
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = (torch.rand((40, 2)) - 0.5) * 2 * 40
    torch.testing.assert_close(means.float(), theirs, rtol=0, atol=1e-5)
    torch.testing.assert_close(means[0], torch.tensor([-0.2995, 21.4578], dtype=torch.float64), rtol=0, atol=1e-3)


@pytest.mark.ci
def test_log_z_of_many_wells_is_the_published_one() -> None:
    """Midgley et al. state Z = 11784.50927 for x1; the integral of a pair is that times sqrt(2 pi)."""
    task = load_task("many-well-32")
    target = task.target((0,), "cpu", torch.float64)

    def pair(b: float, a: float) -> float:
        x = torch.zeros(1, 1, 32, dtype=torch.float64)
        x[0, 0, :2] = torch.tensor([a, b])
        return math.exp(float(target.log_density(x)))

    z = integrate.dblquad(pair, -3.5, 3.5, -8, 8, epsabs=1e-2, epsrel=1e-6)[0]
    assert task.facts.log_z == pytest.approx(16 * math.log(z), abs=1e-3)
    assert task.facts.log_z == pytest.approx(16 * (math.log(11784.50927) + 0.5 * math.log(2 * math.pi)), abs=1e-6)


def test_wells_are_drawn_by_their_density() -> None:
    """Catches an envelope that the density exceeds, and wells that are not independent."""
    x = draws("many-well-32")
    t = np.linspace(-4, 4, 20001)
    p = np.exp(-(t**4) + 6 * t**2 + 0.5 * t)
    cdf = integrate.cumulative_trapezoid(p, t, initial=0)
    assert stats.kstest(x[:, ::2].flatten().numpy(), lambda s: np.interp(s, t, cdf / cdf[-1])).pvalue > 1e-6
    assert stats.kstest(x[:, 1::2].flatten().numpy(), "norm").pvalue > 1e-6
    right = (x[:, ::2] > 0).double()
    share = load_task("many-well-32").facts.constants["weight of a right well"]
    assert abs(z_scores(right[:, 0] * right[:, 1], share**2)) < 6


def test_student_mixture_is_pytorchs() -> None:
    """A product of t_2, normalised. Catches the multivariate t with one denominator for all coordinates."""
    task = load_task("student-mixture-50d")
    two = torch.tensor(2.0, dtype=torch.float64)
    components = Independent(StudentT(two, centres()), 1)
    oracle = MixtureSameFamily(Categorical(torch.ones(10, dtype=torch.float64)), components)
    x = draws(task.name, 200)[None]
    found = task.target((0,), "cpu", torch.float64).log_density(x)
    torch.testing.assert_close(found, oracle.log_prob(x), rtol=1e-10, atol=1e-10)


def test_student_mixtures_draws() -> None:
    """Nearest centres are 20 or more apart: draws less their centres are t_2, and components have equal shares."""
    task = load_task("student-mixture-50d")
    x = draws(task.name)
    nearest = (x[:, None] - centres()).abs().median(-1).values.argmin(1)
    assert stats.chisquare(torch.bincount(nearest, minlength=10).numpy()).pvalue > 1e-6
    assert stats.kstest((x - centres()[nearest])[:, 0].numpy(), stats.t(2).cdf).pvalue > 1e-6


def test_brownian_density_is_the_models() -> None:
    """Against the model's conditional densities, one after the other."""
    task = load_task("brownian-32")
    from parvibench.tasks.brownian import _SEEN, _Y

    x = draws(task.name, 50)
    logs, path = x[:, :2], x[:, 2:]
    step, noise = logs.exp().unbind(-1)
    expected = Normal(torch.zeros_like(logs), 2.0).log_prob(logs).sum(-1)
    before = torch.zeros(50, dtype=torch.float64)
    for t in range(30):
        expected = expected + Normal(before, step).log_prob(path[:, t])
        before = path[:, t]
    for t, y in zip(_SEEN, _Y, strict=True):
        expected = expected + Normal(path[:, t], noise).log_prob(torch.tensor(y, dtype=torch.float64))
    found = task.target((0,), "cpu", torch.float64).log_density(x[None])[0]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.ci
def test_evidence_of_brownian_motion() -> None:
    """By the joint Gaussian of the observations given the scales, and an adaptive quadrature."""
    from parvibench.tasks.brownian import _SEEN, _Y

    times = np.array(_SEEN) + 1.0
    values, vectors = np.linalg.eigh(np.minimum.outer(times, times))
    rotated = vectors.T @ np.array(_Y)

    def joint(log_o: float, log_s: float) -> float:
        variances = math.exp(2 * log_s) * values + math.exp(2 * log_o)
        log_p = -0.5 * np.sum(rotated**2 / variances + np.log(2 * math.pi * variances))
        return math.exp(log_p) * stats.norm.pdf(log_s, 0, 2) * stats.norm.pdf(log_o, 0, 2)

    evidence = integrate.dblquad(joint, -5, 1, -14, 0, epsabs=1e-9, epsrel=1e-7)[0]
    assert load_task("brownian-32").facts.log_z == pytest.approx(math.log(evidence), abs=1e-5)


def test_brownian_scales_stay_below_their_envelope() -> None:
    """Rejection is exact only where no density exceeds the step function; mass beyond the grid is negligible."""
    from parvibench.tasks.brownian import _CELL, ScalesLaw, filtered

    law = ScalesLaw(_CELL)
    u = torch.rand(len(law._lows), 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert (filtered(law._lows + _CELL * u)[0] < law._bounds).all()
    edge = (law.points == law.points.amax(0)).any(1) | (law.points == law.points.amin(0)).any(1)
    assert law.weights[edge].sum() < 1e-9


def test_log_z_of_the_field() -> None:
    """By the exact draws: E[q(x) / exp(log_density(x))] = 1 / Z for a normalised q, a Gaussian at each mode.

    Laplace's Gaussians have lighter tails than the field, so that the ratio is bounded: its mean has a standard error.
    """
    task = load_task("phi4-100")
    x = draws(task.name)
    profile = task.facts.modes.means
    target = task.target((0,), "cpu", torch.float64)
    hessian = torch.autograd.functional.jacobian(lambda v: target.score(v[None, None])[0, 0], profile[0])
    q = MixtureSameFamily(
        Categorical(torch.ones(2, dtype=torch.float64)), MultivariateNormal(profile, precision_matrix=-1.25 * hessian)
    )
    log_ratio = q.log_prob(x) - target.log_density(x[None])[0] + task.facts.log_z
    assert abs(z_scores(log_ratio.exp(), 1.0)) < 6
    assert log_ratio.exp().std() < 5


def test_field_has_both_signs_equally() -> None:
    x = draws("phi4-100")
    sign = x.mean(1).sign()
    assert abs(z_scores(sign, 0.0)) < 6
    assert z_scores(x, 0.0).abs().max() < 6


def test_cox_process_is_pytorchs() -> None:
    """Catches distances not in cells, a variance taken for a standard deviation, and the area of a cell left out."""
    task = load_task("cox-process-1600")
    i, j = np.divmod(np.arange(1600), 40)
    distance = np.hypot(i[:, None] - i, j[:, None] - j)
    covariance = torch.from_numpy(1.91 * np.exp(-distance * 33 / 40))
    mean = torch.full((1600,), math.log(126) - 1.91 / 2, dtype=torch.float64)
    x = task.problem(1, seed=1, dtype=torch.float64, particles=3).init()
    _, counts = task.target((0,), "cpu", torch.float64)._constants
    expected = MultivariateNormal(mean, covariance).log_prob(x) + Poisson(x.exp() / 1600).log_prob(counts).sum(-1)
    found = task.target((0,), "cpu", torch.float64).log_density(x) - torch.lgamma(counts + 1).sum()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert counts.sum() == 111


@pytest.mark.skipif(
    not (Path(os.environ.get(FOLDER_VARIABLE, "nowhere")) / "finpines").is_dir(),
    reason=f"needs finpines on disk: set {FOLDER_VARIABLE}",
)
def test_pines_are_counted_in_cells_and_whitened() -> None:
    """Counts by a loop; the density in z is the prior N(0, I) and the likelihood at mu + L z, but for y! and the areas."""
    task = load_task("pines-900")
    rows = fetch("finpines").read_text().splitlines()[1:]
    counts = torch.zeros(900, dtype=torch.float64)
    for row in rows:
        x, y = (float(v) for v in row.split(",")[1:])
        counts[int(30 * x) * 30 + int(30 * y)] += 1
    assert counts.sum() == 126
    i, j = np.divmod(np.arange(900), 30)
    covariance = 1.91 * np.exp(-np.hypot(i[:, None] - i, j[:, None] - j) * 33 / 30)
    z = task.problem(1, seed=1, dtype=torch.float64, particles=3).init()
    field = math.log(126) - 1.91 / 2 + z @ torch.from_numpy(np.linalg.cholesky(covariance)).T
    likelihood = Poisson(field.exp() / 900).log_prob(counts) + torch.lgamma(counts + 1) + counts * math.log(900)
    expected = Normal(0.0, 1.0).log_prob(z).sum(-1) + likelihood.sum(-1)
    torch.testing.assert_close(task.target((0,), "cpu", torch.float64).log_density(z), expected, rtol=1e-9, atol=1e-9)


def test_annealing_finds_the_wide_phase_alone_and_climbing_the_narrow_one() -> None:
    """log Z of SMC is log 0.1, with a small error and no doubt; nine draws in ten are in the narrow phase."""
    task = load_task("phase-transition-20d")
    assert (draws(task.name).norm(dim=1) < 1).double().mean() == pytest.approx(0.9, abs=0.02)
    smc, problem = load_algorithm("smc"), task.problem(4, seed=1, limit=100 * 301)
    settings: Any = smc.make_settings({})
    state = smc.init(problem, settings, problem.streams, 300)
    info = list(islice(take_steps(smc.step, problem, settings, state), 290))[-1][1]
    assert (info.log_z - math.log(0.1)).abs().max() < 5 * info.log_z_se.max()
    assert info.log_z_se.max() < 0.2
    assert (info.log_z_doubt == 0).all()
