"""NUTS: exact laws, costs as charged, and Pyro's global state kept out of sight."""

import contextlib
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from few import each
from numpy.typing import NDArray
from sampler_toys import Gaussian, Run, Skewed, make_problem
from scipy import stats

from parvibench.core.errors import BudgetExhausted, ShapeError

WARMUP, DRAWS, BATCHES = 200, 1600, 40


def nuts(target: Any, **problem: Any) -> Run:
    return Run("pyro-nuts", make_problem(target, [0], particles=1, **problem), 4 * WARMUP, warmup_steps=WARMUP)


def chain(run: Run, draws: int) -> NDArray[np.float64]:
    return np.array([run.steps(1).state.x.flatten().tolist() for _ in range(draws)])


def law(target: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A one-dimensional law on a grid: points and probabilities."""
    grid = torch.linspace(-60, 40, 20_001, dtype=torch.float64)
    return grid.numpy(), target.log_density(grid.unsqueeze(-1)).softmax(0).numpy()


@pytest.mark.ci
@pytest.mark.parametrize(
    "target", [pytest.param(Gaussian([0.25], mean=1.0), marks=pytest.mark.slow), Skewed()], ids=["gaussian", "skewed"]
)
def test_nuts_has_the_exact_law(target: Any) -> None:
    """Four expectations, Student t of 40 batch means, p > 1e-6 each: false alarm 8e-6 for both targets.

    Catches a potential of the wrong scale and transitions that share their draws; not a wrong gradient, with
    which trajectories stay reversible.
    """
    run = nuts(target).steps(WARMUP)
    x = chain(run, DRAWS)[:, 0]
    grid, weight = law(target)
    quartile = grid[np.searchsorted(weight.cumsum(), 0.25)]
    for f in (lambda x: x, lambda x: x**2, lambda x: x < quartile, lambda x: np.cos(3 * x)):
        batches = f(x).reshape(BATCHES, -1).mean(1)
        p = stats.ttest_1samp(batches, f(grid) @ weight).pvalue
        assert p > 1e-6, f"{batches.mean():.4f}, expected {f(grid) @ weight:.4f}"


def test_the_potential_s_gradient_is_the_score() -> None:
    target = Gaussian([1.0, 4.0], mean=1.0)
    run = nuts(target)
    x = torch.tensor([0.3, -2.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(run.state.kernel.potential_fn({"x": x}), x)
    torch.testing.assert_close(-gradient, target.score(x.detach()))


@pytest.mark.ci
def test_nuts_adapts_while_warming_up_and_never_after() -> None:
    run = nuts(Gaussian([1.0, 400.0]))
    first = run.state.kernel.step_size
    run.steps(WARMUP)
    adapted, mass = run.state.kernel.step_size, run.state.kernel.inverse_mass_matrix
    run.steps(20)
    assert run.state.kernel.step_size == adapted != first
    (variances,) = run.state.kernel.inverse_mass_matrix.values()
    (before,) = mass.values()
    assert torch.equal(variances, before)
    # the warm-up's variances, in the right order and within a factor of four
    assert abs(math.log(variances[0].item() / variances[1].item() / 400)) < math.log(4)


@pytest.mark.parametrize("limit", [400.0, 1500.0])
def test_the_warm_up_ends_when_a_quarter_of_the_budget_is_charged(limit: float) -> None:
    """However many transitions were foreseen. Catches a warm-up that reaches into the judged half."""
    run = Run("pyro-nuts", make_problem(Gaussian([1.0, 400.0]), [0], particles=1, limit=limit), 10**6)
    charged, steps = [0.0], []
    with contextlib.suppress(BudgetExhausted):
        while True:
            run.steps(1)
            charged.append(run.problem.meter.charged)
            steps.append(run.state.kernel.step_size)
    last = next(i for i, spent in enumerate(charged) if spent >= limit / 4)
    assert len(set(steps[last - 1 :])) == 1
    assert len(set(steps[:last])) > 1


@pytest.mark.ci
@pytest.mark.parametrize("warmup", each([1, 20], [1, 2, 5, 20, 60]))
def test_a_short_warm_up_leaves_no_chain_where_it_stood(warmup: int) -> None:
    """Pyro's own schedule ended with a mean over two steps of dual averaging: chains that never moved."""
    for replicate in range(4):
        target = Gaussian([1.0, 25.0, 0.04])
        problem = make_problem(target, [replicate], particles=1, dtype=torch.float32)
        run = Run("pyro-nuts", problem, 10**6, warmup_steps=warmup, max_tree_depth=4).steps(warmup)
        x = chain(run, 25)
        assert (x[1:] != x[:-1]).any(1).mean() > 0.3


def test_a_transition_tells_what_it_did() -> None:
    """A step of ten thousand standard deviations diverges at the first doubling."""
    run = nuts(Gaussian([1.0, 4.0])).steps(30)
    assert 0 < run.info.acceptance.item() <= 1
    assert run.info.divergences.item() == 0
    assert 1 <= run.info.tree_depth.item() <= 10
    run.state.kernel._adapter.step_size = 1e4
    run.steps(1)
    assert (run.info.divergences.item(), run.info.tree_depth.item()) == (1, 1)
    assert run.info.acceptance.item() == 0


def test_every_gradient_is_charged_as_one_score(monkeypatch: pytest.MonkeyPatch) -> None:
    target, calls = Skewed(), []
    plain = target.log_density_and_score
    monkeypatch.setattr(target, "log_density_and_score", lambda *args: calls.append(1) or plain(*args))
    run = nuts(target).steps(20)
    assert run.problem.meter.charged == len(calls) > 20


def test_a_transition_beyond_the_budget_is_dropped() -> None:
    """All steps that fit are the same as without a limit, which only warm-up looks at; the last state stands."""
    problems = [make_problem(Skewed(), [0], particles=1, limit=limit) for limit in (60, None)]
    limited, free = (Run("pyro-nuts", problem, warmup_steps=0) for problem in problems)
    with pytest.raises(BudgetExhausted):
        limited.steps(60)
    assert limited.problem.meter.charged <= 60
    assert limited.iteration > 3
    assert torch.equal(limited.state.x, free.steps(limited.iteration).state.x)


def test_runs_depend_on_their_streams_only() -> None:
    a = nuts(Skewed())
    torch.rand(5)
    states = torch.get_rng_state(), random.getstate()
    b, other = nuts(Skewed()), nuts(Skewed(), seed=8)
    paths = [chain(run, 10) for run in (a, b, other)]
    assert np.array_equal(paths[0], paths[1])
    assert not np.array_equal(paths[0], paths[2])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_positions_keep_shape_dtype_and_their_own_memory(dtype: torch.dtype) -> None:
    run = nuts(Gaussian([1.0, 4.0]), dtype=dtype)
    held = run.state.x
    before = held.clone()
    run.steps(5)
    assert torch.equal(held, before)
    assert run.output(1).shape == (1, 1, 2)
    assert run.state.x.dtype == dtype
    assert not run.state.x.requires_grad


def test_several_replicates_are_refused() -> None:
    with pytest.raises(ShapeError, match="one replicate at a time, got 3"):
        Run("pyro-nuts", make_problem(Skewed()))
