"""Functional-gradient flows and interaction energies; the bug a test was seen to catch stands in its docstring."""

import math

import numpy as np
import pytest
import torch
from sampler_toys import Bent, Gaussian, Run, Skewed, make_problem, points
from torch import Tensor

from parvibench.baselines import ada_gwg, ada_sifg, ksdd, mied
from parvibench.kernels.gram import median_bandwidth, mixture_score
from parvibench.nn.optim import Moments

# --- SIFG and Ada-SIFG -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sifg", "ada-sifg"])
def test_score_of_coinciding_particles_is_learnt(name: str) -> None:
    """f(x) = -(x - m) / sigma^2. Catches the sign of the paper's Eq. 3.8 and w / sigma^2 for w / sigma."""
    frozen = {"sigma_step_size": 0.0} if name == "ada-sifg" else {}
    settings = {"sigma": 0.5, "step_size": 1e-12, "hidden": 16, "net_optimiser": "adam"}
    problem = make_problem(Gaussian([1.0, 1.0]), [0, 1], particles=100)
    run = Run(name, problem, **settings, **frozen, net_learning_rate=0.01)
    run.state = run.state._replace(x=torch.full_like(run.state.x, 2.0))
    run.steps(150)
    x = run.output(1000)
    learnt = run.settings.network(2).forward(run.state.flow.network, x)[-1]  # type: ignore[attr-defined]
    exact = -(x - 2) / 0.5**2
    assert ((learnt - exact).square().mean((1, 2)) / exact.square().mean((1, 2)) < 0.05).all()
    torch.testing.assert_close(mixture_score(x, run.state.x, 0.5), exact, rtol=1e-6, atol=1e-6)


def divergence_by_grid(z: Tensor, sigma: float) -> float:
    """KL(mu * N(0, sigma^2) || Skewed) up to the constant of the target, by the trapezoidal rule."""
    grid = torch.linspace(-12, 12, 24_001, dtype=torch.float64).unsqueeze(-1)
    log_q = (-(grid - z).square() / (2 * sigma**2)).logsumexp(1)
    log_q = log_q - math.log(len(z) * sigma * math.sqrt(2 * math.pi))
    return torch.trapezoid(log_q.exp() * (log_q - Skewed().log_density(grid)), grid[:, 0]).item()


@pytest.mark.parametrize("sigma", [0.3, 0.8])
def test_sigma_gradient_equals_finite_differences_of_the_divergence(sigma: float) -> None:
    """By Gauss-Hermite quadrature. Catches the factors sigma and 1/2, and the opposite sign."""
    z = torch.tensor([-1.0, 0.3, 1.2], dtype=torch.float64)
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(80))
    w = nodes.repeat(3).view(1, -1, 1)
    share = (80 * weights / weights.sum()).repeat(3).view(1, -1, 1)
    x = z.repeat_interleave(80).view(1, -1, 1) + sigma * w
    velocity = Skewed().score(x) - mixture_score(x, z.view(1, -1, 1), sigma)
    actual = ada_sifg.sigma_gradient(share * velocity, w).item()
    step = 1e-4
    expected = (divergence_by_grid(z, sigma + step) - divergence_by_grid(z, sigma - step)) / (2 * step)
    assert actual == pytest.approx(expected, rel=1e-5)


def test_sigma_stops_at_its_bounds() -> None:
    run = Run("ada-sifg", make_problem(Gaussian([1.0])), sigma_step_size=1e6, sigma_min=0.01).steps(1)
    assert ((run.state.sigma == 0.01) | (run.state.sigma == 1.0)).all()


def test_sifg_moves_by_the_difference_of_scores_at_the_perturbed_points() -> None:
    """The score of the mixture by autograd."""
    run = Run("sifg", make_problem(Bent()), score="exact", sigma=0.5, step_size=0.1)
    z = run.state.x
    x = (z + 0.5 * run.problem.streams.normal("noise", (8, 2))).requires_grad_()
    log_mixture = (-(x.unsqueeze(2) - z.unsqueeze(1)).square().sum(-1) / (2 * 0.5**2)).logsumexp(-1)
    (of_mixture,) = torch.autograd.grad(log_mixture.sum(), x)
    expected = z + 0.1 * (Bent().score(x).detach() - of_mixture)
    torch.testing.assert_close(run.steps(1).state.x, expected, rtol=1e-10, atol=1e-11)


def test_sifg_takes_particles_in_turn() -> None:
    samples = Run("sifg", make_problem(Bent()), sigma=1e-9).steps(1)
    torch.testing.assert_close(samples.output(19), samples.state.x.repeat(1, 3, 1)[:, :19], rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["sifg", "ada-sifg"])
def test_with_the_exact_score_a_gaussian_is_sampled(name: str) -> None:
    """Perturbed output N(0, 1) whatever sigma does; SIFG's carried particles N(0, 1 - sigma^2).

    Standard error 0.5%, bias of 50 particles about 1%. Catches an output without perturbation and a forgotten
    mixture score (0.25).
    """
    problem = make_problem(Gaussian([1.0]), range(10), particles=50)
    settings = {"sigma_step_size": 0.02} if name == "ada-sifg" else {}
    run = Run(name, problem, score="exact", sigma=0.5, step_size=0.05, **settings).steps(150)
    outputs, carried = [], []
    for _ in range(60):
        outputs.append(run.steps(1).output(50).var(1))
        carried.append(run.state.x.var(1))
    assert torch.stack(outputs).mean().item() == pytest.approx(1.0, abs=0.04)
    if name == "sifg":
        assert torch.stack(carried).mean().item() == pytest.approx(0.75, abs=0.04)
    else:
        assert (run.state.sigma - 0.5).abs().max() > 0.02
        run.state = run.state._replace(sigma=run.state.sigma * 100)
        assert run.output(50).std() > 20


# --- L2-GF and Ada-GWG -------------------------------------------------------------------------------


def test_exponent_gradient_equals_autograd_at_fixed_residual() -> None:
    """One velocity is exactly zero. Catches (p - 1)^2 for p (p - 1), and 0 log 0 = nan."""
    f, p = points(2, 5, 3), torch.tensor([2.5, 1.7], dtype=torch.float64).view(2, 1, 1).requires_grad_()
    f[0, 0, 0] = 0
    r = f.abs().pow(p.detach() - 1)
    nonzero = r > 0
    powers = torch.where(nonzero, torch.where(nonzero, r, 1.0).pow(p / (p - 1)), 0.0)
    objective = (powers.sum(-1, keepdim=True).mean(1, keepdim=True) / p).sum()
    (expected,) = torch.autograd.grad(objective, p)
    torch.testing.assert_close(ada_gwg.exponent_gradient(f, p.detach()), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["l2-gf", "ada-gwg"])
def test_effective_step_is_the_factor_of_the_velocity(name: str) -> None:
    """The SIFG paper's scripts: 0.1 over 1000 particles is 1e-4. Catches a divisor that is not reported."""
    run = Run(name, make_problem(Bent()), step_size=0.1, velocity_divisor=1000.0)
    factor = run.algorithm.effective_step(run.settings)
    assert factor == pytest.approx(1e-4)
    start = run.state.x
    run.steps(1)
    velocity = run.settings.network(2).forward(run.state.flow.network, start)[-1]  # type: ignore[attr-defined]
    torch.testing.assert_close(run.state.x, start + factor * velocity, rtol=1e-12, atol=1e-12)
    assert run.algorithm.effective_step(run.algorithm.make_settings({"particle_rule": "rms"})) is None


# --- MIED and KSDD -----------------------------------------------------------------------------------


def mied_by_broadcast(settings: mied.Settings, target: Bent, x: Tensor) -> Tensor:
    """log E of one replicate from explicit differences."""
    n, dim = x.shape
    d = (x.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1)
    off = ~torch.eye(n, dtype=torch.bool)
    if settings.mollifier == "riesz":
        nearest = torch.where(off, d, torch.inf).min(1).values / (1.3 * dim) ** (2 / dim)
        d = torch.where(off, d, nearest.detach().unsqueeze(1))
        log_phi = -(settings.alpha * dim + 5e-5) * (d + 1e-8).log()
    elif settings.mollifier == "gaussian":
        log_phi = -d / (2 * settings.width)
    else:
        log_phi = -(d + 1e-10).sqrt() / settings.width
    log_p = target.log_density(x.unsqueeze(0))[0]
    return (log_phi - settings.alpha * (log_p.unsqueeze(1) + log_p)).flatten().logsumexp(0)


@pytest.mark.parametrize("mollifier", ["riesz", "gaussian", "laplace"])
@pytest.mark.parametrize("alpha", [0.5, 0.8])
def test_mied_gradient_equals_autograd_of_the_energy(mollifier: str, alpha: float) -> None:
    """Catches pairs counted once, a gradient through the diagonal, and s / 2 for s."""
    settings = mied.Settings.model_validate({"mollifier": mollifier, "alpha": alpha, "width": 0.6})
    x, target = points(2, 7, 2), Bent()
    value, grad = mied.log_energy(settings, x, target.log_density(x), target.score(x))
    for r in range(2):
        leaf = x[r].clone().requires_grad_()
        expected = mied_by_broadcast(settings, target, leaf)
        torch.testing.assert_close(value[r], expected.detach(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(grad[r], torch.autograd.grad(expected, leaf)[0], rtol=1e-8, atol=1e-10)


def test_mied_gradient_survives_single_precision_far_from_the_origin() -> None:
    """A shaken grid about (300, 300). Catches differences without centring (0.003)."""
    settings, target = mied.Settings(), Gaussian([1.0, 1.0], mean=300.0)
    ticks = torch.linspace(-2, 2, 30, dtype=torch.float64)
    x = (300 + torch.cartesian_prod(ticks, ticks) + 0.02 * points(900, 2)).float().unsqueeze(0)
    exact, rounded = (
        mied.log_energy(settings, x.to(t), target.log_density(x.to(t)), target.score(x.to(t)))[1]
        for t in (torch.float64, torch.float32)
    )
    assert (rounded - exact).norm() < 1e-3 * exact.norm()


def ksdd_by_autograd(settings: ksdd.Settings, target: Bent, x: Tensor) -> Tensor:
    """E of one replicate, the Stein kernel differentiated by autograd pair by pair."""
    with torch.no_grad():
        pairs = (x.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1)
    h = median_bandwidth(pairs[None]).item() if settings.bandwidth == "median" else settings.bandwidth
    scores = target.score(x.unsqueeze(0))[0]
    total = torch.zeros((), dtype=x.dtype)
    for i in range(len(x)):
        for j in range(len(x)):
            a, b = x[i], x[j]
            b = b.clone() if i == j else b  # two arguments of k, one point
            d = (a - b).square().sum()
            k = torch.exp(-d / h) if settings.kernel == "gaussian" else (1 + d / h) ** -0.5
            grad_a, grad_b = torch.autograd.grad(k, (a, b), create_graph=True)
            mixed = sum(torch.autograd.grad(grad_a[m], b, create_graph=True)[0][m] for m in range(2))
            total = total + k * (scores[i] @ scores[j]) + scores[i] @ grad_b + scores[j] @ grad_a + mixed
    return total / len(x) ** 2


@pytest.mark.parametrize("kernel", ["gaussian", "imq"])
@pytest.mark.parametrize("bandwidth", [1.3, "median"])
def test_ksdd_gradient_equals_autograd_of_the_discrepancy(kernel: str, bandwidth: float | str) -> None:
    """Catches a lost Hessian-vector product, a wrong third derivative, and the trace's dimension."""
    run = Run("ksdd", make_problem(Bent(), [0, 1], particles=5), kernel=kernel, bandwidth=bandwidth)
    x, settings, target = run.state.x, run.settings, Bent()
    value, _, _ = ksdd.discrepancy(settings, x, target.score(x))
    run.steps(1)
    for r in range(2):
        leaf = x[r].clone().requires_grad_()
        expected = ksdd_by_autograd(settings, target, leaf)
        torch.testing.assert_close(value[r], expected.detach(), rtol=1e-10, atol=1e-10)
        (grad,) = torch.autograd.grad(expected, leaf)
        # Adam's first moment after one step is a tenth of the gradient
        torch.testing.assert_close(10 * run.state.moments.first[r], grad, rtol=1e-8, atol=1e-10)


def test_confined_particles_descend_the_discrepancy_in_the_unbounded_coordinates() -> None:
    """x = tanh(y): Adam's first moment is a tenth of the gradient in y; they start in the inner half of the box."""
    run = Run("ksdd", make_problem(Bent(), [0, 1], particles=5), confined=True, bandwidth=1.3, step_size=0.3)
    x, target = run.state.x, Bent()
    assert (x.abs() < 0.5).all()
    assert (x[0] - x[1]).abs().min() > 0
    run.steps(1)
    for r in range(2):
        leaf = x[r].atanh().requires_grad_()
        (grad,) = torch.autograd.grad(ksdd_by_autograd(run.settings, target, leaf.tanh()), leaf)
        torch.testing.assert_close(10 * run.state.moments.first[r], grad, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(run.state.x[r].atanh(), leaf.detach() - 0.3 * grad.sign(), rtol=1e-5, atol=1e-5)
    run.steps(200)
    assert (run.state.x.abs() < 1).all()


def test_confined_particles_survive_at_the_edge_of_the_box() -> None:
    """In single precision x may round to 1, where y is infinite."""
    run = Run("ksdd", make_problem(Gaussian([30.0, 30.0]), [0], particles=5), confined=True, step_size=3.0)
    run.state = run.state._replace(x=torch.ones(1, 5, 2), moments=Moments.start(torch.ones(1, 5, 2)))
    run.steps(5)
    assert run.state.x.isfinite().all()
