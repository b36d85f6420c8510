"""The papers' own protocols against plain twins, on random tables of the real sizes: nothing needs a download."""

import math
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from plain_bnn import log_gamma_prior, log_joint, network, normal_log_prob
from sklearn.model_selection import train_test_split
from task_laws import assert_score_is_gradient
from torch import Tensor

import parvibench.tasks.bnn as module
import parvibench.tasks.bnn_network as network_module
from parvibench.api import describe
from parvibench.core import registry
from parvibench.core.errors import DataMissingError
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.core.task import TUNING_REPLICATES
from parvibench.data import fetch, loaders
from parvibench.data.fetch import registry as data_sets
from parvibench.data.loaders import Table
from parvibench.tasks import bnn_variants

SETS = {
    "sifg": ["boston", "concrete", "diabetes", "power", "protein", "wine-binary"],
    "srld": ["boston", "concrete", "energy", "naval", "wine-red", "wine-white", "yacht"],
    "ksivi": ["boston", "concrete", "power", "wine-red", "protein", "yacht"],
}
SIFG, SRLD, KSIVI = "bnn-diabetes-sifg", "bnn-energy-srld", "bnn-yacht-ksivi"
ONE_OF_EACH = [SIFG, SRLD, "bnn-yacht-srld", KSIVI, "bnn-boston-sifg"]
# The constants of the KSIVI authors' code.
YACHT_LOG_GAMMA, YACHT_LOG_LAMBDA = 0.329742800537996, -0.768671081013136


def made(name: str) -> Table:
    """A random table of the registered set's size, far from standardised."""
    entry = data_sets()[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    X = rng.normal(5.0, np.arange(1, entry.features + 1), (entry.rows, entry.features))
    return Table(X, 3.0 + 2.0 * np.sin(X[:, 0]) + 0.1 * X[:, -1] + rng.normal(0, 0.5, entry.rows))


SAVED = np.random.RandomState(7).permutation(506)


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load", made)
    monkeypatch.setattr(bnn_variants, "load_permutation", {"sifg-boston-permutation": SAVED}.__getitem__)


def points(name: str, n: int = 3, seed: int = 1) -> tuple[module.BNNTarget, Tensor]:
    """The float64 target of replicates 0 and 1 and points (2, n, D) of its bulk's size."""
    task = load_task(name)
    generator = torch.Generator().manual_seed(seed)
    x = 0.5 * torch.randn(2, n, task.dim, generator=generator, dtype=torch.float64)
    return task.target((0, 1), "cpu", torch.float64), x


def twin_srld(state: Tensor, X: Tensor, y: Tensor) -> Tensor:
    log_gamma = state[-1]
    fit = normal_log_prob(y - network(state, X, activate=torch.tanh), log_gamma.exp())
    return fit + normal_log_prob(state[:-1], 1.0) + log_gamma_prior(log_gamma)


def twin_ksivi(state: Tensor, X: Tensor, y: Tensor) -> Tensor:
    fit = normal_log_prob(y - network(state, X), math.exp(YACHT_LOG_GAMMA))
    return fit + normal_log_prob(state, math.exp(YACHT_LOG_LAMBDA))


def sifg_rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As the code does it: truncate first, then take the development rows from what is left."""
    rows = SAVED if n == len(SAVED) else np.random.RandomState(1234).permutation(n)
    size_train = int(np.round(n * (1 - 0.1)))
    train, test = rows[:size_train], rows[size_train:]
    size_dev = min(int(np.round(0.1 * len(train))), 500)
    train = train[:-size_dev]
    return train, test, train[-size_dev:]


def ksivi_rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    train, test = train_test_split(np.arange(n), test_size=1 - 0.9, random_state=42)
    size_dev = min(int(np.round(0.1 * len(train))), 500)
    return train[:-size_dev], test, train[-size_dev:]


def srld_rows(n: int, replicate: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(n)
    np.random.RandomState(1 + replicate).shuffle(rows)
    return rows[: int(n * 0.9)], rows[int(n * 0.9) :]


def parts(name: str, replicate: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X_train, y_train, X_test and y_test of a variant, computed from the description alone."""
    task = load_task(name)
    X, y = made(task.table)
    if name.endswith("sifg"):
        train, test, _ = sifg_rows(len(y))
        X_sd, y_mean, y_sd = X[train].std(0), y[train].mean(), y[train].std()
    elif name.endswith("ksivi"):
        train, test, _ = ksivi_rows(len(y))
        X_sd, y_mean, y_sd = X[train].std(0, ddof=1), y[train].mean(), y[train].std(ddof=1)
    else:
        if "yacht" in name:
            X, y = X[1:], y[1:]
        train, test = srld_rows(len(y), replicate)
        X_sd, y_mean, y_sd = X[test].std(0) + 1e-6, 0.0, 1.0
    Z = (X - X[train].mean(0)) / X_sd
    return tuple(map(torch.from_numpy, (Z[train], (y[train] - y_mean) / y_sd, Z[test], y[test])))


def test_every_paper_has_its_sets() -> None:
    for code, names in SETS.items():
        found = [n for n in registry.tasks() if n.startswith("bnn-") and n.endswith(f"-{code}")]
        assert found == [f"bnn-{name}-{code}" for name in names]


@pytest.mark.parametrize("name", [f"bnn-{n}-{code}" for code, names in SETS.items() for n in names])
def test_declared_sizes_are_the_real_ones(name: str) -> None:
    task = load_task(name)
    target = task.target((0,), "cpu", torch.float32)
    assert (target.dim, target.rows) == (task.dim, task.rows)
    assert len(task.departures) >= 4
    x = task.initial(target, 2, Streams(1, (0,)).generators("init")).float()
    assert torch.isfinite(target.score(x)).all()


def test_show_tells_what_a_variant_does_on_purpose() -> None:
    """And the plain task has nothing to tell."""
    told = describe.task("bnn-yacht-srld")["departs from the plain task"]
    assert any("deviation of the test rows" in text for text in told.values())
    assert any("first row is lost" in text for text in told.values())
    assert "departs from the plain task" not in describe.task("bnn-yacht")


@pytest.mark.parametrize("name", ["bnn-wine-binary-sifg", "bnn-naval-srld", "bnn-power-ksivi", "bnn-diabetes"])
def test_missing_data_name_the_remedy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load", loaders.load.__wrapped__)
    monkeypatch.delenv(fetch.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(fetch, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(fetch, "_TIMEOUT_S", (0.01, 0.01))
    task = load_task(name)
    with pytest.raises(DataMissingError, match=f"parvibench data fetch {task.data[0]}"):
        task.target((0,), "cpu", torch.float64)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_density_equals_the_twin_on_the_codes_rows_and_units(name: str) -> None:
    """Catches a wrong permutation, rows kept that the code drops, the wrong deviation, a lost Jacobian."""
    target, x = points(name)
    twin = {"sifg": log_joint, "srld": twin_srld, "ksivi": twin_ksivi}[name.rpartition("-")[2]]
    found = target.log_density(x)
    for r in (0, 1):
        X, y, _, _ = parts(name, r)
        expected = torch.stack([twin(state, X, y) for state in x[r]])
        torch.testing.assert_close(found[r] - found[r, 0], expected - expected[0], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("batched", [False, True])
def test_score_and_its_derivative_are_autograds(name: str, batched: bool) -> None:
    assert_score_is_gradient(*points(name), torch.arange(200).view(2, 100) if batched else None, tolerance=1e-8)


def test_sifg_precisions_beyond_50_score_as_the_codes_clamp() -> None:
    """d/d log gamma = N/2 + 1 - (S/2 + 0.1) 50 there, and the like for lambda. Catches the bend at e^30."""
    target, x = points("bnn-diabetes-sifg", n=1)
    x[..., -2:] = torch.tensor([5.0, 6.0])
    X, y, _, _ = parts("bnn-diabetes-sifg", 0)
    squares = (y - network(x[0, 0], X)).square().sum()
    norm = x[0, 0, :-2].square().sum()
    gamma_score, lambda_score = target.score(x)[0, 0, -2:]
    torch.testing.assert_close(gamma_score, len(y) / 2 + 1 - (squares / 2 + 0.1) * 50)
    torch.testing.assert_close(lambda_score, (target.dim - 2) / 2 + 1 - (norm / 2 + 0.1) * 50)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_predictions_are_on_the_codes_test_rows_in_original_units(name: str) -> None:
    task = load_task(name)
    _, x = points(name)
    held_out = task.predictive((0, 1), "cpu", torch.float64)
    means, _ = held_out.predict(x)
    table = made(task.table)
    for r in (0, 1):
        _, _, X, y = parts(name, r)
        np.testing.assert_array_equal(held_out.y[r], y)
        for m, state in enumerate(x[r]):
            if name.endswith("srld"):
                expected = network(state, X, activate=torch.tanh)
            else:
                train = (sifg_rows if name.endswith("sifg") else ksivi_rows)(len(table.y))[0]
                y_sd = table.y[train].std(ddof=0 if name.endswith("sifg") else 1)
                expected = network(state, X) * y_sd + table.y[train].mean()
            torch.testing.assert_close(means[r, m], expected)


def test_sifg_noise_is_what_the_codes_model_selection_ends_with() -> None:
    """Catches noise from test rows, standardised units, or development rows that are not for training."""
    task = load_task("bnn-diabetes-sifg")
    _, x = points(task.name, n=6)
    _, sds = task.predictive((0, 1), "cpu", torch.float64).predict(x)
    X, y = made(task.table)
    train, _, dev = sifg_rows(len(y))
    assert set(dev) < set(train)
    Z = torch.from_numpy((X[dev] - X[train].mean(0)) / X[train].std(0))
    y_dev = torch.from_numpy(y[dev])
    log_gamma = x[0, :, -2].clone()
    squares = []
    for state in x[0]:
        squares.append((network(state, Z) * y[train].std() + y[train].mean() - y_dev).square())
    for i, square in enumerate(squares):
        fitted = -square.mean().log()

        def log_likelihood(value: Tensor, square: Tensor = square) -> Tensor:
            return (value / 2 - square * value.exp() / 2).sum()

        if log_likelihood(fitted) > log_likelihood(log_gamma[i]):
            log_gamma[i:] = fitted
    torch.testing.assert_close(sds[0], (-log_gamma / 2).exp())


def test_sifg_takes_its_training_rows_in_turn() -> None:
    """As the code counts them, at several steps, across the end. Catches a shuffle, and an epoch that drops its rest."""
    problem = load_task("bnn-boston-sifg").problem((0, 3), 1, dtype=torch.float64)
    for problem.streams.step in (0, 1, 4, 999, 1999):
        t = problem.streams.step
        expected = [i % 409 for i in range(t * 100, (t + 1) * 100)]
        assert problem._batch().tolist() == [expected, expected]
        x = 0.1 * torch.ones(2, 3, problem.dim, dtype=torch.float64)
        rows = torch.tensor(expected).expand(2, -1)
        torch.testing.assert_close(problem.score(x), problem._target.score(x, rows))
    assert problem.meter.scores == pytest.approx(5 * 3 * 100 / 409)
    full = load_task("bnn-boston-sifg").problem(1, 1, full_batch=True)
    assert full._batch() is None


@pytest.mark.parametrize("name", ["bnn-yacht-ksivi", "bnn-energy-srld"])
def test_noise_is_in_original_units(name: str) -> None:
    """For KSIVI too, whose posterior multiplies standardised residuals with the same gamma."""
    _, x = points(name)
    _, sds = load_task(name).predictive((0, 1), "cpu", torch.float64).predict(x)
    log_gamma = x[..., -1] if name.endswith("srld") else torch.full_like(x[..., -1], YACHT_LOG_GAMMA)
    torch.testing.assert_close(sds, (-log_gamma / 2).exp())


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("rows", ["all", "batch", "development"])
def test_the_gradient_of_the_mean_fit_equals_autograd(rows: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one block of rows or several. Catches a fit of each point by itself, and other rows."""
    target, x = points("bnn-yacht-ksivi")
    X, y, _, _ = parts("bnn-yacht-ksivi", 0)
    batch = torch.arange(7).expand(2, -1) if rows == "batch" else None
    if rows == "batch":
        X, y = X[:7], y[:7]
    elif rows == "development":
        table = made("yacht")
        train, _, dev = ksivi_rows(len(table.y))
        X = torch.from_numpy((table.X[dev] - table.X[train].mean(0)) / table.X[train].std(0, ddof=1))
        y = torch.from_numpy((table.y[dev] - table.y[train].mean()) / table.y[train].std(ddof=1))
        assert target.development_rows == len(dev)
    monkeypatch.setattr(network_module, "_MAX_ACTIVATIONS", 2 * 3 * 50 * -(-len(y) // blocks))
    found = target.fit_gradient(x, batch, rows == "development")
    for r in range(2):
        leaf = x[r].clone().requires_grad_()
        fit = (y - torch.stack([network(state, X) for state in leaf]).mean(0)).square().mean()
        (expected,) = torch.autograd.grad(fit, leaf)
        torch.testing.assert_close(found[r], expected, rtol=1e-9, atol=1e-12)


def test_the_mean_fit_leaves_precisions_alone() -> None:
    target, x = points("bnn-diabetes-sifg")
    found = target.fit_gradient(x)
    assert not found[..., -2:].any()
    assert found[..., :-2].any(-1).all()


def test_ksivi_development_rows_enter_no_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a development set inside the training rows, as in the other code."""
    before, x = points("bnn-yacht-ksivi")
    score = before.score(x)
    table = made("yacht")
    X, y = table.X.copy(), table.y.copy()
    dev = ksivi_rows(len(y))[2]
    X[dev], y[dev] = 1e3, -1e6
    monkeypatch.setattr(module, "load", lambda _: Table(X, y))
    after, _ = points("bnn-yacht-ksivi")
    assert torch.equal(after.score(x), score)


@pytest.mark.parametrize(("name", "alike"), [(SIFG, True), (SRLD, False), (KSIVI, True)])
def test_replicates_share_a_split_where_the_code_has_one(name: str, alike: bool) -> None:
    """And tuning never sees it."""
    task = load_task(name)
    held_out = task.predictive((0, 1), "cpu", torch.float64)
    assert torch.equal(held_out.y[0], held_out.y[1]) == alike
    table = module.load(task.table)
    reported, tuned = task.split(table, 0), task.split(table, TUNING_REPLICATES)
    assert len(tuned.y_test) == pytest.approx(0.2 * len(reported.y_train), abs=1)
    assert len(tuned.y_train) + len(tuned.y_test) == len(reported.y_train)
    y = reported.y_train * reported.y_sd + reported.y_mean
    seen = [*(tuned.y_train * tuned.y_sd + tuned.y_mean), *tuned.y_test]
    np.testing.assert_allclose(np.sort(seen), np.sort(y), atol=1e-9)


def test_sifg_starts_at_one_small_lambda() -> None:
    """Per replicate one draw from Gamma(1, scale 0.1): mean 0.1 over 400 replicates, |z| < 5. Catches rate 0.1."""
    task = load_task("bnn-diabetes-sifg")
    target = task.target((0,), "cpu", torch.float64)
    starts = [task.initial(target, 3, Streams(7, (r,)).generators("init"))[0] for r in range(400)]
    lam = torch.stack(starts)[..., -1].exp()
    assert (lam == lam[:, :1]).all()
    values = lam[:, 0]
    assert abs((values.mean() - 0.1) / values.std() * 20) < 5
    assert ((values.square().mean() - 0.02) / values.square().std() * 20).abs() < 5


def test_srld_starts_by_xaviers_rule_with_noise_at_its_conditional_mean() -> None:
    """E gamma = (1 + n/2) / (0.1 + S/2) given the weights, over all training rows."""
    task = load_task("bnn-energy-srld")
    target = task.target((0,), "cpu", torch.float64)
    x = task.initial(target, 200, Streams(7, (0,)).generators("init"))[0]
    W1, W2 = x[:, : 9 * 50], x[:, 9 * 50 : -1]
    for weights, fans in ((W1, 9 + 50), (W2, 50 + 1)):
        limit = math.sqrt(6 / fans)
        assert weights.abs().max() < limit
        assert weights.square().mean().item() == pytest.approx(limit**2 / 3, rel=0.05)
    X, y, _, _ = parts(task.name, 0)
    squares = (y - network(x[0], X, activate=torch.tanh)).square().sum().item()
    assert x[0, -1].exp().item() == pytest.approx((1 + len(y) / 2) / (0.1 + squares / 2))


def test_ksivi_states_are_weights_alone() -> None:
    task = load_task("bnn-yacht-ksivi")
    target = task.target((0,), "cpu", torch.float64)
    assert task.dim == 7 * 50 + 50 + 1
    assert target.prior_precision == pytest.approx(math.exp(YACHT_LOG_LAMBDA))
    x = task.initial(target, 2000, Streams(7, (0,)).generators("init"))[0]
    assert (x[:, 6 * 50 : 7 * 50] == 0).all()
    assert x[:, : 6 * 50].square().mean().item() == pytest.approx(1 / 7, rel=0.02)
    assert x[:, 7 * 50 : -1].square().mean().item() == pytest.approx(1 / 51, rel=0.05)
