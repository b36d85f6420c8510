"""Bayesian networks: the posterior against its plain twin, the start, and predictions in original units."""

import math

import numpy as np
import pytest
import torch
from plain_bnn import log_joint, network
from task_laws import assert_score_is_gradient
from torch import Tensor

import parvibench.tasks.bnn as module
import parvibench.tasks.bnn_network as network_module
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.data.loaders import load
from parvibench.data.splits import split
from parvibench.tasks.bnn_network import Model, Network
from parvibench.tasks.bnn_posterior import BNNTarget

R, ROWS, FEATURES, HIDDEN, N = 2, 24, 3, 4, 5
MODEL = Model(Network(FEATURES, HIDDEN))
BATCHES = torch.stack([torch.randperm(ROWS, generator=torch.Generator().manual_seed(r)) for r in range(R)])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, Y = normal(R, ROWS, FEATURES, seed=1), normal(R, ROWS, seed=2)


@pytest.fixture
def target() -> BNNTarget:
    return BNNTarget(X, Y, MODEL)


@pytest.fixture
def x(target: BNNTarget) -> Tensor:
    return normal(R, N, target.dim, seed=3)


@pytest.mark.parametrize("batch", [None, BATCHES[:, :7]])
def test_density_equals_the_twin_up_to_a_constant(target: BNNTarget, x: Tensor, batch: Tensor | None) -> None:
    """Catches a rate read as a scale, a lost Jacobian, a wrong n/B, a transposed W1."""
    found = target.log_density(x, batch)
    for r in range(R):
        rows = torch.arange(ROWS) if batch is None else batch[r]
        twin = torch.stack([log_joint(s, X[r, rows], Y[r, rows], HIDDEN, ROWS / len(rows)) for s in x[r]])
        torch.testing.assert_close(found[r] - found[r, 0], twin - twin[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("batch", [None, BATCHES[:, :7]])
def test_score_is_the_differentiable_gradient(target: BNNTarget, x: Tensor, batch: Tensor | None) -> None:
    assert_score_is_gradient(target, x, batch)


def test_blocks_of_rows_change_nothing(target: BNNTarget, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    log_p, score = target.log_density_and_score(x)
    five_rows = 5 * R * N * HIDDEN  # a block; the last has 4
    monkeypatch.setattr(network_module, "_MAX_ACTIVATIONS", five_rows)
    torch.testing.assert_close(target.log_density(x), log_p, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(target.score(x), score, rtol=1e-12, atol=1e-11)


def test_replicates_do_not_see_one_another(target: BNNTarget, x: Tensor) -> None:
    """Catches data of one replicate meeting the particles of another."""
    for r in range(R):
        alone = BNNTarget(X[r : r + 1], Y[r : r + 1], MODEL)
        torch.testing.assert_close(alone.score(x[r : r + 1])[0], target.score(x)[r], rtol=1e-12, atol=1e-12)


def test_extreme_precisions_stay_finite_and_consistent(target: BNNTarget, x: Tensor) -> None:
    """exp overflows at 89 in float32; a clamp in the score alone would break the first line."""
    x = x.clone()
    x[..., -2:] = torch.tensor([[30.5, 200.0], [-200.0, 31.0], [1e3, 1e3], [-1e3, -1e3], [29.5, 0.0]])
    leaf = x.clone().requires_grad_()
    expected = torch.autograd.grad(target.log_density(leaf).sum(), leaf)[0]
    torch.testing.assert_close(target.score(x), expected, rtol=1e-9, atol=1e-9)
    single = BNNTarget(X.float(), Y.float(), MODEL)
    assert torch.isfinite(single.score(x.float())).all()
    assert torch.isfinite(single.log_density(x.float())).all()


def test_start_has_its_law() -> None:
    """Per-particle lambda ~ Gamma(1, rate 0.1), weights by fan-in, zero biases, gamma from the fit.

    2000 particles; |z| < 5 on five numbers. Catches scale 0.1 for rate 0.1, one lambda for all particles
    and biases drawn like weights.
    """
    task = load_task("bnn-diabetes-sklearn")
    target = task.target((0,), "cpu", torch.float64)
    x = task.initial(target, 2000, Streams(9, (0,)).generators("init"))
    p, H = 10, 50
    W1, b1, W2, b2, log_gamma, log_lambda = x[0].split([p * H, H, H, 1, 1, 1], dim=-1)
    assert not b1.any()
    assert not b2.any()
    lam = log_lambda.exp()
    numbers = [(lam, 10.0), ((lam - 10) ** 2, 100.0), (W1.flatten(), 0.0)]
    numbers += [(W1.flatten() ** 2, 1 / (p + 1)), (W2.flatten() ** 2, 1 / (H + 1))]
    for values, expected in numbers:
        z = (values.mean() - expected) / values.std() * len(values) ** 0.5
        assert abs(z) < 5
    data = load("sklearn-diabetes")
    train = split(442, 0).train
    X, y = (torch.from_numpy((a[train] - a[train].mean(0)) / a[train].std(0)) for a in data)
    for m in range(3):
        error = (network(x[0, m], X, H) - y).square().mean()
        assert log_gamma[m].item() == pytest.approx(-math.log(error), rel=1e-9)


def test_predictions_are_in_original_units() -> None:
    """By hand for one replicate. Catches noise left in standardised units (the papers' trap)."""
    task = load_task("bnn-diabetes-sklearn")
    held_out = task.predictive((0, 4), "cpu", torch.float64)
    samples = task.problem((0, 4), seed=1, dtype=torch.float64, particles=3).init()
    means, sds = held_out.predict(samples)
    X, y = load("sklearn-diabetes")
    rows = split(442, 4)
    scaled = torch.from_numpy((X[rows.test] - X[rows.train].mean(0)) / X[rows.train].std(0))
    y_sd, y_mean = y[rows.train].std(), y[rows.train].mean()
    np.testing.assert_array_equal(held_out.y[1], y[rows.test])
    assert (means.shape, sds.shape) == ((2, 3, 44), (2, 3))
    for m, state in enumerate(samples[1]):
        torch.testing.assert_close(means[1, m], network(state, scaled, 50) * y_sd + y_mean)
        assert sds[1, m].item() == pytest.approx(y_sd * math.exp(-0.5 * state[-2].item()))


def test_training_never_sees_the_test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The posterior is the same whatever the held-out rows hold."""
    task = load_task("bnn-diabetes-sklearn")
    before = task.problem(1, seed=1, particles=3)
    x = before.init()
    score = before.score(x)
    table = load("sklearn-diabetes")
    X, y = table.X.copy(), table.y.copy()
    X[split(442, 0).test], y[split(442, 0).test] = 1e3, -1e6
    monkeypatch.setattr(module, "load", lambda _: type(table)(X, y))
    after = task.problem(1, seed=1, particles=3)
    assert torch.equal(after.init(), x)
    assert torch.equal(after.score(x), score)
