"""Functional-gradient flows and interaction-energy methods: gradients, identities and fixed points.

Every |z| < 5 raises a false alarm with probability 6e-7; seeds are fixed. The bug that each test was seen to
catch stands in its docstring.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sampler_toys import Bent, Gaussian, Run, Skewed, make_problem, points, settled
from torch import Tensor

from parvibench.baselines import ada_gwg, ada_sifg, ksdd, l2_gf, mied, svgd
from parvibench.kernels.gram import median_bandwidth
from parvibench.kernels.mixture import mixture_score
from parvibench.nn.mlp import MLP, Activation


def small_net(activation: Activation, dim: int = 3) -> tuple[MLP, Tensor]:
    net = MLP((dim, 5, 4, dim), activation)
    return net, points(2, net.n_parameters, seed=9)


# --- SIFG and Ada-SIFG -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sifg", "ada-sifg"])
def test_score_of_coinciding_particles_is_learnt(name: str) -> None:
    """All z at m: the optimum is f(x) = -(x - m) / sigma^2, relative square error below 0.05.

    Catches the minus sign of the paper's Eq. 3.8 (error 4) and w / sigma^2 for w / sigma (error 1).
    """
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
    """Expectation over the noise by Gauss-Hermite quadrature.

    Catches the factors sigma and 1/2, and the opposite sign.
    """
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


def test_ada_sifg_grows_or_shrinks_sigma_towards_the_target_and_stops_at_its_bounds() -> None:
    """One particle at the mode of N(0, 1): sigma moves by eta_s (1/sigma - sigma) on average.

    Catches the ascent of the divergence, and bounds left out.
    """
    for sigma, sign in ((0.5, 1), (1.5, -1)):
        run = Run(
            "ada-sifg", make_problem(Gaussian([1.0]), particles=1000), score="exact", sigma=sigma, sigma_max=2.0, sigma_step_size=0.01, step_size=1e-9,
        )  # fmt: skip
        run.state = run.state._replace(x=torch.zeros_like(run.state.x))
        run.steps(1)
        change = run.state.sigma.flatten() - sigma
        # the increment's sd is 0.01 |1/sigma - sigma| sqrt(2 / 1000): z = 22
        assert (change * sign > 0).all()
        expected = torch.full_like(change, 0.01 * (1 / sigma - sigma))
        torch.testing.assert_close(change, expected, rtol=5 * math.sqrt(2 / 1000), atol=0)
    run = Run("ada-sifg", make_problem(Gaussian([1.0])), sigma_step_size=1e6, sigma_min=0.01).steps(1)
    assert ((run.state.sigma == 0.01) | (run.state.sigma == 1.0)).all()


@pytest.mark.parametrize("activation", ["tanh", "leaky-relu"])
def test_the_codes_sigma_rule_is_the_gradient_of_its_loss(activation: Activation) -> None:
    """Catches a residual of w / sigma, and the path through x left out."""
    settings = ada_sifg.Settings(hidden=5, activation=activation)
    net = settings.network(3)
    network, z, w = points(2, net.n_parameters), points(2, 6, 3, seed=1), points(2, 6, 3, seed=2)
    sigma = torch.full((2, 1, 1), 0.7, dtype=torch.float64, requires_grad=True)
    loss = (net.forward(network, z + sigma * w)[-1] + w / sigma**2).square().sum(-1).mean(1).sum()
    (expected,) = torch.autograd.grad(loss, sigma)
    with torch.no_grad():
        actual = ada_sifg._code_gradient(settings, network, z + sigma * w, w, sigma)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-11)


def test_the_codes_sigma_rule_only_grows() -> None:
    """By about 4 D eta_s / sigma^5 while f is small; the divergence's gradient hardly moves at that rate."""
    changes = []
    for rule in ("dsm-code", "kl"):
        problem = make_problem(Gaussian([1.0] * 10), particles=1000)
        run = Run("ada-sifg", problem, sigma_rule=rule, sigma=0.1, sigma_step_size=1e-9).steps(1)
        changes.append((run.state.sigma - 0.1).abs().max().item())
    assert changes[0] == pytest.approx(4 * 10 * 1e-9 / 0.1**5, rel=0.1)
    assert changes[1] < 1e-3 * changes[0]


def test_ada_sifg_with_the_exact_score_samples_a_gaussian() -> None:
    """Perturbed output N(0, 1) whatever sigma does; standard error 0.5%, bias of 50 particles about 1%.

    Catches an output without perturbation (0.75).
    """
    problem = make_problem(Gaussian([1.0]), range(10), particles=50)
    run = Run("ada-sifg", problem, score="exact", sigma=0.5, step_size=0.05, sigma_step_size=0.02).steps(200)
    variances = torch.stack([run.steps(1).output(50).var(1) for _ in range(60)])
    assert variances.mean().item() == pytest.approx(1.0, abs=0.04)
    assert (run.state.sigma - 0.5).abs().max() > 0.02
    run.state = run.state._replace(sigma=run.state.sigma * 100)
    assert run.output(50).std() > 20


# --- L2-GF and Ada-GWG -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "relu", "leaky-relu"])
@pytest.mark.parametrize("p", [2.0, 3.0, 1.5])
def test_functional_gradients_equal_autograd_of_the_loss(activation: Activation, p: float) -> None:
    """Catches a lost curvature of tanh in the divergence, its sign, and p in place of p - 1."""
    net, network = small_net(activation)
    x, s, e = (points(2, 6, 3, seed=i) for i in range(3))
    leaf, at = network.clone().requires_grad_(), x.clone().requires_grad_()
    f = net.forward(leaf, at)[-1]
    (pulled,) = torch.autograd.grad((f * e).sum(), at, create_graph=True)
    loss = -(s * f).sum(-1) - (pulled * e).sum(-1) + f.abs().pow(p).sum(-1) / p
    (expected,) = torch.autograd.grad(loss.mean(1).sum(), leaf)
    exponent = torch.full((2, 1, 1), p, dtype=torch.float64)
    values, actual = ada_gwg.functional_gradient(net, network, x, s, e, exponent)
    torch.testing.assert_close(values, f.detach())
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)
    if p == 2:
        _, actual = l2_gf.functional_gradient(net, network, x, s, e)
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("settings", [{}, {"particle_rule": "rms", "net_optimiser": "adam"}])
def test_gwg_at_p_2_is_l2_gf(settings: dict[str, Any]) -> None:
    l2 = Run("l2-gf", make_problem(Bent()), **settings).steps(20)
    gwg = Run("ada-gwg", make_problem(Bent()), p=2.0, p_step_size=0.0, **settings).steps(20)
    torch.testing.assert_close(gwg.state.x, l2.state.x, rtol=1e-12, atol=1e-12)
    assert (l2.state.x - l2.problem.init()).abs().min() > 0


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


def test_exponent_climbs_within_its_bounds_per_replicate() -> None:
    run = Run("ada-gwg", make_problem(Bent()), p_step_size=0.05).steps(5)
    assert len(set(run.state.p.flatten().tolist())) == 3
    run = Run("ada-gwg", make_problem(Bent()), p_step_size=1e6, p_min=1.9, p_max=2.1).steps(5)
    assert ((run.state.p == 1.9) | (run.state.p == 2.1)).all()
    run = Run("ada-gwg", make_problem(Bent()), p_step_size=1.0, p_clip=1e-3).steps(1)
    assert ((run.state.p - 2).abs() <= 1e-3 + 1e-12).all()


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
    """A shaken grid of 900 particles about (300, 300): relative error below 1e-3.

    Catches differences without centring (0.003).
    """
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


@pytest.mark.parametrize(
    ("name", "settings"),
    [("mied", {"step_size": 0.02}), ("ksdd", {"step_size": 0.1}), ("ksdd", {"kernel": "imq", "step_size": 0.1})],
    ids=["mied", "ksdd", "ksdd-imq"],
)  # fmt: skip
def test_energies_settle_on_a_gaussian(name: str, settings: dict[str, Any]) -> None:
    """N(1, diag(1, 1/4)) from a start at 0: mean within 0.1, sd within 15%.

    Catches a score taken twice and particles without repulsion (MIED), its cross terms lost (KSDD).
    """
    problem = make_problem(Gaussian([1.0, 4.0], mean=1.0), particles=100)
    run = Run(name, problem, **settings).steps(500)
    settled(run.output())
    last = run.state.x
    assert (run.steps(1).state.x - last).abs().max() < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l2-gf", "ada-gwg"])
def test_functional_flows_reach_a_gaussian(name: str) -> None:
    """N(1, diag(1, 1/4)) from a start at 0, as above. Catches the sign of the divergence (sd 0)."""
    problem = make_problem(Gaussian([1.0, 4.0], mean=1.0), particles=200)
    settings = {"hidden": 16, "net_optimiser": "adam", "net_learning_rate": 0.003, "step_size": 0.05}
    settled(Run(name, problem, **settings).steps(300).output())


# --- SVGD --------------------------------------------------------------------------------------------


def test_svgd_direction_vanishes_on_average_at_the_target() -> None:
    """Stein identity: at a fixed point y, E[k(x, y) s(x) + grad_x k(x, y)] = 0 over exact draws x.

    |z| < 5 in both coordinates. Catches a repulsion of the wrong sign or scale, and exp(-D / 2h) against h.
    """
    n, replicates, h = 50, 2000, 1.5
    y = torch.tensor([0.7, 0.4], dtype=torch.float64)
    x = points(replicates, n, 2, seed=4) / torch.tensor([1.0, 2.0], dtype=torch.float64)
    x[:, 0] = y
    score = Gaussian([1.0, 4.0]).score(x)
    phi = svgd.stein_direction(x, score, h)[:, 0]
    others = (n * phi - score[:, 0]) / (n - 1)  # k(y, y) s(y) is no draw's
    z = others.mean(0) / (others.std(0) / math.sqrt(replicates))
    assert (z.abs() < 5).all(), z
