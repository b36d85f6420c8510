"""A task made of a Pyro model: ``pb.from_pyro``.

Every latent site is mapped to the whole of R^k by ``biject_to`` of its support, and the density of the flat vector of
all of them is the joint density times the Jacobians of these maps: what Pyro's own HMC samples. A model is traced with
its latent sites fixed, which works for many points at once under ``torch.func.vmap``; Pyro's ``potential_fn`` does not.
It runs in single or double precision, whatever the precision of its data.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_map

from parvibench.core.errors import InputError

from .densities import checked
from .sites import WIDTH, Site, SiteTask, fields, label, parts, refuse_discrete, refuse_subsample, require_latent

#: In messages about a density that works for one point at a time.
_NOT_VECTORISED = ("cannot be vectorised", "inplace arithmetic")


@dataclass(frozen=True)
class PyroSite(Site):
    """A latent site of a Pyro model."""

    transform: Any  #: from R^k to the support


def from_pyro(model: Any, *args: Any, name: str | None = None, **kwargs: Any) -> PyroTask:
    """The posterior of a Pyro model as a task.

    Args:
        model: a Pyro model with continuous latent sites; plates must not be subsampled.
        args: of the model, data included.
        name: of the task; default: the model's.
        kwargs: of the model.

    Raises:
        InputError: a latent site is discrete, a plate subsampled, the sites or their supports depend on latent values,
            or what ``pb.task`` refuses.

    >>> task = from_pyro(eight_schools, y, sigma)  # doctest: +SKIP
    >>> task.constrain(samples)["tau"]  # doctest: +SKIP
    """
    called = label(model, name)
    density = PyroDensity(model, args, kwargs, _sites(called, Versions(model, args, kwargs)))
    made = PyroTask(log_density=density, **fields("Pyro", model, name, density.sites))
    try:
        return checked(made)
    except InputError as error:
        if not any(words in f"{error}{error.__cause__}" for words in _NOT_VECTORISED):
            raise  # else model or distribution branches on values, where ``vmap`` fails

    @wraps(model, assigned=(), updated=())
    def one_by_one(points: Tensor) -> Tensor:
        return torch.stack([density(point) for point in points])

    return checked(replace(made, log_density=one_by_one, batched=True))


@dataclass(frozen=True, kw_only=True)
class PyroTask(SiteTask):
    """The posterior of a Pyro model."""

    sites: tuple[PyroSite, ...] = ()

    def constrain(self, x: Tensor) -> dict[str, Tensor]:
        """Values of the sites, name -> (n, ...), at points (n, D)."""
        free = parts(torch.as_tensor(x), self.sites)
        return {site.name: vmap(site.transform)(free[site.name]) for site in self.sites}

    def _points(self, values: dict[str, Tensor]) -> Tensor:
        return self._joined({site.name: site.transform.inv(values[site.name]) for site in self.sites})


class PyroDensity:
    """The log density of a model with fixed arguments, of a point (D,)."""

    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sites: tuple[PyroSite, ...]) -> None:
        self.__wrapped__, self.versions, self.sites = model, Versions(model, args, kwargs), sites

    def __call__(self, x: Tensor) -> Tensor:
        """A scalar, in nats."""
        return self.given(x, {})

    def precision(self) -> AbstractContextManager[None]:
        """In which the model draws in double precision."""
        return _pyro_in(torch.float64)

    def given(self, x: Tensor, data: dict[str, Tensor]) -> Tensor:
        """The log density with other values at observed sites."""
        from pyro import poutine

        free, values, jacobian = parts(x, self.sites), {}, x.new_zeros(())
        for site in self.sites:
            values[site.name] = value = site.transform(free[site.name])
            jacobian = jacobian + site.transform.log_abs_det_jacobian(free[site.name], value).sum()
        with _pyro_in(x.dtype, x.device):
            model, args, kwargs = self.versions.of(x.dtype, x.device)
            free_model = poutine.uncondition(model) if data else model
            trace = poutine.trace(poutine.condition(free_model, data=values | data)).get_trace(*args, **kwargs)
            return jacobian + trace.log_prob_sum()


def _sites(called: str, versions: Versions) -> tuple[PyroSite, ...]:
    """The latent sites, in the model's order."""
    first, second = (_latent(called, versions, seed) for seed in (0, 1))
    if [(s.name, s.shape) for s in first] != [(s.name, s.shape) for s in second]:
        raise InputError(f"{called}: the model's sites, or their shapes, change from run to run; they must be fixed")
    for a, b in zip(first, second, strict=True):
        point = torch.linspace(-1, 1, a.size).reshape(a.free)
        if not torch.allclose(a.transform(point), b.transform(point)):
            raise InputError(
                f"{called}: the support of site {a.name!r} depends on other sites; write it as a fixed one times or plus them"
            )
    require_latent(called, first)
    return first


def _latent(called: str, versions: Versions, seed: int) -> tuple[PyroSite, ...]:
    """The latent sites of one run of the model."""
    try:
        import pyro  # noqa: F401
    except ImportError:
        raise InputError("from_pyro needs Pyro; install it with: pip install pyro-ppl") from None
    from torch.distributions import biject_to

    found = []
    for name, node in _traced(called, versions, seed).items():
        if node["type"] != "sample" or node["is_observed"]:
            continue
        distribution = node["fn"]
        if type(distribution).__name__ == "_Subsample":
            refuse_subsample(called, name, distribution.subsample_size, distribution.size)
            continue
        refuse_discrete(called, name, distribution)
        transform = biject_to(distribution.support)
        value = node["value"]
        found.append(PyroSite(name, tuple(value.shape), tuple(transform.inv(value).shape), transform))
    return tuple(found)


class Versions:
    """A model and its arguments by precision and device; a module is copied, so that its own parameters stay as they are."""

    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self._copies: dict[Any, Any] = {}

    def of(self, dtype: torch.dtype, device: torch.device | None = None) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Model, arguments and keywords with floating tensors of that type, and all tensors on a device other than the CPU."""
        if device is None or device.type == "cpu":
            of_type = lambda v: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v  # noqa: E731
            return self._model(dtype, None), *tree_map(of_type, (self.args, self.kwargs))
        if ("given", dtype, device) not in self._copies:  # else copied to the device at every call
            _, *given = self.of(dtype)
            moved = tree_map(lambda v: v.to(device) if isinstance(v, Tensor) else v, given)
            self._copies["given", dtype, device] = moved
        return self._model(dtype, device), *self._copies["given", dtype, device]

    def _model(self, dtype: torch.dtype, device: torch.device | None) -> Any:
        if not isinstance(self.model, torch.nn.Module):
            return self.model
        if (dtype, device) not in self._copies:
            with _own_parameters():  # Pyro copies parameters that its store knows from there
                module = copy.deepcopy(self.model).to(device, dtype)
            self._copies[dtype, device] = _Alone(module.requires_grad_(False))
        return self._copies[dtype, device]


class _Alone:
    """A module that is called in a parameter store of its own."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _own_parameters(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not registered in the param store")
            return self._module(*args, **kwargs)


def _own_parameters() -> AbstractContextManager[Any]:
    import pyro

    return pyro.get_param_store().scope()


@contextmanager
def _pyro_in(dtype: torch.dtype, device: torch.device | None = None) -> Iterator[None]:
    """Pyro without validation, which looks at values and so stops ``vmap``; new tensors are of that type, on the device."""
    import pyro

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with pyro.validation_enabled(False), nullcontext() if device is None or device.type == "cpu" else device:
            yield
    finally:
        torch.set_default_dtype(before)


def _start(site: dict[str, Any]) -> Tensor:
    """A value of a latent site, in the precision of the moment: from its law, of an improper one anywhere in its support."""
    from pyro.distributions import ImproperUniform
    from torch.distributions import biject_to

    law = site["fn"]
    base = law
    while hasattr(base, "base_dist") and not isinstance(base, ImproperUniform):
        base = base.base_dist
    if isinstance(base, ImproperUniform):
        transform: Any = biject_to(law.support)
        value = transform(WIDTH * (2 * torch.rand(transform.inverse_shape(law.shape())) - 1))
    else:
        value = law.sample()
    return value.to(torch.get_default_dtype()) if value.is_floating_point() else value


def _traced(called: str, versions: Versions, seed: int) -> Any:
    """The sites of one run of the model: as it is, or else in double precision throughout."""
    import pyro
    from pyro import poutine
    from pyro.infer.autoguide.initialization import InitMessenger

    given = versions.model, versions.args, versions.kwargs
    fixing: Any = InitMessenger
    failures: list[Exception] = []
    for double in (False, True):
        with torch.random.fork_rng(devices=[]), torch.no_grad(), _own_parameters() if double else nullcontext():
            pyro.set_rng_seed(seed)
            with _pyro_in(torch.float64) if double else nullcontext():
                model, args, kwargs = versions.of(torch.float64) if double else given
                try:
                    return poutine.trace(fixing(_start)(model)).get_trace(*args, **kwargs).nodes
                except Exception as error:
                    failures.append(error)
    failed, *_ = failures
    first = str(failed).split("\n")[0]
    raise InputError(f"{called}: the model fails: {type(failed).__name__}: {first:.300}") from failed
