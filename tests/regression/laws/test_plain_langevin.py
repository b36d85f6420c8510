"""The laws that tests of Langevin methods expect, against closed forms and against each other."""

import math

import numpy as np
import pytest
from affine_laws import METHODS, Gaussian, held_force, langevin, prior_diffusion
from plain_langevin import TWINS
from scipy import stats


def stationary(step, dim):
    """The law after very many steps."""
    law = Gaussian(np.zeros(len(step.a)), np.eye(len(step.a)))
    for _ in range(4000):
        law = law.after(step)
    return law.positions(dim)


def test_euler_scheme_is_biased_as_known() -> None:
    """Variance 1 / (c (1 - c eta / 2)) around the target's mean."""
    P, eta = np.diag([1.0, 3.0]), 0.2
    law = stationary(langevin(P, P @ [1.0, -2.0], {"step_size": eta}, 0), 2)
    np.testing.assert_allclose(law.mean, [1.0, -2.0])
    np.testing.assert_allclose(law.covariance, np.diag(1 / (np.diag(P) * (1 - np.diag(P) * eta / 2))))


def test_prior_diffusion_has_no_bias_where_only_the_prior_acts() -> None:
    law = stationary(prior_diffusion(np.diag([1.0, 4.0]), np.zeros(2), {"step_size": 0.1}, 0), 2)
    assert law.covariance[0, 0] == pytest.approx(1.0)
    assert law.covariance[1, 1] > 0.25 * 1.05


def test_underdamped_step_is_that_of_the_paper() -> None:
    """Cheng et al. (2018), Lemma 11 and Eq. 10, for gamma = 2: h = delta, u = 1."""
    h = 0.3
    flow, by_score, noise = held_force(h**2, 2 * h)
    e2, e4 = math.exp(-2 * h), math.exp(-4 * h)
    np.testing.assert_allclose(flow, [[1, (1 - e2) / (2 * h)], [0, e2]], atol=1e-14)
    np.testing.assert_allclose(by_score, [(h - (1 - e2) / 2) / 2, h * (1 - e2) / 2])
    x_x, v_v, x_v = h + e2 - e4 / 4 - 3 / 4, 1 - e4, (1 + e4 - 2 * e2) / 2
    np.testing.assert_allclose(noise, [[x_x, h * x_v], [h * x_v, h**2 * v_v]], rtol=1e-9)


@pytest.mark.parametrize("name", ["uld", "sghmc"])
def test_momentum_methods_come_close_to_the_target_with_small_steps(name: str) -> None:
    P = np.array([[2.0, 0.5], [0.5, 1.0]])
    step = METHODS[name](P, np.array([1.0, 0.0]), {"step_size": 1e-3, "friction": 0.3}, 0)
    law = stationary(step, 2)
    np.testing.assert_allclose(law.mean, np.linalg.solve(P, [1.0, 0.0]), rtol=1e-4)
    np.testing.assert_allclose(law.covariance, np.linalg.inv(P), rtol=0.01)


CHAINS = 4000


@pytest.mark.parametrize(
    ("name", "limit", "settings"),
    [
        ("psgld", "psgld", {"step_size": 0.2, "decay": 1.0, "damping": 2.0}),
        ("srld", "ula", {"step_size": 0.1}),
        ("sr-uld", "uld", {"step_size": 0.1, "friction": 0.7}),
        ("sr-sghmc", "sghmc", {"step_size": 0.1, "friction": 0.3}),
    ],
)
def test_plain_programs_have_the_affine_law_in_their_limits(name: str, limit: str, settings: dict) -> None:
    """A frozen preconditioner, no repulsion: Kolmogorov and Smirnov; false alarm 1e-4, seeds fixed."""
    settings = {"alpha": 0.0, "memory": 2, "spacing": 1} | settings
    rng, steps = np.random.default_rng(3), 8
    start = 2 + rng.standard_normal((CHAINS, 1))
    ends = TWINS[name](lambda x: 1 - 2 * x, start, settings, steps, rng)
    velocity = [settings["step_size"]] if limit in ("uld", "sghmc") else []
    law = Gaussian(np.array([2.0] + [0.0] * len(velocity)), np.diag([1.0, *velocity]))
    for k in range(steps):
        law = law.after(METHODS[limit](np.array([[2.0]]), np.array([1.0]), settings, k))
    sd = math.sqrt(law.covariance[0, 0])
    assert stats.kstest(ends[:, 0], "norm", (law.mean[0], sd)).pvalue > 1e-4
