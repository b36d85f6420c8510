"""Semi-implicit samplers and variational families: gradients, unbiasedness, bounds, fixed points.

Every |z| < 5 raises a false alarm with probability 6e-7; seeds are fixed. The bug that each test was seen to
catch stands in its docstring.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from pyro.distributions.transforms import AffineAutoregressive
from pyro.nn import AutoRegressiveNN
from sampler_toys import Bent, Gaussian, Run, Skewed, make_problem
from torch import Tensor

from parvibench.baselines import full_rank, iaf, ksivi, mean_field, sivi, sivi_sm, uivi
from parvibench.core.target import Target
from parvibench.kernels.gram import median_bandwidth
from parvibench.nn.mlp import MLP


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def z_scores(values: Tensor, expected: Tensor | float) -> Tensor:
    """Standard errors between the means over the first axis and what they should be."""
    return (values.mean(0) - expected) / (values.std(0) / math.sqrt(len(values)))


class Correlated(Target):
    """N(0, inverse of [[2, 1], [1, 2]]): marginal variances 2/3, conditional variances 1/2."""

    dim = 2
    precision = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -0.5 * (x * (x @ self.precision.to(x))).sum(-1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -x @ self.precision.to(x)


# --- KSIVI -------------------------------------------------------------------------------------------


def kernel_value(kernel: str, a: Tensor, b: Tensor, h: Tensor | float) -> Tensor:
    """k(a_i, b_j) in broadcast form."""
    a, b = a.unsqueeze(-2), b.unsqueeze(-3)
    if kernel == "riesz":
        return (a.abs() + b.abs() - (a - b).abs()).sum(-1) / h
    if kernel == "laplace":
        return torch.exp(-(a - b).abs().sum(-1) / h)
    d = (a - b).square().sum(-1)
    return torch.exp(-d / h) if kernel == "gaussian" else (1 + d / h) ** -0.5


def spread(kernel: str, a: Tensor, b: Tensor) -> Tensor:
    """What the kernel's median is taken of."""
    return kernel_value(kernel, a, b, 1.0) if kernel == "riesz" else (
        (a.unsqueeze(-2) - b.unsqueeze(-3)).abs().sum(-1)
        if kernel == "laplace"
        else (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1)
    )  # fmt: skip


@pytest.mark.parametrize("kernel", ["gaussian", "imq", "riesz", "laplace"])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("bandwidth", ["median", 0.8])
def test_ksivi_gradients_equal_autograd_of_the_loss(
    kernel: str, batches: int, bandwidth: str | float
) -> None:
    """With the term of log p. Catches a kept diagonal, M^2 for M (M - 1), and either half of it missing."""
    settings = ksivi.Settings.model_validate({"kernel": kernel, "hidden": 5, "bandwidth": bandwidth})
    target, net = Bent(), settings.network(2)
    parameters = torch.cat((net.initialise(points(2, net.n_parameters).abs()), points(2, 2, seed=1)), 1)
    z, xi = points(2, 6 * batches, 3, seed=2), points(2, 6 * batches, 2, seed=3)
    with torch.no_grad():
        actual = ksivi.discrepancy_gradient(
            make_problem(target, [0, 1]), settings, parameters, z, xi, 0.3, 0.7, batches
        )

    leaf = parameters.clone().requires_grad_()
    sigma = (0.5 * leaf[:, None, -2:]).exp()
    x = net.forward(leaf[:, :-2], z)[-1] + sigma * xi
    f = 0.3 * target.score(x) + xi / sigma
    (x1, x2), (f1, f2) = (x.chunk(2, 1), f.chunk(2, 1)) if batches == 2 else ((x, x), (f, f))
    h = median_bandwidth(spread(kernel, x1, x2).detach()) if bandwidth == "median" else bandwidth
    terms = kernel_value(kernel, x1, x2, h) * (f1 @ f2.mT)
    if batches == 2:
        loss = terms.mean((1, 2))
    else:
        loss = (terms.sum((1, 2)) - terms.diagonal(dim1=1, dim2=2).sum(1)) / 30
    loss = loss - 0.7 * 0.3 * target.log_density(x).mean(1)
    (expected,) = torch.autograd.grad(loss.sum(), leaf)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("batches", [1, 2], ids=["u-statistic", "vanilla"])
def test_ksivi_estimators_are_unbiased_for_the_gradient_of_the_discrepancy(batches: int) -> None:
    """One dimension, bandwidth fixed: Monte Carlo over 20,000 batches of 6 against Gauss-Hermite quadrature.

    |z| < 5 in all 15 parameters: false alarm 9e-6. Catches a kept diagonal and M^2 for M (M - 1).
    """
    settings = ksivi.Settings(latent_dim=1, hidden=2, activation="tanh", bandwidth=1.5, batch=6)
    target, net = Skewed(), settings.network(1)
    parameters = torch.cat((points(1, net.n_parameters, seed=5), torch.full((1, 1), -0.4)), 1).double()

    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(24))
    weights = weights / weights.sum()
    z, xi = (a.reshape(1, -1, 1) for a in torch.meshgrid(nodes, nodes, indexing="ij"))
    leaf = parameters.clone().requires_grad_()
    sigma = (0.5 * leaf[:, None, -1:]).exp()
    x = net.forward(leaf[:, :-1], z)[-1] + sigma * xi
    f = target.score(x) + xi / sigma
    w = torch.outer(weights, weights).flatten()
    discrepancy = w @ (kernel_value("gaussian", x, x, 1.5)[0] * (f[0] @ f[0].T)) @ w
    (expected,) = torch.autograd.grad(discrepancy, leaf)

    replicates = 20_000
    problem = make_problem(target, range(replicates))
    z, xi = points(replicates, 6 * batches, 1, seed=6), points(replicates, 6 * batches, 1, seed=7)
    with torch.no_grad():
        gradients = ksivi.discrepancy_gradient(
            problem, settings, parameters.expand(replicates, -1), z, xi, 1.0, 0.0, batches
        )
    scores = z_scores(gradients, expected[0])
    assert (scores.abs() < 5).all(), scores


def test_u_statistic_needs_half_the_scores() -> None:
    vanilla, u = (Run(name, make_problem(Bent())).steps(3) for name in ("ksivi", "ksivi-ustat"))
    assert vanilla.problem.meter.charged == 2 * u.problem.meter.charged


def test_regularisation_ends_when_told() -> None:
    """Half of a horizon of 4. Catches a weight that never ends."""
    plain, regularised = (
        Run("ksivi", make_problem(Bent()), 4, regularisation=w, regularisation_until=0.5) for w in (0.0, 5.0)
    )
    plain.steps(2)
    regularised.steps(2)
    assert not torch.equal(plain.state.parameters, regularised.state.parameters)
    regularised.state = plain.state
    assert torch.equal(plain.steps(1).state.parameters, regularised.steps(1).state.parameters)


def test_samples_come_from_the_averaged_parameters() -> None:
    """Decay 0.9 over three steps by hand. Catches 0.9 and 0.1 exchanged, and output from the last ones."""
    run = Run("ksivi", make_problem(Bent()), ema=0.9)
    expected = run.state.parameters
    for _ in range(3):
        run.steps(1)
        expected = 0.9 * expected + 0.1 * run.state.parameters
    torch.testing.assert_close(run.state.average, expected, rtol=1e-12, atol=1e-12)
    averaged = run.output()
    run.state = run.state._replace(parameters=expected)
    assert torch.equal(run.output(), averaged)
    run.state = run.state._replace(average=run.state.average + 1)
    assert not torch.equal(run.output(), averaged)


def test_log_variance_has_its_own_rate_and_clipping_is_per_replicate() -> None:
    """Adam's first move is the rate. Catches a factor on the network, and one norm for all replicates."""
    run = Run("ksivi", make_problem(Bent()), step_size=0.01, log_var_rate=0.1)
    start = run.state.parameters
    move = (run.steps(1).state.parameters - start).abs()
    torch.testing.assert_close(move[:, -2:], torch.full_like(move[:, -2:], 1e-3), rtol=1e-3, atol=0)
    assert move[:, :-2].max().item() == pytest.approx(0.01, rel=1e-3)
    clipped = Run("ksivi", make_problem(Bent()), clip_norm=1e-3).steps(1).state.first.norm(dim=1)
    torch.testing.assert_close(clipped, torch.full_like(clipped, 1e-4))


# --- SIVI --------------------------------------------------------------------------------------------


def test_sivi_gradient_equals_autograd_of_the_surrogate() -> None:
    """log p enters through its score at x. Catches a lost direct path of mu or sigma, and K for K + 1."""
    settings, target = sivi.Settings(hidden=5), Bent()
    net = settings.network(2)
    parameters = torch.cat((net.initialise(points(2, net.n_parameters).abs()), points(2, 2, seed=1)), 1)
    z, xi = points(2, 6 + 4, 3, seed=2), points(2, 6, 2, seed=3)
    actual = sivi.surrogate_gradient(make_problem(target, [0, 1]), settings, parameters, z, xi, 0.3)

    leaf = parameters.clone().requires_grad_()
    sigma = (0.5 * leaf[:, None, -2:]).exp()
    mu = net.forward(leaf[:, :-2], z)[-1]
    x = mu[:, :6] + sigma * xi
    centres = torch.cat((mu[:, :6].unsqueeze(2), mu[:, None, 6:].expand(-1, 6, -1, -1)), 2)
    log_q = -0.5 * ((x.unsqueeze(2) - centres) / sigma.unsqueeze(2)).square() - sigma.log().unsqueeze(2)
    log_h = log_q.sum(-1).logsumexp(2) - math.log(5)
    loss = log_h.mean(1) - 0.3 * (target.score(x.detach()) * x).sum(-1).mean(1)
    (expected,) = torch.autograd.grad(loss.sum(), leaf)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)
    _, _, value = sivi.responsibilities(x, xi, mu[:, 6:], sigma)
    torch.testing.assert_close(value, log_h)


def test_sivi_surrogate_grows_with_k_to_the_exact_bound() -> None:
    """x = z + xi / 2 against N(0, 1): q is N(0, 5/4), and -KL(q || p) = -(5/4 - 1 - log 5/4) / 2.

    2000 independent batches; each difference is 5 standard errors or more. Catches a mixture without the
    sample's own draw (above the bound) and 1/K for 1/(K+1) (at K = 1 below K = 0).
    """
    replicates, n, sigma = 2000, 20, 0.5
    z, xi, mu = (
        points(replicates, n, 1),
        points(replicates, n, 1, seed=1),
        points(replicates, 1000, 1, seed=2),
    )
    x = z + sigma * xi
    log_p = -0.5 * x.square().squeeze(-1)  # without -log(2 pi) / 2, as log h
    bounds = {}
    for k in (1, 4, 20, 1000):
        _, _, log_h = sivi.responsibilities(x, xi, mu[:, :k], torch.full((1, 1, 1), sigma).double())
        bounds[k] = (log_p - log_h).mean(1)
    exact = -0.5 * (1.25 - 1 - math.log(1.25))
    for small, large in ((1, 4), (4, 20), (20, 1000)):
        assert z_scores(bounds[large] - bounds[small], 0.0) > 5
    conditional = -0.5 * 1.25 + 0.5 + math.log(sigma)  # K = 0: the density of x given its own z
    assert z_scores(bounds[1], conditional) > 5
    assert z_scores(bounds[20], exact) < -5
    # the gap is about E[h-variance] / (2 K), below 0.002 here
    assert bounds[1000].mean().item() == pytest.approx(exact, abs=0.002 + 5 * bounds[1000].std().item() / 44)


# --- SIVI-SM -----------------------------------------------------------------------------------------


def test_sivi_sm_gradients_equal_autograd_of_the_objective() -> None:
    """Catches the path through s, through f or through xi / sigma left out, and the sign of f's step."""
    settings, target = sivi_sm.Settings(hidden=5, critic_hidden=4, batch=6), Bent()
    problem, net = make_problem(target, [0, 1]), settings.network(2)
    critic_net = MLP((2, 4, 4, 2), "relu")
    parameters = torch.cat((net.initialise(points(2, net.n_parameters).abs()), points(2, 2, seed=1)), 1)
    critic = points(2, critic_net.n_parameters, seed=4)

    def objective(parameters: Tensor, critic: Tensor, z: Tensor, xi: Tensor) -> Tensor:
        sigma = (0.5 * parameters[:, None, -2:]).exp()
        x = net.forward(parameters[:, :-2], z)[-1] + sigma * xi
        f = critic_net.forward(critic, x)[-1]
        return (2 * f * (0.3 * target.score(x) + xi / sigma) - f.square()).sum(-1).mean(1).sum()

    z, xi = points(2, 6, 3, seed=2), points(2, 6, 2, seed=3)
    with torch.no_grad():
        actual = sivi_sm.sampler_gradient(problem, settings, parameters, critic, z, xi, 0.3)
    leaf = parameters.clone().requires_grad_()
    (expected,) = torch.autograd.grad(objective(leaf, critic, z, xi), leaf)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)

    run = Run("sivi-sm", make_problem(target, [0, 1]), hidden=5, critic_hidden=4, batch=6, annealing=0.0)
    critic = run.state.critic.clone().requires_grad_()
    run.steps(1)
    streams = run.problem.streams
    z, xi = streams.normal("algorithm", (6, 3), 1), streams.normal("noise", (6, 2), 1)
    sigma = (0.5 * run.state.parameters[:, None, -2:]).exp()
    x = net.forward(run.state.parameters[:, :-2], z)[-1] + sigma * xi
    f = critic_net.forward(critic, x)[-1]
    loss = (f.square() - 2 * f * (target.score(x) + xi / sigma)).sum(-1).mean(1).sum()
    (expected,) = torch.autograd.grad(loss, critic)
    torch.testing.assert_close(10 * run.state.critic_first, expected, rtol=1e-9, atol=1e-10)


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


def test_uivi_estimates_the_score_of_the_mixture_without_bias() -> None:
    """Leapfrog step fixed and coarse, grad log q by quadrature: errors have mean zero, whatever x.

    40,000 samples, three statistics |z| < 5: false alarm 2e-6. Catches no acceptance step, a chain started at
    z = 0, a lost half kick, and the prior of z left out.
    """
    settings = uivi.Settings(burn_in=2, kept=2, leapfrog_steps=3, adaptation=0.0)
    net, network, z, x, sigma, exact = bent_case(40, 1000)
    streams = make_problem(Gaussian([1.0]), range(40)).streams
    step = torch.full((40, 1, 1), 0.5, dtype=torch.float64)
    estimate, after = uivi.mixture_score(net, network, settings, x, sigma, z, step, streams)
    error = (estimate - exact).view(-1, 1)
    at = x.view(-1, 1)
    scores = z_scores(torch.cat((error, error * at, error * at.square()), 1), 0.0)
    assert (scores.abs() < 5).all(), scores
    assert torch.equal(after, step)


def test_uivi_estimate_gains_from_longer_chains_and_adapts_its_step() -> None:
    """Error of 60 kept states below a quarter of one's. Catches states that never move."""
    net, network, z, x, sigma, exact = bent_case(3, 400)
    streams = make_problem(Gaussian([1.0, 1.0])).streams
    errors = []
    for kept in (1, 60):
        settings = uivi.Settings(burn_in=5, kept=kept)
        step = torch.full((3, 1, 1), 0.2, dtype=torch.float64)
        estimate, after = uivi.mixture_score(net, network, settings, x, sigma, z, step, streams)
        errors.append((estimate - exact).square().mean().item())
    assert errors[1] < errors[0] / 4, errors
    assert (after > step).all()  # small steps are accepted more often than 0.9
    _, after = uivi.mixture_score(net, network, settings, x, sigma, z, 20 * step, streams)
    assert (after < 20 * step).all()


# --- Gaussian families and flows ---------------------------------------------------------------------


def test_mean_field_gradient_equals_autograd_of_the_bound() -> None:
    """Catches a lost entropy, and eps for sd eps."""
    target, parameters, eps = Bent(), points(2, 4), points(2, 7, 2, seed=1)
    leaf = parameters.clone().requires_grad_()
    m, log_sd = leaf.unsqueeze(1).chunk(2, 2)
    bound = target.log_density(m + log_sd.exp() * eps).mean(1).sum() + log_sd.sum()
    (expected,) = torch.autograd.grad(-bound, leaf)
    actual = mean_field.bound_gradient(make_problem(target, [0, 1]), parameters, eps)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-11)


def test_full_rank_gradient_equals_autograd_of_the_bound() -> None:
    """Catches a lost entropy, the transpose of L, and a diagonal without its factor."""
    target, parameters, eps = Bent(), 0.5 * points(2, 6), points(2, 7, 2, seed=1)
    leaf = parameters.clone().requires_grad_()
    m, scale = full_rank.location_and_scale(leaf, 2)
    log_det = leaf[:, 2:].view(-1, 2, 2).diagonal(dim1=1, dim2=2).sum()
    bound = target.log_density(m + eps @ scale.mT).mean(1).sum() + log_det
    (expected,) = torch.autograd.grad(-bound, leaf)
    actual = full_rank.bound_gradient(make_problem(target, [0, 1]), parameters, eps)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-11)


def test_a_flow_equals_pyros() -> None:
    """Value and log-Jacobian. Catches shift and scale exchanged, and masks of the wrong layer."""
    settings = iaf.Settings(flows=1, hidden=7)
    net, mask = iaf.masked_network(3, 7, torch.device("cpu"), torch.float64)
    network, noise = 2 * points(2, net.n_parameters) * mask, points(2, 5, 3, seed=1)
    _, y, (flow,) = iaf.push(settings, torch.cat((network, points(2, 6)), 1), noise)
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


def test_iaf_density_has_a_triangular_jacobian_and_its_gradient_equals_autograd() -> None:
    """Two flows. Catches the order not turned back, the Jacobian's 1/n, and gradients of masked weights."""
    settings, target = iaf.Settings(flows=2, hidden=5), Bent()
    net, mask = iaf.masked_network(2, 5, torch.device("cpu"), torch.float64)
    parameters = 0.5 * torch.cat((points(2, 2 * net.n_parameters) * mask.repeat(2), points(2, 4, seed=1)), 1)
    noise = points(2, 6, 2, seed=2)
    leaf = parameters.clone().requires_grad_()
    x, _, flows = iaf.push(settings, leaf, noise)
    log_det = sum(flow.a.sum(-1) for flow in flows) + leaf[:, None, -2:].sum(-1)
    (expected,) = torch.autograd.grad(-(target.log_density(x) + log_det).mean(1).sum(), leaf)
    actual = iaf.bound_gradient(make_problem(target, [0, 1]), settings, parameters, noise)
    torch.testing.assert_close(
        actual, expected * torch.cat((mask, mask, torch.ones(4))), rtol=1e-9, atol=1e-10
    )

    jacobian = torch.autograd.functional.jacobian(
        lambda at: iaf.push(settings, parameters[:1], at.view(1, 1, 2))[0].flatten(), noise[0, 0]
    )
    torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], log_det[0, 0].detach())


def test_mean_field_finds_conditional_and_full_rank_marginal_variances() -> None:
    """Precision [[2, 1], [1, 2]]: variances 1/2 for the one, 2/3 and covariance -1/3 for the other.

    Catches an entropy counted twice (variance doubled) and a triangle that stays at zero.
    """
    problem = {"target": Correlated(), "replicates": range(4)}
    settings = {"step_size": 0.05, "batch": 100}
    runs = {
        name: Run(name, make_problem(**problem), 600, **settings).steps(600)  # type: ignore[arg-type]
        for name in ("mean-field", "full-rank")
    }
    variance = (2 * runs["mean-field"].state.parameters[:, 2:]).exp()
    torch.testing.assert_close(variance, torch.full_like(variance, 0.5), rtol=0.1, atol=0)
    _, scale = full_rank.location_and_scale(runs["full-rank"].state.parameters, 2)
    expected = torch.linalg.inv(Correlated.precision).expand(4, -1, -1)
    torch.testing.assert_close(scale @ scale.mT, expected, rtol=0.1, atol=0.02)


SETTLE: dict[str, dict[str, Any]] = {
    "ksivi-ustat": {"batch": 50, "hidden": 20, "step_size": 0.01},
    "sivi": {"batch": 50, "hidden": 20, "step_size": 0.01, "mixing": 50},
    "sivi-sm": {
        "batch": 50, "hidden": 20, "step_size": 0.005,
        "critic_hidden": 32, "critic_learning_rate": 0.01, "critic_steps": 3,
    },
    "uivi": {"batch": 50, "hidden": 20, "step_size": 0.01},
    "mean-field": {"step_size": 0.05},
    "full-rank": {"step_size": 0.05},
    "iaf": {"step_size": 0.02},
}  # fmt: skip


#: Half a minute to over a minute each.
LONG = ("ksivi-ustat", "sivi", "sivi-sm", "uivi")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in SETTLE]
)
def test_generators_settle_on_a_gaussian(name: str) -> None:
    """N(1, diag(1, 1/4)): mean within 0.1, sd within 15%. Catches an update of the wrong sign."""
    run = Run(name, make_problem(Gaussian([1.0, 4.0], mean=1.0)), 600, **SETTLE[name]).steps(600)
    samples = run.output(2000)
    assert samples.mean(1).flatten().tolist() == pytest.approx([1.0] * 6, abs=0.1)
    assert samples.std(1).flatten().tolist() == pytest.approx([1.0, 0.5] * 3, rel=0.15)
