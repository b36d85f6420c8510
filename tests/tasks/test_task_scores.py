"""Hand-written scores of the analytic targets against autograd, and densities against known values."""

import numpy as np
import pytest
import torch
from task_laws import assert_score_is_gradient
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, Normal, StudentT

from parvibench.core.registry import load_task
from parvibench.core.target import Target

FULL_MIXTURES = ["gmm5-2d", "gmm5-10d", "multimodal", "x-shaped"]
SPHERICAL_MIXTURES = [
    "gmm2-2d", "gmm2-20d", "gaussian-100d", "biased-start-gaussian", "lapd-mixture-2", "lapd-mixture-128",
]  # fmt: skip
NAMES = [
    *FULL_MIXTURES, *SPHERICAL_MIXTURES, "lapd-mixture-2048", "banana", "banana-ksivi-code", "correlated-2d",
    "monomial-gamma", "student-t", "funnel-10d", "diffusion-50", "diffusion-100-ksivi-code", "linear-regression",
    "blr-breast-cancer", "ica-synthetic", "bnn-diabetes-sklearn",
]  # fmt: skip


def target_and_points(name: str) -> tuple[Target, Tensor]:
    """A float64 target and points of shape (2, 7, D) over its bulk and beyond."""
    task = load_task(name)
    generator = torch.Generator().manual_seed(11)
    x = 2 * torch.randn(2, 7, task.dim, generator=generator, dtype=torch.float64)
    return task.target((0, 1), "cpu", torch.float64), x


@pytest.mark.parametrize("name", NAMES)
def test_score_is_the_differentiable_gradient(name: str) -> None:
    assert_score_is_gradient(*target_and_points(name))


@pytest.mark.parametrize(
    ("name", "rows", "size"),
    [("linear-regression", 60, 12), ("blr-breast-cancer", 565, 113), ("ica-synthetic", 1000, 100),
     ("bnn-diabetes-sklearn", 398, 199)],
)  # fmt: skip
def test_batches_of_an_epoch_average_to_the_whole(name: str, rows: int, size: int) -> None:
    """Catches a likelihood not scaled by n/B, and a prior, determinant or precision's score that is."""
    target, x = target_and_points(name)
    order = torch.stack([torch.randperm(rows, generator=torch.Generator().manual_seed(r)) for r in (0, 1)])
    for f in (target.score, target.log_density):
        mean = torch.stack([f(x, batch) for batch in order.split(size, dim=1)]).mean(0)
        torch.testing.assert_close(mean, f(x, order), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [*FULL_MIXTURES, *SPHERICAL_MIXTURES])
def test_mixture_density_equals_pytorchs(name: str) -> None:
    """Catches a normaliser or a cross term lost in the expanded square of the spherical mixtures."""
    target, x = target_and_points(name)
    mixture = load_task(name).mixture
    covariances = mixture.covariances
    if covariances is None:
        covariances = torch.diag_embed(mixture.variances.expand_as(mixture.means))
    oracle = MixtureSameFamily(Categorical(mixture.weights), MultivariateNormal(mixture.means, covariances))
    torch.testing.assert_close(target.log_density(x), oracle.log_prob(x), rtol=1e-10, atol=1e-10)


def test_funnel_density_equals_pytorchs() -> None:
    """Catches exp(v) read as a standard deviation, and the missing -9 v / 2 of its normaliser."""
    target, x = target_and_points("funnel-10d")
    v = x[..., 0]
    given = Normal(0.0, (v / 2).exp().unsqueeze(-1)).log_prob(x[..., 1:]).sum(-1)
    torch.testing.assert_close(target.log_density(x), Normal(0.0, 3.0).log_prob(v) + given)


def test_student_density_equals_pytorchs() -> None:
    """A by its recipe (the authors' code, with its missing root of the determinant); log|det A| included.

    Catches digits of A and a lost log-determinant (2.66 nats), which the authors' code omits.
    """
    target, x = target_and_points("student-t")
    b = np.random.RandomState(50).uniform(-1, 1, (2, 2))
    a = np.linalg.inv(b @ b.T)
    a = torch.from_numpy(a / np.linalg.det(a))
    z = x @ torch.linalg.inv(a).T
    oracle = StudentT(torch.tensor(2.0, dtype=torch.float64)).log_prob(z).sum(-1) - torch.linalg.det(a).log()
    torch.testing.assert_close(target.log_density(x), oracle, rtol=1e-6, atol=1e-6)


def test_monomial_gamma_is_finite_on_its_axes() -> None:
    """The score's pole |x|^-0.1 at the axes is floored. Catches 0 * inf = NaN there."""
    target = load_task("monomial-gamma").target((0,), "cpu", torch.float32)
    x = torch.tensor([[[0.0, 1.0], [1e-30, 1.0]]], requires_grad=True)
    score = target.score(x)
    curvature = torch.autograd.grad(score.sum(), x)[0]
    for value in (target.log_density(x), score, curvature):
        assert torch.isfinite(value).all()
    assert score[0, 0, 0] == 0


@pytest.mark.parametrize("name", ["lapd-mixture-2", "lapd-mixture-2048"])
def test_lapd_mixtures_constants_are_sharp(name: str) -> None:
    """L = |f''| at its largest, Tr(H) = L^2, and exp(-R^2) bounds the squared slope of the map from N(0, 1).

    f + ||x||^2 / 2 = -log p, so f'' is the derivative of -s(x) - x along the first axis. The increasing map T of
    N(0, 1) onto the first coordinate has slope phi(Phi^-1(F(t))) / p(t) at T^-1(t). Catches R for R^2, and a
    distance between the means (3) taken for R (1.5).
    """
    task = load_task(name)
    constants = task.facts.constants
    t = torch.linspace(-4, 4, 2001, dtype=torch.float64)
    x = torch.zeros(1, 2001, task.dim, dtype=torch.float64)
    x[0, :, 0] = t
    x.requires_grad_()
    score = task.target((0,), "cpu", torch.float64).score(x)
    hessian = torch.autograd.grad((-score - x)[..., 0].sum(), x)[0][0]
    assert hessian[:, 0].abs().max().item() == pytest.approx(constants["L"])
    assert hessian[:, 1:].abs().max().item() == 0
    assert constants["Tr(H)"] == pytest.approx(constants["L"] ** 2)

    modes = task.facts.modes
    components = Normal(modes.means[:, 0], modes.sds)
    p = components.log_prob(t[:, None]).exp() @ modes.weights
    cdf = components.cdf(t[:, None]) @ modes.weights
    standard = Normal(0.0, 1.0)
    slope = standard.log_prob(standard.icdf(cdf)).exp() / p
    assert (slope**-2).min().item() == pytest.approx(constants["log-Sobolev constant, at least"])


def test_far_points_keep_finite_scores() -> None:
    """Catches densities summed before their logarithm: 40 sd away every component underflows."""
    target = load_task("gmm5-2d").target((0,), "cpu", torch.float32)
    score = target.score(torch.full((1, 1, 2), 40.0))
    assert torch.isfinite(score).all()
    # The widest component, at (-2.055217, -1.126106) with sd 0.5, is all that pulls there.
    torch.testing.assert_close(score[0, 0], -torch.tensor([42.055217, 41.126106]) / 0.25)
