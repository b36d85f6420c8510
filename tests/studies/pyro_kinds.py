"""Pyro models put together at random: constrained sites, plates, flat priors, modules, masked observations.

``python tests/studies/pyro_kinds.py --models 60``. The density of ``pb.from_pyro`` against Pyro's own potential at ten
random points; a refusal is right for models that are no density on R^D (discrete sites, supports that depend on others).
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions import constraints
from pyro.infer.mcmc.util import initialize_model
from pyro.nn import PyroModule, PyroSample
from torch import Generator
from torch.distributions import biject_to

import parvibench as pb
from parvibench.core.errors import InputError

#: Kind -> a law of a vector of three, or of a scalar, in a precision that the moment decides.
SITES: dict[str, Callable[[], Any]] = {
    "normal": lambda: dist.Normal(0.0, 1.0).expand([3]).to_event(1),
    "positive": lambda: dist.HalfCauchy(torch.ones(3)).to_event(1),
    "unit": lambda: dist.Beta(2.0, 3.0).expand([3]).to_event(1),
    "interval": lambda: dist.Uniform(-1.0, 2.0).expand([3]).to_event(1),
    "simplex": lambda: dist.Dirichlet(torch.ones(3)),
    "ordered": lambda: dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([3]), [dist.transforms.OrderedTransform()]),
    "correlations": lambda: dist.LKJCholesky(3, torch.tensor(1.5)),
    "flat": lambda: dist.ImproperUniform(constraints.real_vector, (), (3,)),
    "flat positive": lambda: dist.ImproperUniform(constraints.positive, (), (3,)),
    "flat ordered": lambda: dist.ImproperUniform(constraints.ordered_vector, (), (3,)),
    "flat simplex": lambda: dist.ImproperUniform(constraints.simplex, (), (3,)),
    "masked prior": lambda: dist.Normal(torch.zeros(3), 1.0).mask(False).to_event(1),
    "transformed": lambda: dist.LogNormal(torch.zeros(3), 0.5).to_event(1),
    "scalar": lambda: dist.StudentT(3.0, 0.0, 1.0),
    "multivariate": lambda: dist.MultivariateNormal(torch.zeros(3), torch.eye(3)),
    "angle": lambda: dist.VonMises(0.0, 2.0),
    "discrete": lambda: dist.Poisson(2.0),
}  # fmt: skip
LIKELIHOODS = ("plate", "mask", "obs_mask", "scale", "counts", "categories", "factor")


def made(chance: Random) -> tuple[str, Any, tuple[Any, ...], bool]:
    """What it is made of, the model, its arguments, and whether it is a density on R^D."""
    kinds = chance.sample(list(SITES), chance.randint(1, 3))
    likelihood, module, plated = chance.choice(LIKELIHOODS), chance.random() < 0.35, chance.random() < 0.3
    g = Generator().manual_seed(chance.randrange(999))
    x, y, seen = torch.randn(12, 3, generator=g), torch.randn(12, generator=g), torch.rand(12, generator=g) < 0.7
    double = module and chance.random() < 0.5

    def body(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None = None) -> None:
        total = x @ weight if weight is not None else x.new_zeros(12)
        for i, kind in enumerate(kinds):
            if plated and i == 0 and kind in ("normal", "positive", "simplex", "unit"):
                with pyro.plate("groups", 2):
                    value = pyro.sample(f"s{i}", SITES[kind]())
            else:
                value = pyro.sample(f"s{i}", SITES[kind]())
            total = total + value.sum() * x[:, i % 3]
        observe(likelihood, total, y, seen)

    if not module:
        return f"{likelihood}: {', '.join(kinds)}", lambda: body(x, y), (), "discrete" not in kinds

    class Net(PyroModule):
        def __init__(self) -> None:
            super().__init__()
            self.fc = PyroModule[torch.nn.Linear](3, 1, bias=False)
            self.fc.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
            self.out = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> None:
            body(torch.tanh(self.out(x)) + self.fc(x), y)

    pyro.set_rng_seed(0)
    net, args = Net(), (x, y)
    if double:
        net, args = net.double(), (x.double(), y.double())
    return f"module, {likelihood}: {', '.join(kinds)}", net, args, "discrete" not in kinds


def observe(likelihood: str, mean: torch.Tensor, y: torch.Tensor, seen: torch.Tensor) -> None:
    """Twelve observations in one of the ways that people write them."""
    if likelihood == "factor":
        pyro.factor("f", -0.5 * (mean - y).square().sum())
        return
    with pyro.plate("data", 12):
        if likelihood == "mask":
            with poutine.mask(mask=seen):
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        elif likelihood == "obs_mask":
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=seen)
        elif likelihood == "scale":
            with poutine.scale(scale=3.0):
                pyro.sample("y", dist.Laplace(mean, 1.0), obs=y)
        elif likelihood == "counts":
            pyro.sample("y", dist.NegativeBinomial(5.0, logits=0.1 * mean), obs=y.abs().round())
        elif likelihood == "categories":
            pyro.sample("y", dist.Bernoulli(logits=mean), obs=(y > 0).to(y))
        else:
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def start(site: dict[str, Any]) -> torch.Tensor:
    """Zero on the whole of R^k for improper laws, which have no draws; a draw of the others."""
    law = site["fn"]
    if isinstance(law, dist.ImproperUniform):
        transform: Any = biject_to(law.support)
        return transform(torch.zeros(transform.inverse_shape(law.shape())))
    value = law.sample()
    return value.to(torch.get_default_dtype()) if value.is_floating_point() else value


def potential_of(model: Any, args: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
    """Pyro's log density at points (n, D), in their precision."""
    torch.set_default_dtype(x.dtype)
    try:
        own = model.to(x.dtype) if isinstance(model, torch.nn.Module) else model
        _, potential, transforms, trace = initialize_model(
            own, tuple(a.to(x.dtype) for a in args), max_plate_nesting=3, init_strategy=start
        )
        found = []
        for point in x:
            values, at = {}, 0
            for site, node in trace.nodes.items():
                if site in transforms:
                    shape = transforms[site](node["value"]).shape
                    values[site] = point[at : at + shape.numel()].reshape(shape)
                    at += shape.numel()
            found.append(-potential(values).detach())
        return torch.stack(found)
    finally:
        torch.set_default_dtype(torch.float32)


def answer(model: Any, args: tuple[Any, ...], proper: bool) -> tuple[str, str]:
    """``right``, ``refused`` (rightly), ``refused wrongly``, ``wrong`` or ``traceback``."""
    pyro.clear_param_store()
    try:
        task = pb.from_pyro(model, *args, name="kind")
    except InputError as error:
        return ("refused wrongly" if proper or "\n" in str(error) else "refused"), str(error)
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    if not proper:
        return "wrong", "no refusal"
    x = torch.randn(10, task.dim, generator=Generator().manual_seed(1), dtype=task.precision or torch.float64)
    ours, theirs = task.target([0], "cpu", x.dtype).log_density(x[None])[0].to(x), potential_of(model, args, x)
    # Data that a model closes over stay in single precision, and scalars times them do.
    tolerance = 1e-4 if x.dtype is torch.float32 else 1e-6
    close = torch.allclose(ours, theirs, rtol=tolerance, atol=10 * tolerance)
    return ("right" if close else "wrong"), f"{float((ours - theirs).abs().max()):.3g}"


def study(count: int, seed: int = 0) -> tuple[Counter[str], list[str], list[str]]:
    """Counts of answers, problems, and the words of refusals."""
    chance, counts, problems, words = Random(seed), Counter[str](), list[str](), dict[str, str]()
    for _ in range(count):
        what, model, args, proper = made(chance)
        got, said = answer(model, args, proper)
        counts[f"{'module' if 'module' in what else 'function'}: {got}"] += 1
        if got == "refused":
            words.setdefault(said[:30], said)
        elif got != "right":
            problems.append(f"{what}: {got}: {said[:250]}")
    return counts, problems, list(words.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found, wrong, refusals = study(given.models, given.seed)
    print(json.dumps(found, indent=1))
    print(f"{given.models} models, {len(wrong)} problems")
    print("\n".join([*wrong, "refused in these words:", *refusals]))
    raise SystemExit(bool(wrong))
