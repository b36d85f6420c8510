"""Tasks made of a log density in JAX, or of a NumPyro model: ``pb.from_jax`` and ``pb.from_numpyro``.

Samplers in PyTorch call the density through compiled JAX code, values and gradients at once, in double precision;
kernels of ``pb.jax_sampler`` are compiled together with it. The density of a NumPyro model is minus NumPyro's own
potential energy: the joint density times the Jacobians of the maps of all latent sites to R^k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parvibench.core.errors import InputError
from parvibench.core.target import InJax
from parvibench.jax_programs.loading import double, double_jax, jax_library

from .densities import Draw, Fit, FunctionTask, checked, function_task, label_of
from .sites import Site, SiteTask, fields, label, parts, refuse_discrete, refuse_subsample, require_latent


class JaxDensity:
    """A log density of a point (D,) in JAX, called with points (n, D) in PyTorch."""

    def __init__(self, name: str, log_density: Callable[[Any], Any], wrapped: Any = None) -> None:
        self._name, self.__wrapped__ = name, wrapped or log_density
        self.in_jax = InJax(lambda data, x: log_density(x), ())

    def __call__(self, points: Tensor) -> Tensor:
        """Log densities, (n,)."""
        return self.both(points)[0]

    def score(self, points: Tensor) -> Tensor:
        """Scores, (n, D)."""
        return self.both(points)[1]

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of a task of the density."""
        return {"log_density": self, "own_score": self.score, "both": self.both, "batched": True}

    def both(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Log densities (n,) and scores (n, D); ``InputError`` where the function fails."""
        n, given = len(points), points.detach().cpu().double().numpy()
        padded = np.concatenate([given, given[-1:].repeat((1 << (n - 1).bit_length()) - n, 0)])  # few shapes to compile
        try:
            with double():  # samplers that compute in single precision ask for it, too
                value, score = (torch.from_numpy(np.array(part)[:n]).to(points) for part in self._compiled(padded))
        except Exception as error:
            first = str(error).strip().split("\n")[0][:300]
            shape = given.shape[1:]
            raise InputError(
                f"{self._name}: the log density fails for a JAX array of shape {shape}: {type(error).__name__}: {first}"
            ) from error
        return value, score

    @cached_property
    def _compiled(self) -> Any:
        jax = jax_library("jax")
        return jax.jit(jax.vmap(jax.value_and_grad(partial(self.in_jax.log_density, ()))))


def from_jax(
    log_density: Callable[[Any], Any],
    dim: int,
    *,
    initial: Draw | Sequence[float] | Tensor | Fit | None = None,
    name: str | None = None,
    exact: Draw | None = None,
    coordinates: Sequence[str] = (),
    summary: str = "",
) -> FunctionTask:
    """A task of a log density in JAX; ``pb.task`` is its equal for PyTorch, with the same arguments besides.

    ``log_density`` is the unnormalised log density on the whole of R^D in nats, of a point (D,) -> scalar, traceable by
    ``jax.jit`` and ``jax.grad``. It is called in double precision: data given as NumPy arrays have all their digits, JAX
    arrays those that they were made with. JAX stays in double precision for the rest of the process.

    Raises:
        LibraryMissingError: JAX is not installed.
        InputError: as of ``pb.task``.

    >>> ring = from_jax(lambda x: -8 * (jnp.linalg.norm(x) - 2) ** 2, dim=2, initial=[2.0, 0.0])  # doctest: +SKIP
    """
    double_jax()
    called = label_of(name or getattr(log_density, "__name__", "").replace("_", "-"))
    return function_task(
        FunctionTask, called, dim, initial, coordinates, summary=summary or f"a density in JAX, {dim} dimensions",
        tags=frozenset({"own", "jax"}), draw=exact, **JaxDensity(called, log_density).fields,
    )  # fmt: skip


@dataclass(frozen=True)
class NumpyroModel:
    """A model with its arguments."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    sites: tuple[Site, ...]

    def log_density(self, x: Any) -> Any:
        """Of a flat point (D,), in nats."""
        return -_util().potential_energy(self.model, self.args, self.kwargs, parts(x, self.sites))


@dataclass(frozen=True, kw_only=True)
class JaxSiteTask(SiteTask):
    """The posterior of a model whose maps are programs in JAX, of one point's values of all sites by name."""

    outward: Callable[[dict[str, Any]], dict[str, Any]]  #: free values -> values in their supports
    inward: Callable[[dict[str, Any]], dict[str, Any]]  #: values in their supports -> free values

    def constrain(self, x: Tensor) -> dict[str, Tensor]:
        """Values of the sites, name -> (n, ...), float64, at points (n, D)."""
        points = torch.as_tensor(x).to("cpu", torch.float64).numpy()
        return self._mapped(self.outward, parts(points, self.sites))

    def _points(self, values: dict[str, Tensor]) -> Tensor:
        return self._joined(self._mapped(self.inward, {name: v.numpy() for name, v in values.items()}))

    def _mapped(self, program: Callable[[dict[str, Any]], dict[str, Any]], values: dict[str, Any]) -> dict[str, Tensor]:
        with double():
            found = jax_library("jax").vmap(program)(values)
        return {site.name: torch.from_numpy(np.array(found[site.name])) for site in self.sites}


@dataclass(frozen=True, kw_only=True)
class NumpyroTask(JaxSiteTask):
    """The posterior of a NumPyro model; its points are the flat vectors of all latent sites, mapped to R^D."""

    model: NumpyroModel


def from_numpyro(model: Any, *args: Any, name: str | None = None, **kwargs: Any) -> NumpyroTask:
    """The posterior of a NumPyro model as a task.

    Args:
        model: a NumPyro model with continuous latent sites; plates must not be subsampled.
        args: of the model, data included; it runs in double precision, as JAX does for the rest of the process: give NumPy arrays,
            which have all their digits.
        name: of the task; default: the model's.
        kwargs: of the model.

    Raises:
        LibraryMissingError: NumPyro is not installed.
        InputError: a latent site is discrete, a plate subsampled, the model fails, or what ``pb.task`` refuses.

    >>> task = from_numpyro(eight_schools, y, sigma)  # doctest: +SKIP
    >>> task.constrain(samples)["tau"]  # doctest: +SKIP
    """
    double_jax("numpyro")
    called = label(model, name)
    held = NumpyroModel(model, args, kwargs, _sites(called, model, args, kwargs))
    about = fields("NumPyro", model, name, held.sites) | JaxDensity(called, held.log_density, model).fields
    outward, inward = (partial(f, model, args, kwargs) for f in (_util().constrain_fn, _util().unconstrain_fn))
    return checked(NumpyroTask(model=held, outward=outward, inward=inward, **about), derived=True)


def _util() -> Any:
    # Called while a density is compiled: the precision of the process stays what its sampler has asked for.
    return jax_library("numpyro.infer.util")


def _sites(called: str, model: Any, args: Any, kwargs: Any) -> tuple[Site, ...]:
    """The latent sites, in the model's order."""
    jax, handlers = double_jax(), double_jax("numpyro.handlers")
    try:
        key = jax.random.key(0)
        trace = handlers.trace(handlers.seed(model, key)).get_trace(*args, **kwargs)
        for site in trace.values():
            if site["type"] == "plate":
                refuse_subsample(called, site["name"], site["args"][1], site["args"][0])
            if site["type"] == "sample" and not site["is_observed"]:
                refuse_discrete(called, site["name"], site["fn"])
        found = _util().initialize_model(key, model, model_args=args, model_kwargs=kwargs, validate_grad=False)
    except InputError:
        raise
    except Exception as error:
        first = str(error).strip().split("\n")[0][:300]
        raise InputError(f"{called}: the model fails: {type(error).__name__}: {first}") from error
    free = found.param_info.z
    names = [name for name in trace if name in free]
    sites = tuple(Site(n, tuple(np.shape(trace[n]["value"])), tuple(np.shape(free[n]))) for n in names)
    require_latent(called, sites)
    return sites
