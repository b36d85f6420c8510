"""Pyro models run in single or double precision, as they are or with all latent sites fixed elsewhere."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from parvibench.core.errors import InputError

from .sites import WIDTH


class Versions:
    """A model and its arguments by precision and device; a module is copied, so that its own parameters stay as they are."""

    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self._copies: dict[Any, Any] = {}

    def of(self, dtype: torch.dtype, device: torch.device | None = None) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Model, arguments and keywords with floating tensors of that type, and all tensors on a device other than the CPU."""
        if device is None or device.type == "cpu":
            args, kwargs = tree_map(
                lambda v: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v,
                (self.args, self.kwargs),
            )
            return self._model(dtype, None), args, kwargs
        if ("given", dtype, device) not in self._copies:  # else copied to the device at every call
            _, *given = self.of(dtype)
            self._copies["given", dtype, device] = tree_map(
                lambda v: v.to(device) if isinstance(v, Tensor) else v, given
            )
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


@contextmanager
def _own_parameters() -> Iterator[None]:
    import pyro

    with pyro.get_param_store().scope():
        yield


@contextmanager
def pyro_in(dtype: torch.dtype, device: torch.device | None = None) -> Iterator[None]:
    """Pyro without validation, which looks at values and so stops ``vmap``; new tensors are of that type, on the device."""
    import pyro

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with pyro.validation_enabled(False), nullcontext() if device is None or device.type == "cpu" else device:
            yield
    finally:
        torch.set_default_dtype(before)


def start(site: dict[str, Any]) -> Tensor:
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


def traced(label: str, versions: Versions, seed: int) -> Any:
    """The sites of one run of the model: as it is, or else in double precision throughout."""
    import pyro
    from pyro import poutine
    from pyro.infer.autoguide.initialization import InitMessenger

    given = versions.model, versions.args, versions.kwargs
    fixing: Any = InitMessenger
    failed: Exception | None = None
    for double in (False, True):
        with torch.random.fork_rng(devices=[]), torch.no_grad(), _own_parameters() if double else nullcontext():
            pyro.set_rng_seed(seed)
            with pyro_in(torch.float64) if double else nullcontext():
                model, args, kwargs = versions.of(torch.float64) if double else given
                try:
                    return poutine.trace(fixing(start)(model)).get_trace(*args, **kwargs).nodes
                except Exception as error:
                    failed = failed or error
    assert failed is not None
    raise InputError(
        f"{label}: the model fails: {type(failed).__name__}: {str(failed).split(chr(10))[0]:.300}"
    ) from failed
