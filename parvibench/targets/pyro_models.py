"""A task made of a Pyro model: ``pb.from_pyro``.

Every latent site is mapped to the whole of R^k by ``biject_to`` of its support, and the density of the flat vector of
all of them is the joint density times the Jacobians of these maps: what Pyro's own HMC samples. A model is traced with
its latent sites fixed, which works for many points at once under ``torch.func.vmap``; Pyro's ``potential_fn`` does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.func import vmap

from parvibench.core.errors import InputError, ShapeError
from parvibench.core.target import Target

from .densities import METRICS, FunctionTask, checked, label_of
from .pyro_running import WIDTH, Versions, pyro_in, start, traced

#: Draws of which the one of highest density becomes an initial point: where the density falls like an exponential of an
#: exponential, one point in a hundred has a score of 1e30, which no step length common to all survives.
DRAWS = 10
#: Points at which the density is compared with Pyro's own.
_COMPARED = 5
_SEED = 20241105


@dataclass(frozen=True)
class Site:
    """A latent site."""

    name: str
    shape: tuple[int, ...]  #: of its value
    free: tuple[int, ...]  #: of the value mapped to the whole of R^k
    transform: Any  #: from there to the support

    @property
    def size(self) -> int:
        """k."""
        return math.prod(self.free)

    @property
    def coordinates(self) -> list[str]:
        """A name for each of the k numbers."""
        return [self.name + (f"[{','.join(map(str, i))}]" if i else "") for i in np.ndindex(self.free)]


def from_pyro(model: Any, *args: Any, name: str | None = None, **kwargs: Any) -> PyroTask:
    """The posterior of a Pyro model as a task.

    Args:
        model: a Pyro model with continuous latent sites; plates must not be subsampled.
        args: of the model, data included.
        name: of the task; default: the model's.
        kwargs: of the model.

    Raises:
        InputError: a latent site is discrete, a plate subsampled, the sites or their supports depend on latent values,
            the density is not Pyro's own, or what ``pb.task`` refuses.

    >>> task = from_pyro(eight_schools, y, sigma)  # doctest: +SKIP
    >>> task.constrain(samples)["tau"]  # doctest: +SKIP
    """
    label = label_of(name or getattr(model, "__name__", type(model).__name__).replace("_", "-"))
    density = PyroDensity(model, args, kwargs, _sites(label, Versions(model, args, kwargs)))
    dim = sum(site.size for site in density.sites)
    made = PyroTask(
        name=label,
        summary=f"a Pyro model with the sites {', '.join(site.name for site in density.sites)}",
        dim=dim,
        tags=frozenset({"own", "pyro"}),
        citation="",
        metrics=METRICS,
        log_density=density,
        start=Box(dim),
        coordinates=tuple(c for site in density.sites for c in site.coordinates),
        sites=density.sites,
    )
    try:
        tried = checked(made)
    except InputError as error:
        if "inplace arithmetic" not in str(error.__cause__):
            raise
        made = replace(made, log_density=PointByPoint(density), batched=True)
        tried = checked(made)
    made = replace(made, **{f: getattr(tried, f) for f in ("precision", "provides", "fingerprint")})
    _compare(made, density)
    return made


@dataclass(frozen=True)
class Box:
    """Uniform draws from the cube [-2, 2]^D."""

    dim: int

    def __call__(self, n: int, generator: Generator) -> Tensor:
        """Draws, (n, D) float64."""
        return WIDTH * (2 * torch.rand(n, self.dim, generator=generator, dtype=torch.float64) - 1)


@dataclass(frozen=True, kw_only=True)
class PyroTask(FunctionTask):
    """The posterior of a Pyro model; its points are the flat vectors of all latent sites, mapped to R^D."""

    sites: tuple[Site, ...] = ()

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """The best of ten uniform draws from [-2, 2]^D for each point, (R, n, D)."""
        drawn = FunctionTask.initial(self, target, DRAWS * n, generators)
        drawn = drawn.view(len(drawn), n, DRAWS, self.dim)
        density = target.log_density(drawn.flatten(1, 2)).view(drawn.shape[:3]).nan_to_num(nan=-torch.inf)
        best = density.argmax(2)[..., None, None].expand(-1, -1, 1, self.dim)
        return drawn.gather(2, best).squeeze(2)

    def constrain(self, x: Tensor) -> dict[str, Tensor]:
        """Values of the sites, name -> (n, ...), at points (n, D)."""
        parts = torch.split(torch.as_tensor(x), [site.size for site in self.sites], dim=1)
        return {
            site.name: vmap(site.transform)(part.reshape(len(part), *site.free))
            for site, part in zip(self.sites, parts, strict=True)
        }

    def unconstrain(self, values: Mapping[str, Any]) -> Tensor:
        """Points (n, D), float64, of values of the sites, name -> (n, ...); others are left out.

        Raises:
            ShapeError: a site is missing, of another shape, or outside its support.
        """
        missing = [site.name for site in self.sites if site.name not in values]
        if missing:
            raise ShapeError(f"{self.name}: no values of {', '.join(missing)}; found {', '.join(values) or 'none'}")
        parts = []
        for site in self.sites:
            value = torch.as_tensor(values[site.name]).to(torch.float64)
            if value.shape[1:] != site.shape:
                wanted = ", ".join(["n", *map(str, site.shape)])
                raise ShapeError(f"{self.name}: {site.name} has shape {tuple(value.shape)}, not ({wanted})")
            free = site.transform.inv(value).reshape(len(value), site.size)
            if not bool(free.isfinite().all()):
                raise ShapeError(f"{self.name}: values of {site.name} lie on the edge of its support or outside of it")
            parts.append(free)
        return torch.cat(parts, dim=1)


class PyroDensity:
    """The log density of a model with fixed arguments, of a point (D,)."""

    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sites: tuple[Site, ...]) -> None:
        self.__wrapped__, self.versions, self.sites = model, Versions(model, args, kwargs), sites

    def __call__(self, x: Tensor) -> Tensor:
        """A scalar, in nats."""
        from pyro import poutine

        parts = torch.split(x, [site.size for site in self.sites])
        values, jacobian = {}, x.new_zeros(())
        for site, part in zip(self.sites, parts, strict=True):
            free = part.reshape(site.free)
            values[site.name] = value = site.transform(free)
            jacobian = jacobian + site.transform.log_abs_det_jacobian(free, value).sum()
        with pyro_in(x.dtype):
            model, args, kwargs = self.versions.of(x.dtype)
            trace = poutine.trace(poutine.condition(model, data=values)).get_trace(*args, **kwargs)
            total = jacobian
            for name, node in trace.nodes.items():
                if node["type"] != "sample":
                    continue
                node["fn"] = _without_branches(node["fn"])
                try:
                    total = total + trace.log_prob_sum(lambda site, _: site == name)  # noqa: B023 - called at once
                except Exception as error:
                    raise RuntimeError(f"at site {name!r}, {error}") from error
            return total


class PointByPoint:
    """The density of points (n, D), one after the other: where a distribution writes into a tensor, ``vmap`` fails."""

    def __init__(self, density: PyroDensity) -> None:
        self.__wrapped__, self._density = density.__wrapped__, density

    def __call__(self, points: Tensor) -> Tensor:
        """(n,), in nats."""
        return torch.stack([self._density(point) for point in points])


def _without_branches(distribution: Any) -> Any:
    """The same law, with a log density that no value makes branch: PyTorch's multinomial selects by a mask."""
    from pyro.distributions import Multinomial

    if type(distribution) is not Multinomial:
        return distribution

    class Counts(Multinomial):
        def log_prob(self, value: Tensor) -> Tensor:
            ways = torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1)
            return ways + torch.where(value > 0, value * self.logits, 0).sum(-1)

    return Counts(distribution.total_count, logits=distribution.logits)


def _sites(label: str, versions: Versions) -> tuple[Site, ...]:
    """The latent sites, in the model's order."""
    first, second = (_latent(label, versions, seed) for seed in (0, 1))
    if [(s.name, s.shape) for s in first] != [(s.name, s.shape) for s in second]:
        raise InputError(
            f"{label}: the sites of the model, or their shapes, change from run to run; they must be fixed"
        )
    for a, b in zip(first, second, strict=True):
        point = torch.linspace(-1, 1, a.size).reshape(a.free)
        if not torch.allclose(a.transform(point), b.transform(point)):
            raise InputError(
                f"{label}: the support of site {a.name!r} depends on other sites; write it as a fixed one times or plus them"
            )
    if not first:
        raise InputError(f"{label}: the model has no latent sites; are all of them observed?")
    return first


def _latent(label: str, versions: Versions, seed: int) -> tuple[Site, ...]:
    """The latent sites of one run of the model."""
    try:
        import pyro  # noqa: F401
    except ImportError:
        raise InputError("from_pyro needs Pyro; install it with: pip install pyro-ppl") from None
    from torch.distributions import biject_to

    found = []
    nodes = traced(label, versions, seed)
    for name, node in nodes.items():
        if node["type"] != "sample" or node["is_observed"]:
            continue
        distribution = node["fn"]
        if type(distribution).__name__ == "_Subsample":
            if distribution.subsample_size is not None and distribution.subsample_size < distribution.size:
                raise InputError(
                    f"{label}: plate {name!r} is subsampled ({distribution.subsample_size} of {distribution.size} rows); "
                    "give it all rows: the density must not be random"
                )
            continue
        kind = type(getattr(distribution, "base_dist", distribution)).__name__
        if distribution.support.is_discrete:
            raise InputError(
                f"{label}: site {name!r} is discrete ({kind}); samplers here move in R^D: sum it out by hand, or observe it"
            )
        transform = biject_to(distribution.support)
        value = node["value"]
        found.append(Site(name, tuple(value.shape), tuple(transform.inv(value).shape), transform))
    return tuple(found)


def _compare(task: PyroTask, density: PyroDensity) -> None:
    """Refuse a density that is not Pyro's own potential up to a constant."""
    from pyro.infer.mcmc import util

    dtype = task.precision or torch.float64
    x = Box(task.dim)(_COMPARED, Generator().manual_seed(_SEED)).to(dtype)
    ours = task.target([0], "cpu", dtype).log_density(x[None])[0]
    with torch.random.fork_rng(devices=[]), pyro_in(dtype):
        model, args, kwargs = density.versions.of(dtype)
        initialize: Any = util.initialize_model
        # No site is enumerated; to guess the nesting, Pyro would draw from improper laws.
        potential = initialize(model, args, kwargs, max_plate_nesting=0, init_strategy=start)[1]
        theirs = torch.stack([-potential(named(task, point)).detach() for point in x])
    gap = (ours - theirs).abs().max()
    if not bool(gap <= (1e-3 if dtype is torch.float32 else 1e-6) * (1 + theirs.abs().max())):
        raise InputError(
            f"{task.name}: its density differs from Pyro's own by up to {float(gap):.3g}; does the model draw random numbers "
            "outside of its sites, or depend on Python's state?"
        )


def named(task: PyroTask, x: Tensor) -> dict[str, Tensor]:
    """A point (D,) as Pyro's potential takes it: unconstrained values by site."""
    parts = torch.split(x, [site.size for site in task.sites])
    return {site.name: part.reshape(site.free) for site, part in zip(task.sites, parts, strict=True)}
