"""Models that draw their own parameters and data: what simulation-based calibration needs.

NumPyro, Pyro and PyMC models bring prior and simulator: their observed sites are drawn in place of conditioned on.
"""

from __future__ import annotations

import json
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.func import vmap

from parvibench.core.errors import InputError, ParVIBenchError, imported_library
from parvibench.core.streams import derive_seed
from parvibench.core.target import InJax, JointTarget, Target
from parvibench.core.task import Task
from parvibench.jax_programs.loading import double, jax_library

from .densities import FunctionTarget
from .jax_models import NumpyroTask
from .pymc_models import PymcTask
from .pyro_models import PyroDensity, PyroTask
from .sites import parts
from .stan_models import StanTask, by_name, task_of
from .stan_programs import StanModel, read


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


def generative(model: Any, name: str = "model", simulator: str | Path | None = None) -> Generative:
    """A model that can be calibrated.

    Args:
        model: a task of ``pb.from_numpyro``, ``from_pyro``, ``from_pymc`` or ``from_stan``, or an object (a class, a module, a namespace) with three functions:
            ``prior(rng) -> params``, ``simulate(params, rng) -> data``, ``model(data) -> task``, ``rng`` a NumPy generator. The
            task's ``unconstrain`` puts params into its coordinates, or they are an array of its D coordinates. A fourth is optional,
            ``quantities(x, data) -> {name: (n,)}``: functions of points (n, D) and the data whose ranks are tested, too. The log
            likelihood is worth it: a posterior that forgets the data has uniform ranks of all parameters.
        name: shown.
        simulator: of a Stan program: a program without parameters, whose generated quantities draw those of the first and its data,
            by their names.

    Raises:
        InputError: it is none of these, or observes nothing.
    """
    if isinstance(model, StanTask):
        if simulator is None:
            raise InputError(
                f"{model.name}: a Stan program cannot draw data: give a second one without parameters, whose generated quantities "
                "draw parameters and data by their names: --simulator FILE.stan"
            )
        pair = StanPair(model, StanModel(read(Path(simulator)), model.model.data))
        return Functions(model.name, pair.prior, pair.simulate, pair.model)
    for kind, door in DOORS.items():
        if isinstance(model, kind):
            return door(model)
    lacking = [f for f in ("prior", "simulate", "model") if not callable(getattr(model, f, None))]
    if not lacking:
        return Functions(name, model.prior, model.simulate, model.model, getattr(model, "quantities", None))
    raise InputError(
        f"{name} cannot draw data of its own: it has no {', '.join(lacking)}. Give a task of pb.from_numpyro, from_pyro, "
        "from_pymc or from_stan, or an object with "
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
            params = self._call("prior", rng)
            sets.append(self._call("simulate", params, rng))
            tasks.append(task := self._call("model", sets[-1]))
            if not isinstance(task, Task):
                raise InputError(
                    f"{self.name}: model(data) returned {type(task).__name__}: expected a task, such as pb.task(...)"
                )
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
            rows = [self._call("quantities", points, data) for points, data in zip(x, sets, strict=True)]
            values = {name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in rows[0]}
            for name, value in values.items():
                if value.shape != x.shape[:2]:
                    raise InputError(
                        f"{self.name}: quantities(x, data): {name} of {x.shape[1]} points has the shape {tuple(value.shape[1:])}, not ({x.shape[1]},)"
                    )
            return values

        names = tuple(getattr(first, "coordinates", ())) or tuple(f"x[{i}]" for i in range(first.dim))
        return Drawn(torch.stack(truths), target, start, names, quantities)

    def _call(self, function: str, *arguments: Any) -> Any:
        """What a function of the user returns; ``InputError`` with its place for any error in it."""
        try:
            return getattr(self, function)(*arguments)
        except ParVIBenchError:
            raise
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(line.filename).name}, line {line.lineno}"
            raise InputError(f"{self.name}: {function} fails in {where}: {type(error).__name__}: {error}") from error

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
class StanPair:
    """A Stan program, and one that draws its parameters and data."""

    task: StanTask
    simulator: StanModel

    def __post_init__(self) -> None:
        drawn = self.prior(np.random.default_rng(0))
        if missing := [site.name for site in self.task.sites if site.name not in drawn]:
            raise InputError(f"{self.simulator.program.file}: generates no {', '.join(missing)}")
        if not drawn.keys() & json.loads(self.task.model.data).keys():
            raise InputError(f"{self.simulator.program.file}: generates none of the data of {self.task.name}")

    def prior(self, rng: np.random.Generator) -> dict[str, Any]:
        """Parameters and data, by name."""
        if self.simulator.dim:
            raise InputError(f"{self.simulator.program.file}: expected a program without parameters")
        values = self.simulator.constrain(np.empty((1, 0)), everything=True, seed=int(rng.integers(2**31)))
        return {k: v[0] for k, v in by_name(values, self.simulator.names(2)).items()}

    def simulate(self, drawn: dict[str, Any], rng: np.random.Generator) -> str:
        """The data of the program in JSON."""
        data = json.loads(self.task.model.data)
        whole = {k for k, v in data.items() if np.asarray(v).dtype.kind == "i"}
        new = {k: (drawn[k].astype(int) if k in whole else drawn[k]).tolist() for k in data.keys() & drawn.keys()}
        return json.dumps(data | new)

    def model(self, data: str) -> StanTask:
        """The posterior given these data."""
        old = self.task.model
        return task_of(StanTask, self.task.name, old.program, data, "", library=old.library)


@dataclass(frozen=True)
class OfTask(Generative):
    """A task of a program that is prior and simulator as well."""

    task: Any
    own_simulator = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The task's."""
        return str(self.task.name)

    def _drawn(self, values: Any, target: Target) -> Drawn:
        """Of values of the latent variables, name -> (R, ...), and the posteriors of the data that they made."""
        truth = self.task.unconstrain({k: np.asarray(v) for k, v in values.items()})
        return Drawn(truth, target, self.task.initial, tuple(self.task.coordinates))

    def _require_data(self, observed: Sequence[str], factors: Sequence[str]) -> None:
        """``InputError`` where nothing is observed, or a term of the density draws nothing."""
        if factors:
            raise InputError(
                f"{self.name}: a factor or potential ({', '.join(factors)}) draws no data; write it as a distribution"
            )
        if not observed:
            raise InputError(f"{self.name} observes nothing: give the data to the model")


class FromPyro(OfTask):
    """A Pyro model, whose observed sites are data."""

    def draw(self, seed: int, ids: Sequence[int]) -> Drawn:
        """Data sets one after the other, their densities together where the model is one of many points."""
        import pyro
        from pyro import poutine

        held, names = self.task.log_density, [site.name for site in self.task.sites]
        if not isinstance(held, PyroDensity):
            raise InputError(f"{self.name}: its density is computed point by point; calibrate it by three functions")
        model, args, kwargs = held.versions.of(torch.float64)
        rows = []
        for i in ids:
            with torch.random.fork_rng(devices=[]), torch.no_grad(), held.precision():
                pyro.set_rng_seed(derive_seed(seed, str(i)) % 2**32)
                trace = poutine.trace(poutine.uncondition(model)).get_trace(*args, **kwargs)
            sites = {k: s for k, s in trace.nodes.items() if s["type"] == "sample"}
            observed = [k for k, s in sites.items() if s["infer"].get("was_observed")]
            self._require_data(observed, [k for k in observed if type(sites[k]["fn"]).__name__ == "Unit"])
            rows.append({k: trace.nodes[k]["value"] for k in [*names, *observed]})
        drawn = {k: torch.stack([row[k] for row in rows]) for k in rows[0]}
        data = {k: v for k, v in drawn.items() if k not in names}
        return self._drawn({k: drawn[k] for k in names}, PyroPosteriors(held, data, self.task.dim))


class PyroPosteriors(Target):
    """The posteriors of one Pyro model given many data sets, name -> (R, ...)."""

    def __init__(self, model: PyroDensity, data: dict[str, Tensor], dim: int) -> None:
        self._data, self.dim = data, dim
        self._density = vmap(vmap(model.given, in_dims=(0, None)))

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """All data sets together, (R, n)."""
        return self._density(x, self._data)


class OfJax(OfTask):
    """A model whose joint density is a program in JAX."""

    _density: Any  #: of data and a point (D,)

    @cached_property
    def both(self) -> Callable[[Any, Any], Any]:
        """Densities and scores of data sets (R, ...) at points (R, n, D)."""
        jax = jax_library("jax")
        one = jax.vmap(jax.value_and_grad(self._density, argnums=1), in_axes=(None, 0))
        return jax.jit(jax.vmap(one))


class FromPymc(OfJax):
    """A PyMC model, whose observed variables are data."""

    @cached_property
    def _density(self) -> Callable[[Any, Any], Any]:
        model, free = self.task.log_density.__wrapped__, self.task.sites
        replace = imported_library("pytensor.graph.replace", "pymc").graph_replace
        values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
        given = [value.type(name=f"data of {rv.name}") for rv, value in zip(model.observed_RVs, values, strict=True)]
        whole = replace([model.logp()], dict(zip(values, given, strict=True)), strict=False)
        jaxified = imported_library("pymc.sampling.jax", "pymc")
        program = jaxified.get_jaxified_graph(inputs=[*model.value_vars, *given], outputs=whole)
        return lambda data, x: program(*parts(x, free).values(), *data)[0]

    def draw(self, seed: int, ids: Sequence[int]) -> Drawn:
        """All data sets in one call, which compiles; their densities together."""
        model = self.task.log_density.__wrapped__
        observed = model.observed_RVs
        self._require_data([rv.name for rv in observed], [p.name for p in model.potentials])
        pymc, variables = imported_library("pymc", "pymc"), [*model.free_RVs, *observed]
        with double():
            drawn = pymc.draw(variables, draws=len(ids), random_seed=derive_seed(seed, f"{ids[0]}-{ids[-1]}") % 2**31)
        count = len(model.free_RVs)
        values = {rv.name: v for rv, v in zip(variables[:count], drawn[:count], strict=True)}
        return self._drawn(values, JaxPosteriors(self, tuple(drawn[count:])))


class FromNumpyro(OfJax):
    """A NumPyro model, whose observed sites are data."""

    @cached_property
    def _observed(self) -> tuple[str, ...]:
        handlers, jax, held = jax_library("numpyro.handlers"), jax_library("jax"), self.task.model
        trace = handlers.trace(handlers.seed(held.model, jax.random.key(0))).get_trace(*held.args, **held.kwargs)
        sites = {k: s for k, s in trace.items() if s["type"] == "sample" and s["is_observed"]}
        self._require_data([*sites], [k for k, s in sites.items() if type(s["fn"]).__name__ == "Unit"])
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
            return -util.potential_energy(_observing(held.model, data), held.args, held.kwargs, parts(x, held.sites))

        return log_density

    def draw(self, seed: int, ids: Sequence[int]) -> Drawn:
        """All data sets in one compiled call; their densities, too."""
        jax = jax_library("jax")
        with double():
            keys = jax.numpy.stack([jax.random.key(derive_seed(seed, str(i)) % 2**32) for i in ids])
            values, data = jax.jit(jax.vmap(self._simulated))(keys)
            return self._drawn(values, JaxPosteriors(self, data))


def _observing(model: Any, data: Any) -> Any:
    """The model with other values at its observed sites; None: drawn."""
    messenger = jax_library("numpyro.primitives").Messenger

    class Observing(messenger):  # type: ignore[misc, valid-type]
        def process_message(self, msg: Any) -> None:
            if msg["type"] == "sample" and msg["name"] in data:
                msg["value"], msg["is_observed"] = data[msg["name"]], data[msg["name"]] is not None

    return Observing(model)


class JaxPosteriors(JointTarget):
    """The posteriors of one model given many data sets."""

    def __init__(self, model: OfJax, data: Any) -> None:
        self._model, self._data, self.dim = model, data, model.task.dim

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once, all data sets together."""
        with double():
            found = self._model.both(self._data, x.detach().double().numpy())
        density, score = (torch.from_numpy(np.array(part)).to(x) for part in found)
        return density, score

    def in_jax(self) -> InJax:
        """Of the one data set that a kernel in JAX is given."""
        return InJax(self._model._density, jax_library("jax").tree.map(lambda v: v[0], self._data))


DOORS = {NumpyroTask: FromNumpyro, PyroTask: FromPyro, PymcTask: FromPymc}
