"""Models with named latent sites: a point is the flat vector of all of them, each mapped to the whole of R^k."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.errors import InputError, ShapeError
from parvibench.core.target import Target

from .densities import METRICS, FunctionTask, label_of, tensor_of

WIDTH = 2.0  #: Half the width of the initial points on the unconstrained scale, as in Stan and Pyro.
#: Draws of which the one of highest density becomes an initial point: where the density falls like an exponential of an
#: exponential, one point in a hundred has a score of 1e30, which no step length common to all survives.
DRAWS = 10


@dataclass(frozen=True)
class Site:
    """A latent site."""

    name: str
    shape: tuple[int, ...]  #: of its value
    free: tuple[int, ...]  #: of the value mapped to the whole of R^k; () where all sites are mapped together

    @property
    def size(self) -> int:
        """k."""
        return math.prod(self.free)

    @property
    def coordinates(self) -> list[str]:
        """A name for each of the k numbers."""
        return [self.name + (f"[{','.join(map(str, i))}]" if i else "") for i in np.ndindex(self.free)]


@dataclass(frozen=True)
class Box:
    """Uniform draws from the cube [-2, 2]^D."""

    dim: int

    def __call__(self, n: int, generator: Generator) -> Tensor:
        """Draws, (n, D) float64."""
        return WIDTH * (2 * torch.rand(n, self.dim, generator=generator, dtype=torch.float64) - 1)


@dataclass(frozen=True, kw_only=True)
class SiteTask(FunctionTask):
    """The posterior of a model with sites."""

    sites: tuple[Site, ...] = ()

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """The best of ten uniform draws from [-2, 2]^D for each point, (R, n, D)."""
        drawn = FunctionTask.initial(self, target, DRAWS * n, generators)
        drawn = drawn.view(len(drawn), n, DRAWS, self.dim)
        density = target.log_density(drawn.flatten(1, 2)).view(drawn.shape[:3]).nan_to_num(nan=-torch.inf)
        best = density.argmax(2)[..., None, None].expand(-1, -1, 1, self.dim)
        return drawn.gather(2, best).squeeze(2)

    def unconstrain(self, values: Mapping[str, Any]) -> Tensor:
        """Points (n, D), float64, of values of the sites, name -> (n, ...); ``ShapeError`` for a wrong or missing one."""
        if missing := [site.name for site in self.sites if site.name not in values]:
            raise ShapeError(f"{self.name}: no values of {', '.join(missing)}; found {', '.join(values) or 'none'}")
        given = {site.name: tensor_of(values[site.name]).detach().to("cpu", torch.float64) for site in self.sites}
        for site in self.sites:
            if given[site.name].shape[1:] != site.shape:
                wanted = ", ".join(["n", *map(str, site.shape)])
                raise ShapeError(f"{self.name}: {site.name} has shape {tuple(given[site.name].shape)}, not ({wanted})")
        return self._points(given)

    @abstractmethod
    def _points(self, values: dict[str, Tensor]) -> Tensor:
        """Points (n, D) of values of the right shapes."""

    def _joined(self, free: Mapping[str, Tensor]) -> Tensor:
        """Points (n, D) of unconstrained values of the sites, name -> (n, ...)."""
        for name, value in free.items():
            if not bool(value.isfinite().all()):
                raise ShapeError(f"{self.name}: values of {name} lie on the edge of its support or outside of it")
        return torch.cat([free[site.name].reshape(-1, site.size) for site in self.sites], 1)


def fields(kind: str, model: Any, name: str | None, sites: tuple[Site, ...]) -> dict[str, Any]:
    """What a task of a model's sites says of itself; ``kind`` is Pyro or NumPyro."""
    dim = sum(site.size for site in sites)
    return {
        "name": label(model, name), "dim": dim, "start": Box(dim), "sites": sites, "citation": "", "metrics": METRICS,
        "summary": f"a {kind} model with the sites {', '.join(site.name for site in sites)}",
        "tags": frozenset({"own", kind.lower()}), "coordinates": tuple(c for site in sites for c in site.coordinates),
    }  # fmt: skip


def label(model: Any, name: str | None) -> str:
    """The given name, or the model's."""
    return label_of(name or getattr(model, "__name__", type(model).__name__).replace("_", "-"))


def parts(x: Any, sites: Sequence[Site]) -> dict[str, Any]:
    """The unconstrained values of the sites, by name, of points (..., D) in PyTorch or JAX."""
    ends = np.cumsum([site.size for site in sites])
    cut = [x[..., end - site.size : end] for site, end in zip(sites, ends, strict=True)]
    return {site.name: part.reshape((*x.shape[:-1], *site.free)) for site, part in zip(sites, cut, strict=True)}


def require_latent(model: str, sites: Sequence[Site]) -> None:
    """``InputError`` for a model without sites."""
    if not sites:
        raise InputError(f"{model}: the model has no latent sites; are all of them observed?")


def refuse_subsample(model: str, plate: str, rows: int | None, size: int) -> None:
    """``InputError`` for a plate of fewer rows than there are."""
    if rows is not None and rows < size:
        raise InputError(
            f"{model}: plate {plate!r} is subsampled ({rows} of {size} rows); "
            "give it all rows: the density must not be random"
        )


def refuse_discrete(model: str, site: str, distribution: Any) -> None:
    """``InputError`` for a discrete site."""
    if distribution.support.is_discrete:
        kind = type(getattr(distribution, "base_dist", distribution)).__name__
        raise InputError(
            f"{model}: site {site!r} is discrete ({kind}); samplers here move in R^D: sum it out by hand, or observe it"
        )
