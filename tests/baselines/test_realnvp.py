"""Coupling flows: gradient, Jacobian, start, and what they learn."""

import math
from itertools import pairwise

import pytest
import torch
from sampler_toys import Bent, Gaussian, Run, make_problem, points
from torch import Tensor

from parvibench.baselines import realnvp
from parvibench.core.registry import load_algorithm
from parvibench.core.target import Target
from parvibench.nn.variational import VariationalState

DIMS = pytest.mark.parametrize("dim", [2, 3, 5])


class Coupled(Target):
    """A density that is no product, in any dimension."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -0.5 * x.square().sum(-1) - 0.3 * (x.sum(-1) + x[..., 0] * x[..., -1]).sin()


def layers(flat: Tensor, sizes: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weights (in, out) and biases of one network from its flat parameters (P,)."""
    found, at = [], 0
    for n_in, n_out in pairwise(sizes):
        weight = flat[at : at + n_in * n_out].reshape(n_in, n_out)
        at += n_in * n_out
        found.append((weight, flat[at : at + n_out]))
        at += n_out
    assert at == len(flat)
    return found


def program(settings: realnvp.Settings, flat: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Samples and log |dx/dy| of one replicate from noise (n, D), coordinate by coordinate."""
    dim, hidden, log_det = y.shape[1], settings.hidden, torch.zeros(len(y), dtype=y.dtype)
    networks, m, log_sd = flat[: -2 * dim], flat[-2 * dim : -dim], flat[-dim:]
    for t in range(settings.flows):
        first = list(range(dim // 2))
        stays = first if t % 2 == 0 else [d for d in range(dim) if d not in first]
        moves = [d for d in range(dim) if d not in stays]
        sizes = (len(stays), hidden, hidden, 2 * len(moves))
        count = sum((a + 1) * b for a, b in pairwise(sizes))
        value = y[:, stays]
        for i, (weight, bias) in enumerate(layers(networks[:count], sizes)):
            value = value @ weight + bias
            value = value.tanh() if i < 2 else value
        networks = networks[count:]
        columns = list(y.unbind(1))
        for j, d in enumerate(moves):
            a = 2 * (value[:, len(moves) + j] / 2).tanh()
            columns[d] = columns[d] * a.exp() + value[:, j]
            log_det = log_det + a
        y = torch.stack(columns, 1)
    assert len(networks) == 0
    return m + log_sd.exp() * y, log_det + log_sd.sum()


def parameters_of(settings: realnvp.Settings, dim: int, size: float = 1.0) -> Tensor:
    """Random ones of two replicates."""
    count = sum(net.n_parameters for net in realnvp.networks(settings, dim)) + 2 * dim
    return size * points(2, count, seed=dim)


@DIMS
@pytest.mark.parametrize("flows", [1, 2, 5])
def test_gradient_and_samples_equal_the_program(dim: int, flows: int) -> None:
    """Catches the path through the half that stays, the bound's slope, 1/n of the Jacobian, and halves exchanged."""
    settings, target = realnvp.Settings(flows=flows, hidden=4), Coupled(dim)
    parameters, noise = parameters_of(settings, dim), points(2, 6, dim, seed=1)
    problem = make_problem(target, [0, 1])
    actual = load_algorithm("realnvp").gradient(problem, settings, parameters, noise)  # type: ignore[attr-defined]
    samples = realnvp.RealNVP().through(settings, parameters, noise)[0]
    for r in range(2):
        leaf = parameters[r].clone().requires_grad_()
        x, log_det = program(settings, leaf, noise[r])
        torch.testing.assert_close(samples[r], x.detach(), rtol=1e-10, atol=1e-10)
        (expected,) = torch.autograd.grad(-(target.log_density(x) + log_det).mean(), leaf)
        torch.testing.assert_close(actual[r], expected, rtol=1e-9, atol=1e-10)


@DIMS
def test_the_log_jacobian_is_that_of_the_samples(dim: int) -> None:
    """Catches a coordinate that is moved and not counted."""
    settings = realnvp.Settings(flows=3, hidden=4)
    parameters = parameters_of(settings, dim)
    noise = points(2, 1, dim, seed=1)
    _, _, couplings = realnvp.RealNVP().through(settings, parameters, noise)
    log_det = sum(c.a.sum(-1) for c in couplings) + parameters[:, None, -dim:].sum(-1)
    jacobian = torch.autograd.functional.jacobian(
        lambda y: realnvp.RealNVP().through(settings, parameters, y)[0], noise
    ).diagonal(dim1=0, dim2=3)  # type: ignore[union-attr]
    for r in range(2):
        found = torch.linalg.slogdet(jacobian[0, :, 0, :, r]).logabsdet
        torch.testing.assert_close(found, log_det[r, 0])


def test_it_starts_as_a_narrow_normal_and_couples_nothing_in_one_dimension() -> None:
    run = Run("realnvp", make_problem(Bent()), init_scale=0.2)
    u = run.problem.streams.normal("output", (50, 2))
    torch.testing.assert_close(run.output(50), run.problem.init()[:, :1] + 0.2 * u)
    alone = Run("realnvp", make_problem(Gaussian([4.0], mean=1.0)), 400, step_size=0.05).steps(400)
    assert alone.state.parameters.shape == (3, 2)
    assert (alone.output(4000).std(1) - 0.5).abs().max() < 0.06


def bound(name: str, target: Target, state: VariationalState, **settings: int | float) -> Tensor:
    """Evidence bounds of the replicates from 4000 draws, (R,); the densities of draws by the change of variables."""
    algorithm = load_algorithm(name)
    chosen, noise = algorithm.make_settings(dict(settings)), points(len(state.parameters), 4000, target.dim, seed=8)
    x = algorithm.push(chosen, state.parameters, noise)  # type: ignore[attr-defined]
    log_q = -0.5 * noise.square().sum(-1) - target.dim / 2 * math.log(2 * math.pi)
    log_q = log_q - state.parameters[:, -target.dim :].sum(-1, keepdim=True)
    if name == "realnvp":
        log_q = log_q - sum(c.a.sum(-1) for c in realnvp.RealNVP().through(chosen, state.parameters, noise)[2])  # type: ignore[arg-type]
    return (target.log_density(x) - log_q).mean(1)


class Correlated(Target):
    """N(0, [[1, 0.9], [0.9, 1]]), normalised: mean-field loses log(1 / (1 - 0.81)) / 2 = 0.83 nats."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        a, b = x.unbind(-1)
        square = (a.square() - 1.8 * a * b + b.square()) / 0.19
        return -0.5 * square - 0.5 * math.log(0.19) - math.log(2 * math.pi)


class Banana(Target):
    """a ~ N(0, 1), b ~ N(a^2, 1/4), normalised."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        a, b = x.unbind(-1)
        return -0.5 * a.square() - 2 * (b - a.square()).square() + math.log(2) - math.log(2 * math.pi)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("target", "loss"),
    [pytest.param(Correlated(), 0.05, marks=pytest.mark.slow), (Banana(), 0.3)],
    ids=["correlated", "banana"],
)
def test_flows_learn_what_mean_field_cannot(target: Target, loss: float) -> None:
    """Both densities are normalised: the bound is minus the divergence. Standard errors of a bound are below 0.02.

    Mean-field stays below -0.5 on both. Catches couplings that never act.
    """
    settings = {"step_size": 0.01, "batch": 50}
    flow = Run("realnvp", make_problem(target), 1000, flows=4, hidden=16, **settings).steps(1000)
    plain = Run("mean-field", make_problem(target), 400, step_size=0.05).steps(400)
    flow_bound = bound("realnvp", target, flow.state, flows=4, hidden=16)
    assert (flow_bound > -loss).all(), flow_bound
    assert (flow_bound < 0.05).all()
    assert (bound("mean-field", target, plain.state) < -0.5).all()
