"""SIVI, SIVI-SM, UIVI and variational families; the bug that a test was seen to catch stands in its docstring."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from plain_programs import flattened
from pyro.distributions.transforms import AffineAutoregressive
from pyro.distributions.transforms.affine_autoregressive import clamp_preserve_gradients
from pyro.nn import AutoRegressiveNN
from sampler_toys import Bent, Gaussian, Regression, Run, make_problem, points
from semi_implicit_programs import (
    ACTIVATION,
    PROGRAM,
    Critic,
    by_autograd,
    fitted_first,
    noise_of,
    sampler_parameters,
    z_scores,
)
from torch import Tensor, nn

from parvibench.baselines import full_rank, iaf, sivi, sivi_sm, uivi
from parvibench.core.registry import load_algorithm
from parvibench.core.target import Target
from parvibench.nn.mlp import LEAK, MLP

# --- SIVI --------------------------------------------------------------------------------------------


@ACTIVATION
@pytest.mark.parametrize("mixing", [1, 4])
def test_sivi_gradient_equals_autograd_of_the_surrogate(activation: str, mixing: int) -> None:
    """log p enters through its score at x. Catches a lost direct path of mu or sigma, and K for K + 1."""
    settings = sivi.Settings.model_validate({"hidden": 5, "activation": activation, "mixing": mixing})
    target, net, parameters = Bent(), settings.network(2), sampler_parameters(settings)
    z, xi = points(2, 6 + mixing, 3, seed=2), points(2, 6, 2, seed=3)
    actual = sivi.surrogate_gradient(make_problem(target, [0, 1]), settings, parameters, z, xi, 0.3)

    leaf = parameters.clone().requires_grad_()
    sigma = (0.5 * leaf[:, None, -2:]).exp()
    mu = torch.stack([functional_mlp(net, row, z[r]) for r, row in enumerate(leaf[:, :-2])])
    x = mu[:, :6] + sigma * xi
    centres = torch.cat((mu[:, :6].unsqueeze(2), mu[:, None, 6:].expand(-1, 6, -1, -1)), 2)
    log_q = -0.5 * ((x.unsqueeze(2) - centres) / sigma.unsqueeze(2)).square() - sigma.log().unsqueeze(2)
    log_h = log_q.sum(-1).logsumexp(2) - math.log(mixing + 1)
    loss = log_h.mean(1) - 0.3 * (target.score(x.detach()) * x).sum(-1).mean(1)
    (expected,) = torch.autograd.grad(loss.sum(), leaf)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


def functional_mlp(net: MLP, flat: Tensor, x: Tensor) -> Tensor:
    """The network written out, for autograd in its parameters (P,)."""
    activate = {"relu": torch.relu, "tanh": torch.tanh, "leaky-relu": lambda v: nn.functional.leaky_relu(v, LEAK)}
    for n_in, n_out in pairwise(net.sizes):
        weight, bias, flat = flat.split([n_in * n_out, n_out, len(flat) - (n_in + 1) * n_out])
        x = x @ weight.view(n_in, n_out) + bias
        x = activate[net.activation](x) if len(flat) else x
    return x


# --- SIVI-SM -----------------------------------------------------------------------------------------


@ACTIVATION
@pytest.mark.parametrize("psi", [0.0, 1.0, 0.6])
def test_sivi_sm_gradients_equal_autograd_of_the_objective(activation: str, psi: float) -> None:
    """Catches the path through s, through f or through xi / sigma left out, s in g, and the sign of f's step."""
    settings = sivi_sm.Settings.model_validate({"hidden": 5, "critic_hidden": 4, "batch": 6, "activation": activation})
    target, problem, shape = Bent(), make_problem(Bent(), [0, 1]), MLP((2, 4, 4, 2), "relu")
    parameters, critics = sampler_parameters(settings), 0.7 * points(2, shape.n_parameters, seed=4)
    z, xi = points(2, 6, 3, seed=2), points(2, 6, 2, seed=3)
    with torch.no_grad():
        given = (problem, settings, parameters, critics, (z, xi), 0.3, psi)
        actual, by_critic = sivi_sm.sampler_gradient(*given), sivi_sm.critic_gradient(*given)

    def loss(r: int, x: Tensor, noise: Tensor) -> Tensor:
        critic = Critic(settings, shape, critics[r])
        value = critic.objective(x, 0.3 * target.score(x[None])[0], noise, psi)
        found = torch.autograd.grad(value, list(critic.network.parameters()), retain_graph=True)
        torch.testing.assert_close(-by_critic[r], flattened(found), rtol=1e-9, atol=1e-10)
        return value

    expected = by_autograd(settings, parameters, z, xi, loss)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "more",
    [
        {"critic_pretraining": 3, "critic_pretraining_rate": 0.02, "critic_beta2": 0.9},
        {"psi": 0.9, "psi_decay": 0.5, "critic_steps": 2, "pretraining": 0, "annealing": 0},
    ],
    ids=["network", "psi"],
)
def test_sivi_sm_follows_the_program_step_by_step(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of three iterations. Catches memories of the pre-training, psi or schedules off by one."""
    monkeypatch.setattr(sivi_sm, "_EPOCH", 3)
    target = Regression()
    run = Run("sivi-sm", make_problem(target, [0], batch_size=5), **{**PROGRAM, "critic_hidden": 4, **more})
    settings, shape = run.settings, MLP((3, 4, 4, 3), "relu")
    critic = Critic(settings, shape, run.state.critic[0])
    sampler = fitted_first(run, settings, run.state.sampler.parameters[0])

    def score(x: Tensor) -> Tensor:
        return target.score(x[None], run.problem._batch())[0]

    critic.start(settings.critic_pretraining_rate)
    for _ in range(settings.critic_pretraining):
        run.problem.streams.step = run.iteration
        critic.fit(sampler, score, *noise_of(run, 1, 1), 1.0, settings.psi)
        run.steps(1)
    critic.start(settings.critic_learning_rate)
    schedule = torch.optim.lr_scheduler.StepLR(critic.optimiser, settings.decay_every, settings.decay)
    for t in range(8):
        run.problem.streams.step = run.iteration
        temper, psi = sampler.temper(), settings.psi * settings.psi_decay ** (t // 3)
        x, noise = sampler.draw(*noise_of(run, 1))
        sampler.descend(critic.objective(x, temper * score(x), noise, psi))
        for j in range(settings.critic_steps):
            critic.fit(sampler, score, *noise_of(run, 1, j + 1), temper, psi)
        schedule.step()
        run.steps(1)
    torch.testing.assert_close(run.state.sampler.parameters[0], sampler.flat(), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(
        run.state.critic[0], flattened(critic.network.parameters()).detach(), rtol=1e-6, atol=1e-8
    )


# --- UIVI --------------------------------------------------------------------------------------------


def bent_case(replicates: int, n: int) -> tuple[MLP, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x = mu(z) + sigma xi with mu bent: network, its parameters, z, x, sigma and the exact grad log q(x)."""
    net = MLP((1, 2, 1), "tanh")
    network = torch.tensor([[2.0, -1.0, 1.0, 0.5, 1.5, -1.0, 0.3]], dtype=torch.float64)
    sigma = torch.full((1, 1, 1), 0.5, dtype=torch.float64)
    z = points(replicates, n, 1, seed=11)
    x = net.forward(network.expand(replicates, -1), z)[-1] + sigma * points(replicates, n, 1, seed=12)

    grid = torch.linspace(-7, 7, 1401, dtype=torch.float64).view(1, -1, 1)
    mu = net.forward(network, grid)[-1].flatten()
    pull = mu - x.reshape(-1, 1)
    share = torch.softmax(-pull.square() / (2 * sigma.item() ** 2) - grid.flatten().square() / 2, 1)
    exact = (share * pull).sum(1).view_as(x) / sigma.item() ** 2
    return net, network.expand(replicates, -1), z, x, sigma, exact


@pytest.mark.ci
def test_uivi_estimates_the_score_of_the_mixture_without_bias() -> None:
    """Leapfrog step fixed and coarse, grad log q by quadrature: errors have mean zero, whatever x.

    10,000 samples, three statistics |z| < 5: false alarm 2e-6. Catches no acceptance step, a chain started at
    z = 0, a lost half kick, and the prior of z left out.
    """
    settings = uivi.Settings(warmup=2, kept=2, leapfrog_steps=3, adaptation=0.0)
    net, network, z, x, sigma, exact = bent_case(40, 250)
    streams = make_problem(Gaussian([1.0]), range(40)).streams
    step = torch.full((40, 1, 1), 0.5, dtype=torch.float64)
    estimate, after = uivi.mixture_score(net, network, settings, x, sigma, z, step, streams)
    error = (estimate - exact).view(-1, 1)
    at = x.view(-1, 1)
    scores = z_scores(torch.cat((error, error * at, error * at.square()), 1), 0.0)
    assert (scores.abs() < 5).all(), scores
    assert torch.equal(after, step)


def test_uivi_adapts_its_step_to_the_rate_of_acceptance() -> None:
    """Small steps are accepted more often than 0.9 and grow, large ones shrink."""
    net, network, z, x, sigma, _ = bent_case(3, 50)
    streams = make_problem(Gaussian([1.0, 1.0])).streams
    for size, sign in ((0.2, 1), (4.0, -1)):
        step = torch.full((3, 1, 1), size, dtype=torch.float64)
        settings = uivi.Settings(warmup=5, kept=5)
        _, after = uivi.mixture_score(net, network, settings, x, sigma, z, step, streams)
        assert (sign * (after - step) > 0).all()


@ACTIVATION
def test_uivi_gradient_goes_back_through_the_samples(activation: str) -> None:
    """(grad log q - s) held fixed, along dx. Catches a lost path of sigma, a sign, and 1 / n."""
    settings = {"hidden": 5, "batch": 6, "activation": activation, "annealing": 3, "adaptation": 0.0}
    run = Run("uivi", make_problem(Bent(), [0, 1]), **settings)
    parameters = sampler_parameters(run.settings)
    sampler = run.state.sampler._replace(parameters=parameters)
    run.state = run.state._replace(sampler=sampler)
    step = run.state.leapfrog_step
    found = run.steps(1).state.sampler.first * 10
    streams = run.problem.streams
    z, xi = streams.normal("algorithm", (6, 3)), streams.normal("noise", (6, 2))
    sigma, net = (0.5 * parameters[:, None, -2:]).exp(), run.settings.network(2)
    x = net.forward(parameters[:, :-2], z)[-1] + sigma * xi
    q_score, _ = uivi.mixture_score(net, parameters[:, :-2], run.settings, x, sigma, z, step, streams)
    slope = q_score - (0.1 + 1 / 3) * Bent().score(x)
    expected = by_autograd(run.settings, parameters, z, xi, lambda r, x, _: (slope[r] * x).sum(-1).mean())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


# --- Gaussian families and flows ---------------------------------------------------------------------


def gradient_of(name: str, target: Target, parameters: Tensor, noise: Tensor, **settings: Any) -> Tensor:
    """A family's gradient of the negative bound."""
    algorithm: Any = load_algorithm(name)
    problem = make_problem(target, [0, 1])
    return algorithm.gradient(problem, algorithm.make_settings(settings), parameters, noise)


@pytest.mark.parametrize("name", ["mean-field", "full-rank"])
def test_gaussian_gradients_equal_autograd_of_the_bound(name: str) -> None:
    """Catches a lost entropy, eps for sd eps, the transpose of L, and a diagonal without its factor."""
    target, parameters = Bent(), 0.5 * points(2, 4 if name == "mean-field" else 6)
    eps, leaf = points(2, 7, 2, seed=1), parameters.clone().requires_grad_()
    if name == "mean-field":
        m, log_sd = leaf.unsqueeze(1).chunk(2, 2)
        x, log_det = m + log_sd.exp() * eps, log_sd.sum()
    else:
        m, scale = full_rank.location_and_scale(leaf, 2)
        x, log_det = m + eps @ scale.mT, leaf[:, 2:].view(-1, 2, 2).diagonal(dim1=1, dim2=2).sum()
    (expected,) = torch.autograd.grad(-target.log_density(x).mean(1).sum() - log_det, leaf)
    torch.testing.assert_close(gradient_of(name, target, parameters, eps), expected, rtol=1e-10, atol=1e-11)


def test_a_flow_equals_pyros() -> None:
    """Value and log-Jacobian. Catches shift and scale exchanged, and masks of the wrong layer."""
    settings = iaf.Settings(flows=1, hidden=7)
    net, mask = iaf.masked_network(3, 7, torch.device("cpu"), torch.float64)
    network, noise = 2 * points(2, net.n_parameters) * mask, points(2, 5, 3, seed=1)
    _, y, (flow,) = iaf.IAF().through(settings, torch.cat((network, points(2, 6)), 1), noise)
    for r in range(2):
        made = AutoRegressiveNN(3, [7], permutation=torch.arange(3)).double()
        w1, b1, w2, b2 = network[r].split([21, 7, 42, 6])
        for layer, weight, bias in zip(made.layers, (w1.view(3, 7), w2.view(7, 6)), (b1, b2), strict=True):
            layer.weight.data, layer.bias.data = weight.T.clone(), bias.clone()
        twin = AffineAutoregressive(made)
        expected = twin(noise[r])
        torch.testing.assert_close(y[r], expected.detach(), rtol=1e-10, atol=1e-10)
        log_det = twin.log_abs_det_jacobian(noise[r], expected).detach()
        torch.testing.assert_close(flow.a[r].sum(-1), log_det, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("flows", "hidden", "size"), [(1, 5, 0.5), (2, 2, 0.5), (3, 7, 0.5), (2, 5, 4.0)])
def test_iaf_density_has_a_triangular_jacobian_and_its_gradient_equals_autograd(
    flows: int, hidden: int, size: float
) -> None:
    """The largest parameters reach the cut of a, which lets the gradient pass as Pyro's does.

    Catches the order not turned back, the Jacobian's 1/n, gradients of masked weights and a stopped gradient.
    """
    settings, target = iaf.Settings(flows=flows, hidden=hidden), Bent()
    net, mask = iaf.masked_network(2, hidden, torch.device("cpu"), torch.float64)
    raw = torch.cat((points(2, flows * net.n_parameters) * mask.repeat(flows), points(2, 4, seed=1)), 1)
    parameters, noise = size * raw, points(2, 6, 2, seed=2)
    parameters[:, -2:] = 0.3 - 0.7 * size  # keeps samples near the target
    x, _, parts = iaf.IAF().through(settings, parameters, noise)
    log_det = sum(flow.a.sum(-1) for flow in parts) + parameters[:, None, -2:].sum(-1)
    reached = torch.cat([flow.a for flow in parts], 2)
    assert ((reached == 3).any() and (reached == -5).any()) == (size == 4)

    leaf = parameters.clone().requires_grad_()
    y, total, kept = noise, leaf[:, None, -2:].sum(-1), mask.repeat(flows)
    for t, network in enumerate((leaf[:, :-4] * kept).chunk(flows, 1)):
        y = y.flip(2) if t else y
        values = torch.stack([functional_mlp(net, row, y[r]) for r, row in enumerate(network)])
        b, a = values.chunk(2, 2)
        a = clamp_preserve_gradients(a, -5.0, 3.0)
        y, total = a.exp() * y + b, total + a.sum(-1)
    at = leaf[:, None, -4:-2] + leaf[:, None, -2:].exp() * y
    torch.testing.assert_close(at.detach(), x)
    (expected,) = torch.autograd.grad(-(target.log_density(at) + total).mean(1).sum(), leaf)
    actual = gradient_of("iaf", target, parameters, noise, flows=flows, hidden=hidden)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10 * expected.abs().max().item())

    jacobian = torch.autograd.functional.jacobian(
        lambda at: iaf.IAF().through(settings, parameters[:1], at.view(1, 1, 2))[0].flatten(), noise[0, 0]
    )
    if size < 1:
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], log_det[0, 0])
