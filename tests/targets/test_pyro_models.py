"""``pb.from_pyro``: the density is Pyro's own, and what cannot be one is refused in words."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from own_files import PYRO, write
from pyro.infer.mcmc.util import initialize_model
from torch import Generator
from torch.distributions import biject_to, constraints

import parvibench as pb
from parvibench.core import registry
from parvibench.core.errors import InputError, ShapeError

ARGUMENTS = {"schools": ("eight_schools", "y sigma"), "counted": ("glm", "X group counts")}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory):
    path = write(tmp_path_factory.mktemp("pyro"), "models.py", PYRO)
    return registry._load_file(path)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_density_is_pyro_s_own(name: str, models) -> None:
    """At a hundred points, in float64, to 1e-6: joint density and all Jacobians."""
    task, (function, data) = getattr(models, name), ARGUMENTS[name]
    x = 2 * torch.randn(100, task.dim, generator=Generator().manual_seed(1), dtype=torch.float64)
    arguments = [getattr(models, d) for d in data.split()]
    arguments = [a.double() if a.is_floating_point() else a for a in arguments]
    torch.set_default_dtype(torch.float64)
    try:
        _, potential, transforms, trace = initialize_model(getattr(models, function), tuple(arguments))
        theirs = []
        for point in x:
            values, at = {}, 0
            for site, node in trace.nodes.items():
                if node["type"] == "sample" and not node["is_observed"] and site in transforms:
                    shape = transforms[site](node["value"]).shape
                    values[site] = point[at : at + shape.numel()].reshape(shape)
                    at += shape.numel()
            assert at == task.dim
            theirs.append(-potential(values))
    finally:
        torch.set_default_dtype(torch.float32)
    ours = task.target([0], "cpu", torch.float64).log_density(x[None])[0]
    torch.testing.assert_close(ours, torch.stack(theirs).detach(), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_values_of_sites_go_there_and_back(name: str, models) -> None:
    task = getattr(models, name)
    x = torch.randn(50, task.dim, generator=Generator().manual_seed(2), dtype=torch.float64)
    values = task.constrain(x)
    torch.testing.assert_close(task.unconstrain(values), x)
    arrays = {site: value.numpy() for site, value in values.items()}
    for array in arrays.values():
        array.setflags(write=False)
    torch.testing.assert_close(task.unconstrain(arrays), x)
    torch.testing.assert_close(task.unconstrain({s: v.clone().requires_grad_() for s, v in values.items()}), x)
    if name == "counted":
        torch.testing.assert_close(values["weights"].sum(-1), torch.ones(50, dtype=torch.float64))
        torch.testing.assert_close(values["L"].square().sum(-1), torch.ones(50, 3, dtype=torch.float64))
        by_torch = biject_to(constraints.simplex).inv(values["weights"])
        where = [i for i, c in enumerate(task.coordinates) if c.startswith("weights")]
        torch.testing.assert_close(x[:, where], by_torch)
    with pytest.raises(ShapeError, match="no values of"):
        task.unconstrain({"other": torch.zeros(3)})


def test_initial_points_are_uniform_draws_without_the_worst(models) -> None:
    """One uniform draw in ten is worse than the worst of 200 points by chance with odds of 1e-8 or so."""
    task = models.counted
    target, generator = task.target([0], "cpu", torch.float64), Generator().manual_seed(1)
    x = task.initial(target, 200, [generator])
    assert x.shape == (1, 200, task.dim)
    assert x.abs().max() <= 2
    uniform = 4 * torch.rand(1, 2000, task.dim, generator=generator, dtype=torch.float64) - 2
    assert target.log_density(x).min() > target.log_density(uniform).quantile(0.1)


def test_single_precision_runs(models) -> None:
    """As suites run: finite scores of that type."""
    score = models.counted.problem(2, 0, particles=5).score(models.counted.problem(2, 0, particles=5).init())
    assert score.dtype == torch.float32
    assert bool(score.isfinite().all())


def mixture():
    z = pyro.sample("z", dist.Bernoulli(0.5))
    pyro.sample("x", dist.Normal(z, 1.0))


def subsampled():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 100, subsample_size=10):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=torch.zeros(10))


def bounded():
    low = pyro.sample("low", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Uniform(low, low + 1.0))


def changing():
    n = int(torch.randint(1, 9, ()))
    for i in range(n):
        pyro.sample(f"x{i}", dist.Normal(0.0, 1.0))


def branching():
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    scale = 1.0 if x > 0 else 2.0
    pyro.sample("y", dist.Normal(x, scale), obs=torch.tensor(0.3))


class Masked(dist.Normal):
    """Its density selects by a mask, which no program for many points at once can do."""

    def log_prob(self, value):
        return super().log_prob(value)[self.loc > -9].sum()


def masked():
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    pyro.sample("y", Masked(x, 1.0), obs=torch.tensor(0.3))


def observed():
    pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.tensor(0.3))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (mixture, r"site 'z' is discrete \(Bernoulli\).*sum it out"),
        (subsampled, r"plate 'rows' is subsampled \(10 of 100 rows\)"),
        (bounded, "the support of site 'x' depends on other sites"),
        (changing, "change from run to run"),
        (observed, "no latent sites"),
        (lambda: 1 / 0, "the model fails: ZeroDivisionError"),
    ],
)
def test_what_is_no_density_is_refused(model, told: str) -> None:
    with pytest.raises(InputError, match=told):
        pb.from_pyro(model, name="refused")


@pytest.mark.parametrize(("model", "scales"), [(branching, (2.0, 1.0)), (masked, (1.0, 1.0))])
def test_models_that_branch_on_values_are_called_point_by_point(model, scales: tuple[float, float]) -> None:
    x, y = torch.tensor([[-1.0], [0.5]], dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    found = pb.from_pyro(model, name="branches").target([0], "cpu", torch.float64).log_density(x[None])[0]
    likelihood = dist.Normal(x[:, 0], torch.tensor(scales, dtype=torch.float64)).log_prob(y)
    torch.testing.assert_close(found, dist.Normal(0.0, 1.0).log_prob(x[:, 0]) + likelihood)


def test_observed_counts_have_pyro_s_density() -> None:
    """PyTorch's multinomial branches on the counts: its density is called point by point."""
    counts = torch.tensor([[0.0, 3.0, 7.0], [2.0, 0.0, 8.0]])

    def votes():
        share = pyro.sample("share", dist.Dirichlet(torch.full((3,), 2.0)))
        with pyro.plate("wards", 2):
            pyro.sample("votes", dist.Multinomial(10, share), obs=counts)

    task = pb.from_pyro(votes)
    x = torch.randn(1, 20, 2, generator=Generator().manual_seed(3), dtype=torch.float64)
    share = task.constrain(x[0])["share"]
    jacobian = biject_to(constraints.simplex).log_abs_det_jacobian(x[0], share)
    expected = dist.Dirichlet(torch.full((3,), 2.0)).log_prob(share) + jacobian
    for row in counts:
        expected = expected + torch.stack([dist.Multinomial(10, p).log_prob(row.double()) for p in share])
    torch.testing.assert_close(task.target([0], "cpu", torch.float64).log_density(x)[0], expected)
