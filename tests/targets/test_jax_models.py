"""Densities in JAX and NumPyro models as tasks; twins of shipped tasks."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import parvibench as pb
from parvibench.checks.questions.calibration import _Binomial
from parvibench.checks.targets import STABLE
from parvibench.core import registry
from parvibench.core.errors import InputError, ShapeError
from parvibench.core.target import Target

TWINS = (
    "banana", "banana-ksivi-code", "correlated-2d", "funnel-10d", "biased-start-gaussian", "gaussian-100d", "multimodal",
    "gmm40-2d",
)  # fmt: skip


jax = pytest.importorskip("jax", reason="needs JAX: pip install '.[jax]'")
numpyro = pytest.importorskip("numpyro", reason="needs NumPyro: pip install '.[jax]'")
import jax.numpy as jnp  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from numpyro.infer.util import potential_energy  # noqa: E402

from parvibench.jax_programs.loading import double_jax  # noqa: E402


@pytest.mark.parametrize("name", [*TWINS, *STABLE])
def test_a_twin_is_the_density(name: str) -> None:
    """At points of the start and far out."""
    task = STABLE.get(name) or registry.load_task(name)
    target = task.target([0], "cpu", torch.float64)
    x = task.initial(target, 50, [torch.Generator().manual_seed(1)])[0] * torch.linspace(0.5, 3, 50)[:, None]
    assert task.target([3], "cpu", torch.float32).in_jax().log_density is target.in_jax().log_density  # type: ignore[union-attr]
    assert_twins(target, x)


def test_the_posterior_of_calibrations_has_a_twin() -> None:
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(0, 9, (1, 1, 6), generator=generator).double()
    assert_twins(_Binomial(y), 3 * torch.randn(50, 6, generator=generator, dtype=torch.float64))


def assert_twins(target: Target, x: Tensor) -> None:
    """Score to 1e-8 and density up to a constant in double precision."""
    twin = target.in_jax()
    assert twin is not None
    found = double_jax().vmap(jax.value_and_grad(twin.log_density, argnums=1), in_axes=(None, 0))(twin.data, x.numpy())
    value, score = (torch.from_numpy(np.array(part)) for part in found)
    density, gradient = (part[0] for part in target.log_density_and_score(x[None]))
    torch.testing.assert_close(score, gradient, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(value - value[0], density - density[0], rtol=1e-8, atol=1e-8)


SAMPLED_BEFORE = """
import numpy as np, jax, numpyro, numpyro.distributions as dist, parvibench as pb
from numpyro.infer import MCMC, NUTS
y, sd = np.array([2.1, -0.3, 1.7]), np.array([1.0, 2.0, 0.5])
def model(y=None):
    numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal(0, 3)), sd), obs=y)
density = lambda x: -0.5 * (((y - x[0]) / sd) ** 2).sum()
run = MCMC(NUTS(model), num_warmup=2, num_samples=2, progress_bar=False)
run.run(jax.random.PRNGKey(0), y=y)
jax.jit(density)(np.zeros(1))
tasks = pb.from_numpyro(model, y=y), pb.from_jax(density, 1, name="density")
run.run(jax.random.PRNGKey(1), y=y)
print([task.dim for task in tasks])
"""


def test_data_that_jax_met_in_single_precision_are_read_in_double() -> None:
    """A model that NumPyro has sampled, and a density that was compiled, in the same process; both run again afterwards."""
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SAMPLED_BEFORE], capture_output=True, text=True, check=False
    )
    assert shown.stdout == "[1, 1]\n", shown.stderr[-2000:]


def test_a_density_in_jax_is_a_task(tmp_path: Path) -> None:
    data = np.array([1.5, 2.5, 0.1])
    task = pb.from_jax(lambda x: -0.5 * ((data - x[0]) ** 2).sum() - 0.5 * x[1] ** 2, dim=2, name="mean")
    target, x = task.target([0], "cpu", torch.float64), torch.randn(1, 5, 2, dtype=torch.float64)
    density, score = target.log_density_and_score(x)
    expected = -0.5 * (torch.tensor(data) - x[..., :1]).square().sum(-1) - 0.5 * x[..., 1] ** 2
    torch.testing.assert_close(density, expected, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(score, torch.stack([data.sum() - 3 * x[..., 0], -x[..., 1]], -1))
    torch.testing.assert_close(target.score(x), score)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(target.log_density(leaf).sum(), leaf)[0], score)
    options = {"workers": 0, "out": tmp_path, "tracking": False, "budget": {"iterations": 20}, "replicates": 2}
    assert not pb.run(tasks=[task], algorithms=["mala"], **options).failed


def test_what_is_no_density_in_jax_is_an_error() -> None:
    with pytest.raises(InputError, match=r"two: the log density fails for a JAX array of shape \(2,\): .*scalar"):
        pb.from_jax(lambda x: x, dim=2, name="two")
    with pytest.raises(InputError, match="TracerBoolConversionError"):
        pb.from_jax(lambda x: 0.0 if x[0] > 0 else -x[0], dim=2, name="branch")
    with pytest.raises(InputError, match="log_density is -inf"):
        pb.from_jax(lambda x: jnp.log(x[0] * 0), dim=1, name="edge")


def test_a_numpyro_model_is_its_posterior() -> None:
    """Against NumPyro's potential to 1e-8, and against a density written with SciPy: sites, maps and Jacobians."""
    y = np.array([1.0, 2.5, 0.3])

    def model(y: Any) -> None:
        sd = numpyro.sample("sd", dist.HalfNormal(2))
        p = numpyro.sample("p", dist.Beta(2, 3))
        with numpyro.plate("rows", 3):
            mean = numpyro.sample("mean", dist.Normal(0, sd))
            numpyro.sample("y", dist.Normal(mean + p, 0.5), obs=y)

    task = pb.from_numpyro(model, y)
    assert task.coordinates == ("sd", "p", "mean[0]", "mean[1]", "mean[2]")
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = {k: v.numpy() for k, v in task.constrain(x).items()}
    np.testing.assert_allclose(values["sd"], np.exp(x[:, 0].numpy()))
    np.testing.assert_allclose(values["p"], 1 / (1 + np.exp(-x[:, 1].numpy())))
    torch.testing.assert_close(task.unconstrain(values), x)
    found = task.target([0], "cpu", torch.float64).log_density(x[None])[0].numpy()
    free = {"sd": x[:, 0].numpy(), "p": x[:, 1].numpy(), "mean": x[:, 2:].numpy()}
    np.testing.assert_allclose(found, -jax.vmap(lambda z: potential_energy(model, (y,), {}, z))(free), rtol=1e-8)
    sd, p, mean = values["sd"], values["p"], values["mean"]
    own = stats.halfnorm.logpdf(sd, scale=2) + np.log(sd) + stats.beta.logpdf(p, 2, 3) + np.log(p * (1 - p))
    own += stats.norm.logpdf(mean, 0, sd[:, None]).sum(1) + stats.norm.logpdf(y, mean + p[:, None], 0.5).sum(1)
    np.testing.assert_allclose(found, own, rtol=1e-8)
    with pytest.raises(ShapeError, match="no values of mean; found sd, p"):
        task.unconstrain({"sd": sd, "p": p})
    with pytest.raises(ShapeError, match="outside of it"):
        task.unconstrain(values | {"p": p + 1})


def test_numpyro_simplices_and_correlations() -> None:
    """Fewer coordinates than numbers in a value; the density integrates to that of the prior's law by its moments."""

    def model() -> None:
        numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("root", dist.LKJCholesky(3, 2.0))

    task = pb.from_numpyro(model)
    assert task.dim == 2 + 3
    values = task.constrain(torch.zeros(2, 5))
    torch.testing.assert_close(values["shares"].sum(1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(values["root"][0], torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(task.unconstrain(values), torch.zeros(2, 5, dtype=torch.float64))


@pytest.mark.parametrize("algorithm", ["numpyro-nuts", "blackjax-nuts"])
def test_samplers_in_single_precision_take_a_numpyro_model(tmp_path: Path, algorithm: str) -> None:
    """They compile in single precision around a density in double: neither changes the other's while it is compiled."""
    pytest.importorskip("blackjax", reason="needs BlackJAX: pip install '.[jax]'")

    def two() -> None:
        numpyro.sample("a", numpyro.distributions.Normal(np.zeros(2), np.array([1.0, 2.0])).to_event(1))

    task = pb.from_numpyro(two)
    options: Any = {"particles": 4, "replicates": 1, "budget": {"scores_per_particle": 200}, "workers": 0}
    (cell,) = pb.run(tasks=[task], algorithms=[algorithm], out=tmp_path / "store", **options).cells
    assert (cell.status, cell.reason) == ("ok", "")
    assert jax.numpy.zeros(2).dtype == "float64"


def test_numpyro_models_that_have_no_density_here() -> None:
    def discrete() -> None:
        numpyro.sample("k", dist.Poisson(3.0))

    def part(y: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("rows", 10, subsample_size=5) as rows:
            numpyro.sample("y", dist.Normal(mean, 1), obs=y[rows])

    with pytest.raises(InputError, match=r"site 'k' is discrete \(Poisson\)"):
        pb.from_numpyro(discrete)
    with pytest.raises(InputError, match=r"plate 'rows' is subsampled \(5 of 10 rows\)"):
        pb.from_numpyro(part, np.zeros(10))
    with pytest.raises(InputError, match="no latent sites"):
        pb.from_numpyro(lambda: numpyro.sample("y", dist.Normal(0, 1), obs=1.0), name="seen")
    with pytest.raises(InputError, match="the model fails: TypeError"):
        pb.from_numpyro(part, name="nothing")


def test_log_densities_of_a_batch_do_not_depend_on_its_size() -> None:
    task = pb.from_jax(lambda x: -jnp.cosh(x).sum(), dim=3, name="cosh")
    x = torch.randn(1, 7, 3, dtype=torch.float64)
    target = task.target([0], "cpu", torch.float64)
    torch.testing.assert_close(target.log_density(x)[0, 3:4], target.log_density(x[:, 3:4])[0], rtol=0, atol=1e-14)
    assert math.isclose(float(target.log_density(x * 0)[0, 0]), -3)
