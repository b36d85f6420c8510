"""Models that draw their own parameters and data: what simulation-based calibration needs.

Either three functions of the user's (``Functions``), or a NumPyro model, which brings prior and simulator itself: its observed
sites are drawn in place of conditioned on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.errors import InputError
from parvibench.core.streams import derive_seed
from parvibench.core.target import InJax, JointTarget, Target
from parvibench.jax_programs.loading import double, jax_library

from .densities import FunctionTarget
from .jax_models import NumpyroTask

_FUNCTIONS = ("prior", "simulate", "model")


class Generative(ABC):
    """A model with a prior and a simulator."""

    name: str
    own_simulator: bool  #: False where prior and simulator are the model's: the sampler is checked, not the model

    @abstractmethod
    def draw(self, seed: int, ids: Sequence[int]) -> Drawn:
        """Parameters and data of these data sets, and the posteriors given them."""


@dataclass(frozen=True)
class Drawn:
    """Posteriors of simulated data sets, with the parameters that made them."""

    truth: Tensor  #: (R, D) float64, in the coordinates of the density
    target: Target  #: one posterior a replicate
    start: Callable[[Target, int, Sequence[Generator]], Tensor]  #: initial points, (R, n, D)
    coordinates: tuple[str, ...]
    #: further functions of parameters and data, at points (R, n, D): name -> (R, n)
    quantities: Callable[[Tensor], dict[str, Tensor]] = lambda x: {}


def generative(model: Any, name: str = "model") -> Generative:
    """A model that can be calibrated.

    Args:
        model: a task of ``pb.from_numpyro``, or an object (a class, a module, a namespace) with three functions:
            ``prior(rng) -> params``, ``simulate(params, rng) -> data``, ``model(data) -> task``, ``rng`` a NumPy generator. The
            task's ``unconstrain`` puts params into its coordinates, or they are an array of its D coordinates. A fourth is optional,
            ``quantities(x, data) -> {name: (n,)}``: functions of points (n, D) and the data whose ranks are tested, too. The log
            likelihood is worth it: a posterior that forgets the data has uniform ranks of all parameters.
        name: shown.

    Raises:
        InputError: it is neither.
    """
    if isinstance(model, NumpyroTask):
        return FromNumpyro(model)
    lacking = [f for f in _FUNCTIONS if not callable(getattr(model, f, None))]
    if not lacking:
        return Functions(name, model.prior, model.simulate, model.model, getattr(model, "quantities", None))
    raise InputError(
        f"{name} cannot draw data of its own: it has no {', '.join(lacking)}. Give a task of pb.from_numpyro, or an object with "
        "prior(rng) -> params, simulate(params, rng) -> data and model(data) -> task"
    )


@dataclass(frozen=True)
class Functions(Generative):
    """Prior, simulator and posterior as the user's functions."""

    name: str
    prior: Callable[[np.random.Generator], Any]
    simulate: Callable[[Any, np.random.Generator], Any]
    model: Callable[[Any], Any]
    quantities: Callable[[Tensor, Any], dict[str, Any]] | None = None
    own_simulator = True

    def draw(self, seed: int, ids: Sequence[int]) -> Drawn:
        """One data set after the other; their densities are called in turn."""
        truths, tasks, sets = [], [], []
        for i in ids:
            rng = np.random.default_rng([seed, i])
            params = self.prior(rng)
            sets.append(self.simulate(params, rng))
            tasks.append(task := self.model(sets[-1]))
            truths.append(self._point(task, params))
        first = tasks[0]
        if any(task.dim != first.dim for task in tasks):
            raise InputError(f"{self.name}: posteriors of different dimensions cannot be calibrated together")
        target = Side([task.target([i], "cpu", torch.float64) for task, i in zip(tasks, ids, strict=True)])

        def start(_: Target, n: int, generators: Sequence[Generator]) -> Tensor:
            rows = zip(tasks, target.targets, generators, strict=True)
            return torch.cat([task.initial(one, n, [g]).double() for task, one, g in rows])

        def quantities(x: Tensor) -> dict[str, Tensor]:
            if self.quantities is None:
                return {}
            rows = [self.quantities(points, data) for points, data in zip(x, sets, strict=True)]
            return {name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in rows[0]}

        names = tuple(getattr(first, "coordinates", ())) or tuple(f"x[{i}]" for i in range(first.dim))
        return Drawn(torch.stack(truths), target, start, names, quantities)

    def _point(self, task: Any, params: Any) -> Tensor:
        """Parameters as a point of the posterior, (D,) float64."""
        if hasattr(task, "unconstrain"):
            values = {k: np.asarray(v)[None] for k, v in params.items()} if isinstance(params, dict) else params
            point = torch.as_tensor(task.unconstrain(values))
        else:
            point = torch.from_numpy(np.asarray(params, dtype=np.float64))
        if point.numel() != task.dim:
            raise InputError(
                f"{self.name}: params are {point.numel()} numbers, the task of model(data) has {task.dim} coordinates; return "
                "an array of its coordinates from prior(rng), or give the task an unconstrain(params)"
            )
        return point.reshape(-1).double()


class Side(JointTarget):
    """Densities side by side, one a replicate."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets, self.dim = list(targets), targets[0].dim
        self.prior_precision = targets[0].prior_precision

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both, replicate by replicate; where autograd gives the scores, in one pass."""
        if all(isinstance(one, FunctionTarget) and one.task.own_score is None for one in self.targets):
            with torch.inference_mode(False), torch.enable_grad():
                leaf = x.detach().clone().requires_grad_()
                density = torch.cat([one.log_density(leaf[r : r + 1]) for r, one in enumerate(self.targets)])
                return density.detach(), torch.autograd.grad(density.sum(), leaf)[0]
        found = [one.log_density_and_score(x[r : r + 1]) for r, one in enumerate(self.targets)]
        return torch.cat([density.detach() for density, _ in found]), torch.cat([score.detach() for _, score in found])

    def in_jax(self) -> InJax | None:
        """That of the one replicate which a kernel in JAX is given."""
        return self.targets[0].in_jax() if len(self.targets) == 1 else None


@dataclass(frozen=True)
class FromNumpyro(Generative):
    """A NumPyro model, whose observed sites are data."""

    task: NumpyroTask
    own_simulator = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.task.name)

    @cached_property
    def _observed(self) -> tuple[str, ...]:
        handlers, jax, held = jax_library("numpyro.handlers"), jax_library("jax"), self.task.model
        trace = handlers.trace(handlers.seed(held.model, jax.random.key(0))).get_trace(*held.args, **held.kwargs)
        sites = {k: s for k, s in trace.items() if s["type"] == "sample" and s["is_observed"]}
        if factors := [k for k, s in sites.items() if type(s["fn"]).__name__ == "Unit"]:
            raise InputError(f"{self.name}: a factor ({', '.join(factors)}) draws no data; write it as a distribution")
        if not sites:
            raise InputError(f"{self.name} observes nothing: give the data to pb.from_numpyro(model, ..., y=data)")
        return tuple(sites)

    def _simulated(self, key: Any) -> Any:
        """Values of the latent sites and of the observed ones, drawn from the model."""
        held, handlers = self.task.model, jax_library("numpyro.handlers")
        free = _observing(held.model, dict.fromkeys(self._observed))
        trace = handlers.trace(handlers.seed(free, key)).get_trace(*held.args, **held.kwargs)
        return tuple({k: trace[k]["value"] for k in names} for names in ([s.name for s in held.sites], self._observed))

    @cached_property
    def _density(self) -> Callable[[Any, Any], Any]:
        held, util = self.task.model, jax_library("numpyro.infer.util")

        def log_density(data: Any, x: Any) -> Any:
            return -util.potential_energy(_observing(held.model, data), held.args, held.kwargs, held.free(x))

        return log_density

    @cached_property
    def _both(self) -> Callable[[Any, Any], Any]:
        jax = jax_library("jax")
        one = jax.vmap(jax.value_and_grad(self._density, argnums=1), in_axes=(None, 0))
        return jax.jit(jax.vmap(one))

    def draw(self, seed: int, ids: Sequence[int]) -> Drawn:
        """All data sets in one compiled call; their densities, too."""
        jax = jax_library("jax")
        with double():
            keys = jax.numpy.stack([jax.random.key(derive_seed(seed, str(i)) % 2**32) for i in ids])
            values, data = jax.jit(jax.vmap(self._simulated))(keys)
            truth = self.task.unconstrain({k: np.asarray(v) for k, v in values.items()})
        return Drawn(truth, NumpyroPosteriors(self, data), self.task.initial, tuple(self.task.coordinates))


def _observing(model: Any, data: Any) -> Any:
    """The model with other values at its observed sites; None: drawn."""
    messenger = jax_library("numpyro.primitives").Messenger

    class Observing(messenger):  # type: ignore[misc, valid-type]
        def process_message(self, msg: Any) -> None:
            if msg["type"] == "sample" and msg["name"] in data:
                msg["value"], msg["is_observed"] = data[msg["name"]], data[msg["name"]] is not None

    return Observing(model)


class NumpyroPosteriors(JointTarget):
    """The posteriors of one NumPyro model given many data sets."""

    def __init__(self, model: FromNumpyro, data: Any) -> None:
        self._model, self._data, self.dim = model, data, model.task.dim

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once, all data sets together."""
        with double():
            found = self._model._both(self._data, x.detach().double().numpy())
        density, score = (torch.from_numpy(np.array(part)).to(x) for part in found)
        return density, score

    def in_jax(self) -> InJax:
        """Of the one data set that a kernel in JAX is given."""
        return InJax(self._model._density, {k: v[0] for k, v in self._data.items()})
