"""``pb.from_pyro``: models as people write them have Pyro's own density and values, and what cannot be one is refused in words."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from own_files import PYRO
from pyro import poutine
from pyro.distributions import constraints
from pyro.infer.mcmc.util import initialize_model
from pyro.nn import PyroModule, PyroParam, PyroSample
from torch import Generator
from torch.distributions import biject_to

import parvibench as pb
from parvibench.core.errors import InputError, ShapeError
from parvibench.data.draws.forms import draws_of, in_coordinates

G = Generator().manual_seed(11)
X, Y = torch.randn(20, 2, generator=G), torch.randn(20, generator=G)
SEEN = torch.arange(20) % 3 != 0
OWN: dict[str, Any] = {}  #: eight schools, and a regression with a simplex and a Cholesky factor
exec(PYRO, OWN)


def flat():
    m = pyro.sample("m", dist.ImproperUniform(constraints.real, (), ()))
    pyro.sample("y", dist.Normal(m, 1).expand([20]).to_event(1), obs=Y)


def flat_positive_vector():
    s = pyro.sample("s", dist.ImproperUniform(constraints.positive, (), (3,)))
    m = pyro.sample("m", dist.ImproperUniform(constraints.real_vector, (), (2,)))
    pyro.sample("y", dist.Normal(m.sum() + s.sum(), s.prod() + 1).expand([20]).to_event(1), obs=Y)


def flat_by_mask():
    m = pyro.sample("m", dist.Normal(0.0, 1.0).expand([2]).to_event(1).mask(False))
    pyro.sample("y", dist.Normal(X @ m, 1.0).to_event(1), obs=Y)


class Net(PyroModule):
    def __init__(self) -> None:
        super().__init__()
        self.fc = PyroModule[torch.nn.Linear](2, 1)
        self.fc.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
        self.fc.bias = PyroSample(dist.Normal(0.0, 1.0).expand([1]).to_event(1))

    def forward(self, x, y=None):
        mean = self.fc(x).squeeze(-1)
        sd = pyro.sample("sd", dist.Uniform(0.0, 10.0))
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(mean, sd), obs=y)


class Deep(PyroModule):
    """Two layers, the second with plain parameters and a buffer that are no latent sites."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = PyroModule[torch.nn.Linear](2, 3)
        self.inner.weight = PyroSample(dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
        self.inner.bias = PyroSample(dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        self.outer = torch.nn.Linear(3, 1)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x, y=None):
        mean = self.outer(torch.tanh(self.inner(x))).squeeze(-1)
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(mean, self.scale), obs=y)


class Attributes(PyroModule):
    """Priors that depend on one another, and a constrained parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.tau = PyroSample(dist.HalfNormal(1.0))
        self.theta = PyroSample(lambda self: dist.Normal(0.0, self.tau).expand([3]).to_event(1))
        self.noise = PyroParam(torch.tensor(0.7), constraints.positive)

    def forward(self, y):
        pyro.sample("y", dist.Normal(self.theta.sum(), self.noise).expand([20]).to_event(1), obs=y)


def ordered():
    c = pyro.sample(
        "c", dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([4]), [dist.transforms.OrderedTransform()])
    )
    p = pyro.sample("p", dist.Beta(2.0, 2.0))
    pyro.sample("y", dist.OrderedLogistic(torch.logit(p).expand(20), c).to_event(1), obs=torch.arange(20) % 5)


def ordered_flat():
    c = pyro.sample("c", dist.ImproperUniform(constraints.ordered_vector, (), (3,)))
    pyro.sample("y", dist.Normal(c, 1.0).to_event(1), obs=torch.tensor([-1.0, 0.0, 1.0]))


def simplexes():
    with pyro.plate("groups", 4):
        w = pyro.sample("w", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("data", 4):
        pyro.sample("y", dist.Categorical(w), obs=torch.tensor([0, 1, 2, 1]))


def masked_plate():
    m = pyro.sample("m", dist.Normal(0.0, 1.0))
    s = pyro.sample("s", dist.LogNormal(0.0, 1.0))
    with pyro.plate("data", 20), poutine.mask(mask=SEEN):
        pyro.sample("y", dist.Normal(m, s), obs=Y)


def masked_distribution():
    m = pyro.sample("m", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 20):
        pyro.sample("y", dist.Normal(m, 1.0).mask(SEEN), obs=Y)


def missing_values():
    m = pyro.sample("m", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 20):
        pyro.sample("y", dist.Normal(m, 1.0), obs=Y, obs_mask=SEEN)


def scaled_plates():
    with pyro.plate("schools", 5, dim=-2), pyro.plate("times", 4, dim=-1):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
    with poutine.scale(scale=2.5), pyro.plate("data", 20):
        pyro.sample("y", dist.StudentT(4.0, z.flatten(), 1.0), obs=Y)


def matrices():
    L = pyro.sample("L", dist.LKJCholesky(3, torch.tensor(2.0)))
    s = pyro.sample("s", dist.HalfCauchy(torch.ones(3)).to_event(1))
    with pyro.plate("data", 5):
        pyro.sample("y", dist.MultivariateNormal(torch.zeros(3), scale_tril=s[:, None] * L), obs=Y[:15].reshape(5, 3))


def factors_and_truncation():
    a = pyro.sample("a", dist.Uniform(-2.0, 3.0))
    b = pyro.sample("b", dist.VonMises(0.0, 2.0))
    pyro.factor("f", -0.5 * (a * b) ** 2)
    pyro.deterministic("c", a + b)


def counts():
    rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
    zero = pyro.sample("zero", dist.Beta(1.0, 3.0))
    with pyro.plate("data", 20):
        pyro.sample("y", dist.ZeroInflatedPoisson(rate, gate=zero), obs=(torch.arange(20) % 4).float())


def branching():
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    scale = 1.0 if x > 0 else 2.0
    pyro.sample("y", dist.Normal(x, scale), obs=torch.tensor(0.3))


class Masked(dist.Normal):
    """Its density selects by a mask, which no program for many points at once can do."""

    def log_prob(self, value):
        return super().log_prob(value)[self.loc > -9].sum()


def selecting():
    x = pyro.sample("x", dist.Normal(0.0, 1.0))
    pyro.sample("y", Masked(x, 1.0), obs=torch.tensor(0.3))


def votes():
    """PyTorch's multinomial branches on the counts."""
    share = pyro.sample("share", dist.Dirichlet(torch.full((3,), 2.0)))
    with pyro.plate("wards", 2):
        pyro.sample("votes", dist.Multinomial(10, share), obs=torch.tensor([[0.0, 3.0, 7.0], [2.0, 0.0, 8.0]]))


#: Model, arguments, dimension.
MODELS: dict[str, tuple[Callable[[], Any], tuple[Any, ...], int]] = {
    "flat": (lambda: flat, (), 1),
    "flat with shapes": (lambda: flat_positive_vector, (), 5),
    "a network": (Net, (X, Y), 4),
    "a network in double precision": (lambda: Net().double(), (X.double(), Y.double()), 4),
    "a network, its data alone in double precision": (Net, (X.double(), Y.double()), 4),
    "attributes": (Attributes, (Y,), 4),
    "ordered": (lambda: ordered, (), 5),
    "simplexes": (lambda: simplexes, (), 8),
    "masked plate": (lambda: masked_plate, (), 2),
    "missing values": (lambda: missing_values, (), 21),
    "plates and scales": (lambda: scaled_plates, (), 20),
    "matrices": (lambda: matrices, (), 6),
    "flat by mask": (lambda: flat_by_mask, (), 2),
    "two layers": (Deep, (X, Y), 9),
    "ordered, flat": (lambda: ordered_flat, (), 3),
    "masked distribution": (lambda: masked_distribution, (), 1),
    "factors": (lambda: factors_and_truncation, (), 2),
    "counts": (lambda: counts, (), 2),
    "eight schools": (lambda: OWN["eight_schools"], (OWN["y"], OWN["sigma"]), 10),
    "a regression": (lambda: OWN["glm"], tuple(OWN[name] for name in ("X", "group", "counts")), 15),
    "a branch, called point by point": (lambda: branching, (), 1),
    "a mask, called point by point": (lambda: selecting, (), 1),
    "counts of several, called point by point": (lambda: votes, (), 2),
}


def anywhere(site):
    """A start: Pyro's own draw from the law, which improper ones have not."""
    law = site["fn"]
    if isinstance(law, dist.ImproperUniform):
        transform = biject_to(law.support)
        return transform(torch.zeros(transform.inverse_shape(law.shape())))
    value = law.sample()
    return value.to(torch.get_default_dtype()) if value.is_floating_point() else value


def in_precision(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


@pytest.mark.parametrize("kind", MODELS)
def test_the_density_is_pyro_s_potential(kind: str) -> None:
    """Up to a constant at no point: joint density and Jacobians at ten points, by Pyro's own program in float64."""
    make, args, dim = MODELS[kind]
    pyro.set_rng_seed(0)
    model = make()
    task = pb.from_pyro(model, *args, name="kind")
    assert task.dim == dim
    x = torch.randn(10, dim, generator=Generator().manual_seed(1), dtype=torch.float64)
    ours = task.target([0], "cpu", torch.float64).log_density(x[None])[0]
    precision = task.precision or torch.float64  # data that a model closes over are of one type
    torch.set_default_dtype(precision)
    try:
        own = model.to(precision) if isinstance(model, torch.nn.Module) else model
        _, potential, transforms, trace = initialize_model(
            own, tuple(in_precision(a, precision) for a in args), max_plate_nesting=2, init_strategy=anywhere
        )
        theirs = []
        for point in x.to(precision):
            values, at = {}, 0
            for site, node in trace.nodes.items():
                if node["type"] == "sample" and not node["is_observed"] and site in transforms:
                    shape = transforms[site](node["value"]).shape
                    values[site] = point[at : at + shape.numel()].reshape(shape)
                    at += shape.numel()
            theirs.append(-potential(values).detach())
    finally:
        torch.set_default_dtype(torch.float32)
    tolerance = 1e-6 if task.precision is not torch.float32 else 1e-4
    torch.testing.assert_close(ours, torch.stack(theirs).double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", MODELS)
def test_values_of_sites_go_there_and_back(kind: str) -> None:
    make, args, dim = MODELS[kind]
    task = pb.from_pyro(make(), *args, name="kind")
    x = torch.randn(50, dim, generator=Generator().manual_seed(2), dtype=torch.float64)
    values = task.constrain(x)
    arrays = {site: value.numpy().copy() for site, value in values.items()}
    for array in arrays.values():
        array.setflags(write=False)
    torch.testing.assert_close(task.unconstrain(arrays), x)
    torch.testing.assert_close(task.unconstrain({s: v.clone().requires_grad_() for s, v in values.items()}), x)
    if kind == "a regression":
        torch.testing.assert_close(values["weights"].sum(-1), torch.ones(50, dtype=torch.float64))
        torch.testing.assert_close(values["L"].square().sum(-1), torch.ones(50, 3, dtype=torch.float64))
    with pytest.raises(ShapeError, match="no values of"):
        task.unconstrain({"other": torch.zeros(3)})


@pytest.mark.parametrize("style", ["{}[{}]", "{}.{}", "('{}', {})", "{}_{}", "{}({})"])
def test_values_of_sites_are_values_in_every_style_of_names(style: str) -> None:
    """Names of coordinates are those of sites: constrained values must not be taken as points."""
    task = pb.from_pyro(flat_positive_vector, name="kind")
    x = torch.randn(20, task.dim, generator=Generator().manual_seed(2), dtype=torch.float64)
    values = task.constrain(x)
    torch.testing.assert_close(torch.tensor(in_coordinates(draws_of(values), task).values), x)
    columns = {style.format(k, i + 1): v[:, i].numpy() for k, v in values.items() for i in range(v.shape[1])}
    found = in_coordinates(draws_of(pd.DataFrame(dict(reversed(columns.items())))), task)
    torch.testing.assert_close(torch.tensor(found.values), x)
    assert "mapped" in found.read[-1]
    metrics = (pb.evaluate(draws, task=task, metrics=["ksd"])["metrics"][0] for draws in (x, values))
    assert next(metrics)["value"] == pytest.approx(next(metrics)["value"])


def test_a_model_is_left_as_it_was() -> None:
    """A module's own parameters keep their type, and Pyro's parameters their values."""
    model = Deep()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    task = pb.from_pyro(model, X, Y, name="kind")
    task.target([0], "cpu", torch.float64).log_density(torch.zeros(1, 3, 9, dtype=torch.float64))
    after = model.state_dict()
    assert {k: v.dtype for k, v in after.items()} == {k: v.dtype for k, v in before.items()}
    assert all(torch.equal(after[k], v) for k, v in before.items())


def test_a_label_of_its_own() -> None:
    assert pb.from_pyro(flat, name="my flat-1.2".replace(" ", "-")).name == "my-flat-1.2"
    assert pb.from_pyro(Net(), X, Y).name == "Net"
    with pytest.raises(InputError, match="name"):
        pb.from_pyro(flat, name="../flat")


def regression() -> Any:
    make, args, _ = MODELS["a regression"]
    return pb.from_pyro(make(), *args)


def test_initial_points_are_uniform_draws_without_the_worst() -> None:
    """One uniform draw in ten is worse than the worst of 200 points by chance with odds of 1e-8 or so."""
    task = regression()
    target, generator = task.target([0], "cpu", torch.float64), Generator().manual_seed(1)
    x = task.initial(target, 200, [generator])
    assert x.shape == (1, 200, task.dim)
    assert x.abs().max() <= 2
    uniform = 4 * torch.rand(1, 2000, task.dim, generator=generator, dtype=torch.float64) - 2
    assert target.log_density(x).min() > target.log_density(uniform).quantile(0.1)


def test_single_precision_runs() -> None:
    """As suites run: finite scores of that type."""
    problem = regression().problem(2, 0, particles=5)
    score = problem.score(problem.init())
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
