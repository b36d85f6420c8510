"""Semi-implicit samplers and variational families: gradients, unbiasedness, bounds, fixed points.

Every |z| < 5 raises a false alarm with probability 6e-7; seeds are fixed. The bug that each test was seen to
catch stands in its docstring.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from pyro.distributions.transforms import AffineAutoregressive
from pyro.distributions.transforms.affine_autoregressive import clamp_preserve_gradients
from pyro.nn import AutoRegressiveNN
from sampler_toys import Bent, Gaussian, Regression, Run, Skewed, make_problem
from semi_implicit_programs import Critic, Sampler, discrepancy, flattened, kernel_matrix, ksivi_step
from torch import Tensor, nn

from parvibench.baselines import full_rank, iaf, ksivi, sivi, sivi_sm, uivi
from parvibench.core.errors import DataMissingError, UnsupportedError
from parvibench.core.registry import load_algorithm, load_task
from parvibench.core.target import Target
from parvibench.nn.mlp import LEAK, MLP


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

ACTIVATION = pytest.mark.parametrize("activation", ["relu", "tanh", "leaky-relu"])


def sampler_parameters(settings: Any, dim: int = 2, seed: int = 0) -> Tensor:
    """Random parameters of two replicates, biases and weights of order one, sigma between 1/3 and 3."""
    return 0.7 * points(2, settings.network(dim).n_parameters + dim, seed=seed)


def by_autograd(
    settings: Any, parameters: Tensor, z: Tensor, xi: Tensor, loss: Callable[[int, Tensor, Tensor], Tensor]
) -> Tensor:
    """Gradient of ``loss(replicate, samples, xi / sigma)`` in the parameters of every replicate, (R, P + D)."""
    gradients = []
    for r, row in enumerate(parameters):
        sampler = Sampler(settings, row, xi.shape[2])
        loss(r, *sampler.draw(z[r], xi[r])).backward()  # type: ignore[no-untyped-call]
        grads = [p.grad.T if p.dim() == 2 else p.grad for p in sampler.network.parameters()]
        gradients.append(torch.cat([g.flatten() for g in (*grads, sampler.log_var.grad)]))
    return torch.stack(gradients)


@pytest.mark.parametrize("kernel", ["gaussian", "imq", "riesz", "laplace"])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(
    "more",
    [{}, {"bandwidth": 0.8}, {"fixed_median": True}, {"affine_invariant": True}, {"latent_dim": 1}],
    ids=str,
)
@ACTIVATION
def test_ksivi_gradients_equal_autograd_of_the_programs_loss(
    kernel: str, batches: int, more: dict[str, Any], activation: str
) -> None:
    """Annealed and with the term of log p. Catches a median held fixed, a kept diagonal, M^2 for M (M - 1), ..."""
    settings = ksivi.Settings.model_validate(
        {"kernel": kernel, "hidden": 5, "activation": activation, "batch": 7, **more}
    )
    target, parameters = Bent(), sampler_parameters(settings)
    z, xi = points(2, 7 * batches, settings.latent_dim, seed=2), points(2, 7 * batches, 2, seed=3)
    with torch.no_grad():
        actual = ksivi.discrepancy_gradient(
            make_problem(target, [0, 1]), settings, parameters, z, xi, 0.3, 0.7, batches
        )

    def loss(_: int, x: Tensor, noise: Tensor) -> Tensor:
        value = discrepancy(settings, x, 0.3 * target.score(x[None])[0] + noise, batches)
        return value - 0.7 * 0.3 * target.log_density(x[None, :7]).mean()

    expected = by_autograd(settings, parameters, z, xi, loss)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-9 * expected.abs().max().item())


#: Every option of the frame at work within ten iterations.
PROGRAM = {
    "hidden": 5, "batch": 6, "step_size": 0.01, "annealing": 5, "clip_norm": 0.7, "ema": 0.8, "decay": 0.5,
    "decay_every": 3, "log_var_rate": 0.3, "log_var_init": -1.0, "pretraining": 4, "pretraining_rate": 0.03,
}  # fmt: skip


def fitted_first(run: Run, settings: Any, parameters: Tensor) -> Sampler:
    """The program's sampler after pre-training with the run's noise, the run itself after as many steps."""
    problem, target = run.problem, Regression()
    sampler = Sampler(settings, parameters, 3)
    for t in range(settings.pretraining):
        problem.streams.step = t
        noise, batch = noise_of(run, 1), problem._batch()
        if t == 0:
            fit = torch.optim.Adam(sampler.parameters(), lr=settings.pretraining_rate)
        development = settings.pretraining_rows == "development"
        loss = target.fit(sampler.draw(*noise)[0][None], batch, development).sum()
        fit.zero_grad()
        loss.backward()
        fit.step()
    run.steps(settings.pretraining)
    sampler.start()
    return sampler


def noise_of(run: Run, batches: int, index: int = 0) -> tuple[Tensor, Tensor]:
    """z and xi of the current step, as the methods draw them."""
    n, streams = batches * run.settings.batch, run.problem.streams
    z = streams.normal("algorithm", (n, run.settings.latent_dim), index)
    return z[0], streams.normal("noise", (n, run.problem.dim), index)[0]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("ksivi", {}),
        ("ksivi", {"pretraining_rows": "development", "regularisation": 0.5, "regularisation_until": 2}),
        ("ksivi", {"pretraining": 0, "affine_invariant": True, "kernel": "riesz", "regularisation": 0.5}),
        ("ksivi-ustat", {"annealing": 0, "clip_norm": None, "ema": None, "regularisation": 0.2}),
    ],
)
def test_ksivi_follows_the_program_step_by_step(name: str, more: dict[str, Any]) -> None:
    """On mini-batches. Catches an Adam that remembers the pre-training, a schedule or annealing off by one."""
    target = Regression()
    run = Run(name, make_problem(target, [0], batch_size=5), **{**PROGRAM, **more})
    sampler = fitted_first(run, run.settings, run.state.sampler.parameters[0])
    torch.testing.assert_close(run.state.sampler.parameters[0], sampler.flat(), rtol=1e-7, atol=1e-9)
    batches = 1 if name == "ksivi-ustat" else 2
    for _ in range(8):
        run.problem.streams.step = run.iteration
        rows = run.problem._batch()
        ksivi_step(
            sampler,
            lambda x, rows=rows: target.score(x[None], rows)[0],
            lambda x, rows=rows: target.log_density(x[None], rows)[0],
            *noise_of(run, batches),
            batches,
        )
        run.steps(1)
    torch.testing.assert_close(run.state.sampler.parameters[0], sampler.flat(), rtol=1e-6, atol=1e-8)
    if run.settings.ema is not None:
        torch.testing.assert_close(run.state.sampler.average[0], sampler.average, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("rows", "cost"), [("training", 0.5), ("development", 0.4)])
def test_pretraining_costs_the_rows_it_looks_at(rows: str, cost: float) -> None:
    """8 samples on 5 or 4 rows, 10 trained on."""
    problem = make_problem(Regression(), [0], batch_size=5)
    run = Run("ksivi", problem, pretraining=3, pretraining_rows=rows).steps(3)
    assert problem.meter.charged == pytest.approx(3 * 8 * cost)
    assert run.state.sampler.t == 0


def test_pretraining_needs_responses_and_the_rows_asked_for() -> None:
    with pytest.raises(UnsupportedError, match="no responses"):
        Run("ksivi", make_problem(Bent()), pretraining=1).steps(1)
    with pytest.raises(UnsupportedError, match="no development rows"):
        Run("ksivi", make_problem(Bent()), pretraining=1, pretraining_rows="development").steps(1)


def run_away(**settings: Any) -> float:
    """Largest standard deviation over the target's after 800 iterations on ten coordinates of unlike scales."""
    precision = torch.logspace(0, 2, 10).tolist()
    problem = make_problem(Gaussian(precision), [0], dtype=torch.float32)
    values = {"batch": 40, "hidden": 30, "latent_dim": 5, "step_size": 5e-3, "log_var_init": -5.0, **settings}
    run = Run("ksivi", problem, **values).steps(800)
    return (run.output(1000)[0].std(0) * torch.tensor(precision).sqrt()).max().item()


def test_ksivi_does_not_run_away() -> None:
    """With the median held fixed it does: spreading the samples lowers the kernel. Catches the lost term."""
    assert run_away() < 1.5
    assert run_away(fixed_median=True) > 3


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
    discrepancy = w @ (kernel_matrix("gaussian", x[0], x[0], 1.5) * (f[0] @ f[0].T)) @ w
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
    """After two iterations. Catches a weight that never ends."""
    plain, regularised = (
        Run("ksivi", make_problem(Bent()), regularisation=w, regularisation_until=2) for w in (0.0, 5.0)
    )
    plain.steps(2)
    regularised.steps(2)
    assert not torch.equal(plain.state.parameters, regularised.state.parameters)
    regularised.state = plain.state
    assert torch.equal(plain.steps(1).state.parameters, regularised.steps(1).state.parameters)


def test_samples_come_from_the_averaged_parameters() -> None:
    """Decay 0.9 over three steps by hand. Catches 0.9 and 0.1 exchanged, and output from the last ones."""
    run = Run("ksivi", make_problem(Bent()), ema=0.9)
    expected = run.state.sampler.parameters
    for _ in range(3):
        run.steps(1)
        expected = 0.9 * expected + 0.1 * run.state.sampler.parameters
    torch.testing.assert_close(run.state.sampler.average, expected, rtol=1e-12, atol=1e-12)
    averaged = run.output()
    run.state = run.state._replace(parameters=expected)
    assert torch.equal(run.output(), averaged)
    run.state = run.state._replace(average=run.state.sampler.average + 1)
    assert not torch.equal(run.output(), averaged)


def test_log_variance_has_its_own_rate_and_clipping_is_per_replicate() -> None:
    """Adam's first move is the rate. Catches a factor on the network, and one norm for all replicates."""
    run = Run("ksivi", make_problem(Bent()), step_size=0.01, log_var_rate=0.1)
    start = run.state.sampler.parameters
    move = (run.steps(1).state.parameters - start).abs()
    torch.testing.assert_close(move[:, -2:], torch.full_like(move[:, -2:], 1e-3), rtol=1e-3, atol=0)
    assert move[:, :-2].max().item() == pytest.approx(0.01, rel=1e-3)
    clipped = Run("ksivi", make_problem(Bent()), clip_norm=1e-3).steps(1).state.first.norm(dim=1)
    torch.testing.assert_close(clipped, torch.full_like(clipped, 1e-4))


def sliced_w2(x: Tensor, y: Tensor) -> float:
    """Root mean squared distance of 500 sorted projections; as many rows in both."""
    directions = nn.functional.normalize(points(500, x.shape[1], seed=9), dim=1).T
    apart = (x.double() @ directions).sort(0).values - (y.double() @ directions).sort(0).values
    return apart.square().mean().sqrt().item()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task_name", "iterations", "most"),
    [
        ("ksivi", "blr-waveform", 5000, 0.25),
        ("ksivi-ustat", "blr-waveform", 5000, 0.25),
        ("ksivi", "diffusion-100", 5000, 0.5),
        ("ksivi-ustat", "diffusion-100", 5000, 0.5),
    ],
)
def test_ksivi_approaches_the_posterior_with_its_preset(
    name: str, task_name: str, iterations: int, most: float
) -> None:
    """Sliced W2 of 1000 samples never rises between checkpoints. Half a minute each.

    Paper: 0.151 after 10,000 iterations on logistic regression. Catches a sampler that runs away: 8 after 5000.
    """
    task: Any = load_task(task_name)
    try:
        problem = task.problem((0,), 0)
    except DataMissingError as error:
        pytest.skip(str(error).splitlines()[0])
    reference = task.reference().draws
    reference = reference[torch.linspace(0, len(reference) - 1, 1000).long()]
    run = Run(name, problem, preset=task_name)
    values = []
    for checkpoint in (iterations // 8, iterations // 2, iterations):
        run.steps(checkpoint - run.iteration)
        values.append(sliced_w2(run.output(1000)[0], reference))
    assert values[1] < values[0] + 0.02, values
    assert values[2] < values[1] + 0.02, values
    assert values[2] < most, values


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
    _, _, value = sivi.responsibilities(x, xi, mu[:, 6:], sigma)
    torch.testing.assert_close(value, log_h)


def functional_mlp(net: MLP, flat: Tensor, x: Tensor) -> Tensor:
    """The network written out, for autograd in its parameters (P,)."""
    activate = {
        "relu": torch.relu,
        "tanh": torch.tanh,
        "leaky-relu": lambda v: nn.functional.leaky_relu(v, LEAK),
    }
    for n_in, n_out in pairwise(net.sizes):
        weight, bias, flat = flat.split([n_in * n_out, n_out, len(flat) - (n_in + 1) * n_out])
        x = x @ weight.view(n_in, n_out) + bias
        x = activate[net.activation](x) if len(flat) else x
    return x


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


@ACTIVATION
@pytest.mark.parametrize("psi", [0.0, 1.0, 0.6])
def test_sivi_sm_gradients_equal_autograd_of_the_objective(activation: str, psi: float) -> None:
    """Catches the path through s, through f or through xi / sigma left out, s in g, and the sign of f's step."""
    settings = sivi_sm.Settings.model_validate({"hidden": 5, "critic_hidden": 4, "batch": 6, "activation": activation})
    target, problem, shape = Bent(), make_problem(Bent(), [0, 1]), MLP((2, 4, 4, 2), "relu")
    parameters, critics = sampler_parameters(settings), 0.7 * points(2, shape.n_parameters, seed=4)
    z, xi = points(2, 6, 3, seed=2), points(2, 6, 2, seed=3)
    with torch.no_grad():
        given = (problem, settings, parameters, critics, z, xi, 0.3, psi)
        actual, by_critic = sivi_sm.sampler_gradient(*given), sivi_sm.critic_gradient(*given)

    def loss(r: int, x: Tensor, noise: Tensor) -> Tensor:
        critic = Critic(settings, shape, critics[r])
        value = critic.objective(x, 0.3 * target.score(x[None])[0], noise, psi)
        found = torch.autograd.grad(value, list(critic.network.parameters()), retain_graph=True)
        grads = torch.cat([(g.T if g.dim() == 2 else g).flatten() for g in found])
        torch.testing.assert_close(-by_critic[r], grads, rtol=1e-9, atol=1e-10)
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
    torch.testing.assert_close(run.state.critic[0], flattened(critic.network).detach(), rtol=1e-6, atol=1e-8)


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
    settings = uivi.Settings(warmup=2, kept=2, leapfrog_steps=3, adaptation=0.0)
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
        settings = uivi.Settings(warmup=5, kept=kept)
        step = torch.full((3, 1, 1), 0.2, dtype=torch.float64)
        estimate, after = uivi.mixture_score(net, network, settings, x, sigma, z, step, streams)
        errors.append((estimate - exact).square().mean().item())
    assert errors[1] < errors[0] / 4, errors
    assert (after > step).all()  # small steps are accepted more often than 0.9
    _, after = uivi.mixture_score(net, network, settings, x, sigma, z, 20 * step, streams)
    assert (after < 20 * step).all()


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


def test_mean_field_gradient_equals_autograd_of_the_bound() -> None:
    """Catches a lost entropy, and eps for sd eps."""
    target, parameters, eps = Bent(), points(2, 4), points(2, 7, 2, seed=1)
    leaf = parameters.clone().requires_grad_()
    m, log_sd = leaf.unsqueeze(1).chunk(2, 2)
    bound = target.log_density(m + log_sd.exp() * eps).mean(1).sum() + log_sd.sum()
    (expected,) = torch.autograd.grad(-bound, leaf)
    actual = gradient_of("mean-field", target, parameters, eps)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-11)


def test_full_rank_gradient_equals_autograd_of_the_bound() -> None:
    """Catches a lost entropy, the transpose of L, and a diagonal without its factor."""
    target, parameters, eps = Bent(), 0.5 * points(2, 6), points(2, 7, 2, seed=1)
    leaf = parameters.clone().requires_grad_()
    m, scale = full_rank.location_and_scale(leaf, 2)
    log_det = leaf[:, 2:].view(-1, 2, 2).diagonal(dim1=1, dim2=2).sum()
    bound = target.log_density(m + eps @ scale.mT).mean(1).sum() + log_det
    (expected,) = torch.autograd.grad(-bound, leaf)
    actual = gradient_of("full-rank", target, parameters, eps)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-11)


def test_a_flow_equals_pyros() -> None:
    """Value and log-Jacobian. Catches shift and scale exchanged, and masks of the wrong layer."""
    settings = iaf.Settings(flows=1, hidden=7)
    net, mask = iaf.masked_network(3, 7, torch.device("cpu"), torch.float64)
    network, noise = 2 * points(2, net.n_parameters) * mask, points(2, 5, 3, seed=1)
    _, y, (flow,) = iaf.flow_through(settings, torch.cat((network, points(2, 6)), 1), noise)
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
    x, _, parts = iaf.flow_through(settings, parameters, noise)
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
        lambda at: iaf.flow_through(settings, parameters[:1], at.view(1, 1, 2))[0].flatten(), noise[0, 0]
    )
    if size < 1:
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], log_det[0, 0])


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


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in SETTLE])
def test_generators_settle_on_a_gaussian(name: str) -> None:
    """N(1, diag(1, 1/4)): mean within 0.1, sd within 15%. Catches an update of the wrong sign."""
    run = Run(name, make_problem(Gaussian([1.0, 4.0], mean=1.0)), 600, **SETTLE[name]).steps(600)
    samples = run.output(2000)
    assert samples.mean(1).flatten().tolist() == pytest.approx([1.0] * 6, abs=0.1)
    assert samples.std(1).flatten().tolist() == pytest.approx([1.0, 0.5] * 3, rel=0.15)
