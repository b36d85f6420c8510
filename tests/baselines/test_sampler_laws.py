"""Samples of SIFG, SVGD and KSIVI on Gaussians; the laws of chains are questions of `parvibench.check.truth`."""

import pytest
import torch
from sampler_toys import Gaussian, Run, make_problem, settled

from parvibench.kernels.mixture import mixture_score


def test_sifg_with_the_exact_score_samples_a_gaussian() -> None:
    """Perturbed output N(0, 1), carried particles N(0, 1 - sigma^2).

    Standard error 0.5%, bias at 50 particles and h = 0.05 about 1%. Catches output without perturbation
    (0.75) and a forgotten mixture score (0.25).
    """
    problem = make_problem(Gaussian([1.0]), range(10), particles=50)
    run = Run("sifg", problem, score="exact", sigma=0.5, step_size=0.05).steps(150)
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
    settings = {"hidden": 32, "net_optimiser": "adam", "net_learning_rate": 0.01}
    run = Run("sifg", problem, sigma=0.5, step_size=1e-12, **settings).steps(120)
    x = run.output(1000)
    learnt = run.settings.network(1).forward(run.state.flow.network, x)[-1]
    exact = mixture_score(x, run.state.x, 0.5)
    error = (learnt - exact).square().mean((1, 2)) / exact.square().mean((1, 2))
    assert (error < 0.2).all()


def test_svgd_and_ksivi_settle_on_a_gaussian() -> None:
    """N(1, diag(1, 1/4)) from a start at 0: catches any sign error that runs away or collapses."""
    target = Gaussian([1.0, 4.0], mean=1.0)
    particles = Run("svgd", make_problem(target, particles=60), step_size=0.3).steps(300).output()
    generator = Run("ksivi", make_problem(target), batch=50, hidden=20, step_size=0.01).steps(600)
    for samples in (particles, generator.output(2000)):
        settled(samples)
