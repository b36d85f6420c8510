"""Posteriors of probabilistic programs: densities and scores are Stan's, scores, transforms, starts.

The programs of `stan/` are written from the models' descriptions; stanli interprets them.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import stan_cases
import torch
from few import needs_data
from stan_cases import NAMES, points
from task_laws import assert_score_is_gradient
from torch.autograd.functional import jacobian

import parvibench as pb
from parvibench.core import registry
from parvibench.core.errors import ShapeError
from parvibench.core.registry import load_task
from parvibench.data.draws.arrays import Draws
from parvibench.data.draws.forms import in_coordinates

POSTERIORS = [pytest.param(n, marks=needs_data(n)) for n in NAMES]


def test_every_posterior_has_a_program() -> None:
    tasks = {n for n, row in registry.tasks().items() if "posterior" in row.tags}
    assert tasks == set(NAMES)


@pytest.mark.parametrize("name", POSTERIORS)
def test_density_and_score_are_stans(name: str) -> None:
    """Catches a prior, a Jacobian or a parameter's place that is not Stan's."""
    for library in ("stanli", "bridgestan"):
        pytest.importorskip(library, reason=f"needs {library}: pip install '.[stan]'")
    task = load_task(name)
    x = points(task, 12)
    assert max(stan_cases.differences(task, x, stan_cases.stans(task, x))) <= stan_cases.TOLERANCE.get(name, 1e-8)


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs_data(n)) for n in stan_cases.VALUES_OF_2_36])
def test_coordinates_of_simplexes_are_those_of_stan_up_to_2_36(name: str) -> None:
    """Later versions of Stan transform them otherwise; values of version 2.36 itself, and names that say which."""
    task, stored = load_task(name), stan_cases.VALUES_OF_2_36[name]
    density, score = stan_cases.ours(task, points(task, 4))
    expected = torch.tensor(stored["log_density"], dtype=torch.float64)
    torch.testing.assert_close(
        density - density[0], expected - expected[0], rtol=1e-8, atol=1e-8 * expected.abs().max().item()
    )
    products = torch.tensor(stored["score"], dtype=torch.float64)
    found = score @ stan_cases.directions(task.dim).T
    assert ((found - products).abs() <= 1e-8 * (1 + score.norm(dim=1, keepdim=True))).all()
    current = [name.replace("_stick", "") for name in task.coordinates]
    draws = Draws(points(task, 4).numpy(), tuple(current))
    with pytest.raises(ShapeError, match=r"coordinates \(simplexes by stick-breaking, as in Stan up to 2\.36"):
        in_coordinates(draws, task)
    in_coordinates(replace(draws, names=task.coordinates), task)


@pytest.mark.parametrize("name", POSTERIORS)
def test_score_is_the_differentiable_gradient(name: str) -> None:
    """Magnitudes go up to 1e13 where a task is badly scaled: tolerances are relative."""
    task = load_task(name)
    few = points(task, 4)
    assert_score_is_gradient(task.target((0, 1), "cpu", torch.float64), few.reshape(2, 2, -1), tolerance=1e-7)


@pytest.mark.parametrize("name", POSTERIORS)
def test_points_do_not_see_each_other(name: str) -> None:
    """Catches a sum over the wrong axis, and an integrator that adapts to the batch."""
    task = load_task(name)
    target, x = task.target((0, 1), "cpu", torch.float64), points(task, 6).reshape(2, 3, -1)
    density, score = target.log_density_and_score(x)
    alone = target.log_density_and_score(x[:1, 1:2])
    torch.testing.assert_close((density[:1, 1:2], score[:1, 1:2]), alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_run_in_inference_mode_starts_at_the_same_points(name: str) -> None:
    """Autograd refuses data that were placed in that mode: methods without gradients of their own crashed."""
    if "stress" in load_task(name).tags:
        pytest.skip("takes as long as all others together")
    with torch.inference_mode():
        inside = load_task(name).problem((0,), 0, particles=2).init()
    assert torch.equal(inside, load_task(name).problem((0,), 0, particles=2).init())


@pytest.mark.parametrize("name", POSTERIORS)
def test_start_is_stans_and_finite(name: str) -> None:
    """Uniform on (-2, 2), with squares of density and score finite in single precision: some of arma11's are not."""
    problem = load_task(name).problem(2, seed=4, particles=20)
    x = problem.init()
    assert x.abs().max() <= 2
    assert not torch.equal(x[0], x[1])
    density, score = problem.log_density_and_score(x)
    assert density.square().isfinite().all()
    assert score.square().isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_coordinates_have_stans_names(name: str) -> None:
    task = load_task(name)
    assert len(set(task.coordinates)) == len(task.coordinates) == task.dim


@pytest.mark.parametrize("name", [pytest.param("glmm-poisson", marks=needs_data("glmm-poisson"))])
def test_beta2_has_no_density_above_ten(name: str) -> None:
    """Declared on (-10, 20), with a uniform prior on (-10, 10): 10 is at log 2."""
    x = torch.zeros(1, 2, 45, dtype=torch.float64)
    x[0, :, 2] = math.log(2) + torch.tensor([-1e-6, 1e-6])
    density = load_task(name).target((0,), "cpu", torch.float64).log_density(x)[0]
    assert density.isfinite().tolist() == [True, False]


def test_names_of_coordinates() -> None:
    """With their transforms, so that values of parameters are not taken for coordinates, as tau for its logarithm."""
    task = load_task("eight-schools-centered")
    assert task.coordinates[-3:] == ("theta[8]", "mu", "tau_log")
    assert load_task("hmm-example").coordinates == (
        "theta1_stick[1]",
        "theta2_stick[1]",
        "mu_ordered[1]",
        "mu_ordered[2]",
    )
    draws = {"theta": np.ones((50, 8)), "mu": np.zeros(50), "tau": np.linspace(1, 5, 50)}
    with pytest.raises(ShapeError, match=r"tau_log missing: .*unconstrained, as tau_log is log tau"):
        pb.evaluate(draws, task="eight-schools-centered")


@pytest.mark.parametrize("name", ["garch11", "hmm-drive", "low-dim-gauss-mix", "normal-mixture-5", "pilots"])
def test_log_jacobian_is_the_transforms(name: str) -> None:
    """Against the determinant of autograd's Jacobian, a simplex without its last share."""
    layout = load_task(name).layout
    u = points(load_task(name), 1)[0]

    def free(u: torch.Tensor) -> torch.Tensor:
        values, _ = layout.constrain(u)
        return torch.cat([values[p.name].reshape(-1)[: p.free] for p in layout.parameters])

    expected = torch.linalg.slogdet(jacobian(free, u))[1]
    torch.testing.assert_close(layout.constrain(u)[1], expected)


def test_simplex_sums_to_one_and_is_even_at_zero() -> None:
    values, _ = load_task("normal-mixture-5").layout.constrain(torch.zeros(14, dtype=torch.float64))
    torch.testing.assert_close(values["theta"], torch.full((5,), 0.2, dtype=torch.float64))


def test_order_of_a_series_of_matrices() -> None:
    """A product in pairs is the product from left to right, also of an odd number of matrices."""
    from parvibench.tasks.hidden_markov import log_product

    a = torch.rand(2, 2, 3, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.stack([torch.linalg.multi_dot(list(a[:, :, k].permute(2, 0, 1))) for k in range(3)], -1)
    torch.testing.assert_close(log_product(a.log()).exp(), expected)


def test_recursion_is_the_loops() -> None:
    from parvibench.tasks.time_series import recursion

    c = torch.randn(3, 13, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    a, e = torch.tensor([0.5, -0.9, 1.1], dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    expected = []
    for t in range(13):
        e = c[:, t] + a * e
        expected.append(e)
    torch.testing.assert_close(recursion(a, c), torch.stack(expected, 1))


def test_populations_conserve_what_the_equations_do() -> None:
    """delta u - gamma log u + beta v - alpha log v is constant along a path. Catches a stage left out or repeated."""
    from parvibench.tasks.lotka_volterra import paths

    rates = torch.tensor([[0.55], [0.028], [0.8], [0.024]], dtype=torch.float64)
    start = torch.tensor([[math.log(34.0)], [math.log(6.0)]], dtype=torch.float64)
    p, q = torch.cat([start.unsqueeze(1), paths(rates, start, 20)], 1)
    alpha, beta, gamma, delta = rates
    energy = delta * p.exp() - gamma * p + beta * q.exp() - alpha * q
    torch.testing.assert_close(energy, energy[:1].expand_as(energy), rtol=1e-6, atol=1e-6)
