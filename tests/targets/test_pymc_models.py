"""A PyMC model as a task has PyMC's own compiled density, gradient and transforms; what has no such density is refused."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Run

import parvibench as pb
from parvibench.core.errors import InputError
from parvibench.targets.sites import parts

pytest.importorskip("jax", reason="needs JAX: pip install '.[pymc]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ArviZ announces its next version when PyMC imports it
    pm: Any = pytest.importorskip("pymc", reason="needs PyMC: pip install '.[pymc]'")
pytestmark = pytest.mark.filterwarnings("default")

NUMBERS = np.random.default_rng(0).normal(size=(20, 3))


def hierarchy() -> None:
    """Dimensions with labels."""
    mean, spread = pm.Normal("mean", 0, 5), pm.HalfCauchy("spread", 5)
    effect = pm.Normal("effect", mean, spread, dims="school")
    pm.Normal("y", effect, 10.0, observed=np.array([28.0, 8, -3, 7]), dims="school")


def covariance() -> None:
    """A Cholesky factor."""
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    pm.MvNormal("x", np.zeros(3), chol=chol, observed=NUMBERS)


def simplex() -> None:
    """A sum that is one."""
    pm.Multinomial("k", 30, pm.Dirichlet("p", np.ones(4)), observed=[10, 5, 7, 8])


def ordered() -> None:
    """A transform given by the user."""
    cuts = pm.Normal("cuts", [-1, 0, 1], 2, transform=pm.distributions.transforms.ordered, shape=3)
    pm.OrderedLogistic("o", eta=0.3, cutpoints=cuts, observed=[0, 1, 2, 3, 1])


def shared_data() -> None:
    """``pm.Data`` and a potential."""
    x, slope = pm.Data("x", NUMBERS[:, 0]), pm.Gamma("slope", 2, 1)
    pm.Potential("extra", -0.5 * (slope - 1) ** 2)
    pm.Normal("y", slope * x, 1, observed=NUMBERS[:, 1])


def bound_by_another() -> None:
    """A support that depends on another variable."""
    low = pm.Uniform("low", 0, 1)
    pm.Normal("y", pm.Uniform("up", low, 2), 1, observed=[1.2, 0.7])


def process() -> None:
    """A latent Gaussian process."""
    latent = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, pm.InverseGamma("ell", 5, 5)))
    field = latent.prior("f", X=np.linspace(0, 1, 8)[:, None])
    pm.Bernoulli("z", logit_p=field, observed=[0, 1, 1, 0, 1, 1, 0, 0])


def truncated() -> None:
    """A truncated law."""
    pm.Normal("y", pm.Truncated("t", pm.Normal.dist(0, 1), lower=0.0), 1, observed=[0.5])


def mixture() -> None:
    """A label summed out."""
    centres = pm.Normal("centres", [-2, 2], 1, shape=2)
    pm.NormalMixture("y", pm.Dirichlet("w", np.ones(2)), centres, sigma=1.0, observed=NUMBERS[:, 2])


def walk() -> None:
    """A random walk, and numbers that sum to zero."""
    path = pm.GaussianRandomWalk("path", sigma=0.3, init_dist=pm.Normal.dist(0, 1), shape=5)
    pm.Normal("y", path + pm.ZeroSumNormal("z", shape=5), 1, observed=NUMBERS[:5, 0])


def model_of(write: Any) -> Any:
    with pm.Model(coords={"school": list("ABCD")}) as model:
        write()
    return model


@pytest.mark.parametrize(
    "write", [hierarchy, covariance, simplex, ordered, shared_data, bound_by_another, process, truncated, mixture, walk]
)
def test_the_density_is_pymcs_own(write: Any) -> None:
    """Log density and gradient beside PyMC's compiled functions, 1e-8 relative (1e-6 with LKJ's prior)."""
    model = model_of(write)
    task = pb.from_pymc(model, name="model")
    x = 0.7 * torch.randn(3, task.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    density, score = (part[0] for part in task.target([0], "cpu", torch.float64).log_density_and_score(x[None]))
    points = [
        {v.name: p.numpy() for v, p in zip(model.value_vars, parts(row, task.sites).values(), strict=True)} for row in x
    ]
    value, slope = model.compile_logp(), model.compile_dlogp()
    tolerance = 1e-6 if write is covariance else 1e-8
    np.testing.assert_allclose(density, [value(p) for p in points], rtol=tolerance)
    np.testing.assert_allclose(score, [slope(p) for p in points], rtol=tolerance, atol=tolerance)
    there = task.constrain(x)
    torch.testing.assert_close(task.unconstrain(there), x, rtol=1e-8, atol=1e-8)
    outward = model.compile_fn(model.replace_rvs_by_values(model.free_RVs), inputs=model.value_vars)
    for name, theirs in zip(there, zip(*(outward(p) for p in points), strict=True), strict=True):
        np.testing.assert_allclose(there[name], np.stack(theirs), rtol=1e-8)


def test_coordinates_have_the_labels_of_the_model() -> None:
    assert pb.from_pymc(model_of(hierarchy)).coordinates == ("mean", "spread", *(f"effect[{c}]" for c in "ABCD"))


def discrete() -> None:
    pm.Normal("y", pm.Poisson("count", 3), 1, observed=[2.0])


def batches() -> None:
    rows = pm.Minibatch(NUMBERS[:, 0], batch_size=10)
    pm.Normal("y", pm.Normal("m"), 1, observed=rows, total_size=20)


def simulated() -> None:
    pm.Simulator("y", lambda rng, m, size: rng.normal(m, size=size), pm.Normal("m"), observed=np.zeros(5))


@pytest.mark.parametrize(
    ("write", "text"), [(discrete, "'count' is discrete"), (batches, "mini-batches"), (simulated, "no density")]
)
def test_what_has_no_density_is_named(write: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        pb.from_pymc(model_of(write))


def test_a_model_in_a_file_runs_by_its_name_in_workers(call: Run, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "import pymc as pm\nwith pm.Model() as plain:\n    pm.HalfNormal('scale', 2.0)\n"
    )
    options = ("--task", "models.py:plain", "-a", "hmc", "--replicates", "2", "--workers", "1", "--json")
    answer = call("run", *options, "--budget", "iterations=20")
    assert answer.code == 0, answer.err
    (cell,) = answer.json["cells"]
    assert (cell["task"], cell["status"]) == ("plain", "ok")
