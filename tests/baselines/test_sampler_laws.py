"""Distributional facts. Every |z| < 5 raises a false alarm with probability 6e-7; seeds are fixed."""

import math
from typing import Any

import pytest
import torch
from sampler_toys import Gaussian, Run, Skewed, make_problem
from torch import Tensor

from parvibench.baselines import sifg

N = 20_000


def variance_z(x: Tensor, expected: float) -> float:
    """Standard errors between the variance of independent normal x and the expected one."""
    return (x.var().item() - expected) / (expected * math.sqrt(2 / (x.numel() - 1)))


def run_chains(name: str, target: Any, steps: int, **settings: Any) -> Tensor:
    """Last positions of N independent chains, (N, D)."""
    problem = make_problem(target, [0], particles=N, dtype=torch.float32)
    return Run(name, problem, **settings).steps(steps).state.x[0]


@pytest.mark.parametrize("name", ["ula", "sgld"])
def test_ula_has_the_bias_theory_predicts(name: str) -> None:
    """Variance 1 / (c (1 - c eta / 2)): catches noise of sqrt(eta) (z = -50), or a stray accept step."""
    c, eta = 2.0, 0.2
    x = run_chains(name, Gaussian([c]), 60, step_size=eta)
    assert abs(variance_z(x, 1 / (c * (1 - c * eta / 2)))) < 5


def test_lapd_has_the_bias_theory_predicts() -> None:
    """Closed form per coordinate with f-curvature l, m = 1; no bias at all where l = 0.

    Catches eta in place of (e^(m eta) - 1) / m, noise of sqrt(2 eta), and the prior's drift taken twice.
    """
    m, eta = 1.0, 0.4
    x = run_chains("lapd", Gaussian([1.0, 4.0]), 60, step_size=eta, prior_precision=m)
    for coordinate, curvature in enumerate([0.0, 3.0]):
        rho = math.exp(-m * eta) - curvature * (1 - math.exp(-m * eta)) / m
        expected = (1 - math.exp(-2 * m * eta)) / m / (1 - rho**2)
        assert abs(variance_z(x[:, coordinate], expected)) < 5


ADJUSTED = [
    ("mala", {"step_size": 0.5}),
    ("hmc", {"step_size": 0.3, "leapfrog_steps": 2, "jitter": 0.3}),
]


@pytest.mark.parametrize(("name", "settings"), ADJUSTED, ids=["mala", "hmc"])
def test_adjusted_chains_have_the_exact_variance(name: str, settings: dict[str, Any]) -> None:
    """Catches a missing accept step, or a ratio without the proposal's (momentum's) part."""
    x = run_chains(name, Gaussian([1.0, 2.0]), 40, **settings)
    assert abs(variance_z(x[:, 0], 1.0)) < 5
    assert abs(variance_z(x[:, 1], 0.5)) < 5


@pytest.mark.parametrize(("name", "settings"), ADJUSTED, ids=["mala", "hmc"])
def test_adjusted_chains_have_the_moments_of_a_skewed_density(name: str, settings: dict[str, Any]) -> None:
    """Catches acceptance that is right for Gaussians only, a stale cached score, a wrong sign in the ratio."""
    x = run_chains(name, Skewed(), 80, **settings).double().flatten()
    grid = torch.linspace(-60, 40, 20_001, dtype=torch.float64)
    weight = Skewed().log_density(grid.unsqueeze(-1)).softmax(0)
    for power in (1, 2):
        expected = ((grid**power) @ weight).item()
        values = x**power
        z = (values.mean().item() - expected) / (values.std().item() / math.sqrt(N))
        assert abs(z) < 5, f"moment {power}: {z:+.1f} standard errors from {expected:.4f}"


def test_srld_keeps_the_variance_of_a_gaussian() -> None:
    """6000 chains side by side: repulsion leaves the law alone (within 10%, 5.5 standard errors).

    Catches the sign of Eq. 6 (variance 1.17), of the kernel's gradient (0.57), and a force without its
    score part (1.31).
    """
    problem = make_problem(Gaussian([1.0]), range(6000), dtype=torch.float32)
    run = Run("srld", problem, 4000, alpha=2.0, memory=20, thinning=5, step_size=0.05).steps(350)
    assert run.state.x.var().item() == pytest.approx(1.0, abs=0.1)


def test_sifg_with_the_exact_score_samples_a_gaussian() -> None:
    """Perturbed output N(0, 1), carried particles N(0, 1 - sigma^2).

    Standard error 0.5%, bias at 50 particles and h = 0.05 about 1%. Catches output without perturbation
    (0.75) and a forgotten mixture score (0.25).
    """
    run = Run(
        "sifg",
        make_problem(Gaussian([1.0]), range(10), particles=50),
        score="exact",
        sigma=0.5,
        step_size=0.05,
    )
    run.steps(150)
    outputs, carried = [], []
    for _ in range(60):
        run.steps(1)
        outputs.append(run.output(50).var(1))
        carried.append(run.state.x.var(1))
    assert torch.stack(outputs).mean().item() == pytest.approx(1.0, abs=0.04)
    assert torch.stack(carried).mean().item() == pytest.approx(0.75, abs=0.04)


def test_sifg_network_learns_the_mixture_score() -> None:
    """Relative square error below 0.2 at fixed particles; with the paper's minus sign it would be 4."""
    problem = make_problem(Gaussian([1.0]), [0, 1], particles=100)
    run = Run(
        "sifg", problem, sigma=0.5, step_size=1e-12, hidden=32, net_optimiser="adam", net_learning_rate=0.01
    )
    run.steps(120)
    x = run.output(1000)
    learnt = run.settings.network(1).forward(run.state.network, x)[-1]
    exact = sifg.mixture_score(x, run.state.x, 0.5)
    error = (learnt - exact).square().mean((1, 2)) / exact.square().mean((1, 2))
    assert (error < 0.2).all()


def test_svgd_and_ksivi_settle_on_a_gaussian() -> None:
    """N(1, diag(1, 1/4)) from a start at 0: catches any sign error that runs away or collapses."""
    target = Gaussian([1.0, 4.0], mean=1.0)
    particles = Run("svgd", make_problem(target, particles=60), step_size=0.3).steps(300).output()
    generator = (
        Run("ksivi", make_problem(target), batch=50, hidden=20, step_size=0.01).steps(600).output(2000)
    )
    for samples in (particles, generator):
        assert samples.mean(1).flatten().tolist() == pytest.approx([1.0] * 6, abs=0.1)
        assert samples.std(1).flatten().tolist() == pytest.approx([1.0, 0.5] * 3, rel=0.15)
