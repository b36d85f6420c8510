"""Tasks made of a PyMC model: ``pb.from_pymc``.

The density is PyMC's own: that of the model's value variables, its free random variables mapped to R^k by PyMC's transforms,
the Jacobians included. PyMC writes it, and the maps, as JAX functions, which run as any density in JAX.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from parvibench.core.errors import InputError, imported_library
from parvibench.jax_programs.loading import double_jax, jax_library

from .densities import checked
from .jax_models import JaxDensity, JaxSiteTask
from .sites import Site, fields, parts, require_latent


class PymcTask(JaxSiteTask):
    """The posterior of a PyMC model; its points are the flat vectors of all value variables, in the model's order."""


def from_pymc(model: Any, *, name: str | None = None) -> PymcTask:
    """The posterior of a PyMC model as a task.

    Args:
        model: a ``pymc.Model`` whose free random variables are continuous; its data are those of the moment.
        name: of the task; default: the model's own name, or ``pymc-model``.

    Raises:
        LibraryMissingError: PyMC or JAX is not installed.
        InputError: a free random variable is discrete, data come in mini-batches, the density cannot be written in JAX, or
            as of ``pb.task``.

    >>> with pm.Model() as schools: ...  # doctest: +SKIP
    >>> task = from_pymc(schools, name="schools")  # doctest: +SKIP
    """
    double_jax(extra="pymc")  # importing PyMC's JAX module switches the process to double precision, too
    jaxified = imported_library("pymc.sampling.jax", "pymc")
    called = name or getattr(model, "name", "").replace("_", "-") or "pymc-model"
    if not isinstance(model, imported_library("pymc", "pymc").Model):
        raise InputError(f"{called}: from_pymc takes a pymc.Model, and got a {type(model).__name__}")
    _refuse(called, model)
    try:
        sites, density, outward, inward = _programs(jaxified, model)
    except Exception as error:
        first = str(error).strip().split("\n")[0][:300]
        raise InputError(f"{called}: PyMC cannot write the model in JAX: {type(error).__name__}: {first}") from error
    wrapped = JaxDensity(called, lambda x: density(*parts(x, sites).values())[0], model)
    about = fields("PyMC", model, called, sites) | wrapped.fields | {"coordinates": _coordinates(model, sites)}
    names = [site.name for site in sites]
    outward, inward = (partial(_by_name, program, names) for program in (outward, inward))
    return checked(PymcTask(outward=outward, inward=inward, **about), derived=True)


def _by_name(program: Any, names: list[str], values: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(names, program(*(values[name] for name in names)), strict=True))  # JAX sorts a dictionary's keys


def _refuse(called: str, model: Any) -> None:
    """``InputError`` for a model whose density is discrete or random."""
    if discrete := model.discrete_value_vars:
        names = ", ".join(repr(model.values_to_rvs[v].name) for v in discrete)
        raise InputError(f"{called}: {names} is discrete; samplers move in R^D: sum it out (pm.Mixture), or observe it")
    graph = imported_library("pytensor.graph.traversal", "pymc")
    for variable in graph.ancestors(model.observed_RVs):
        kind = type(variable.owner.op).__name__ if variable.owner else ""
        if kind.startswith("Minibatch"):
            raise InputError(f"{called}: data come in mini-batches; give all rows: the density must not be random")
        if kind.startswith("Simulator"):
            raise InputError(f"{called}: a Simulator has no density")


def _programs(jaxified: Any, model: Any) -> tuple[tuple[Site, ...], Any, Any, Any]:
    """The sites of a model, in its order, and programs of arrays in this order: its density, the maps outward and inward."""
    variables, free = model.free_RVs, model.value_vars
    start = model.initial_point(0)
    outward = jaxified.get_jaxified_graph(inputs=free, outputs=model.replace_rvs_by_values(variables))
    values = jax_library("jax").eval_shape(lambda *arrays: tuple(outward(*arrays)), *(start[v.name] for v in free))
    triples = zip(variables, free, values, strict=True)
    sites = tuple(Site(rv.name, tuple(value.shape), tuple(np.shape(start[v.name]))) for rv, v, value in triples)
    require_latent(model.name or "the model", sites)
    # A transform may depend on other variables, such as a bound that is itself unknown.
    given = [rv.type(name=rv.name) for rv in variables]
    transforms = (model.rvs_to_transforms[rv] for rv in variables)
    inverse = [
        x if transform is None else transform.forward(x, *rv.owner.inputs)
        for rv, x, transform in zip(variables, given, transforms, strict=True)
    ]
    replace = imported_library("pytensor.graph.replace", "pymc").graph_replace
    inward = replace(inverse, dict(zip(variables, given, strict=True)), strict=False)
    density = jaxified.get_jaxified_graph(inputs=free, outputs=[model.logp()])
    return sites, density, outward, jaxified.get_jaxified_graph(inputs=given, outputs=inward)


def _coordinates(model: Any, sites: tuple[Site, ...]) -> tuple[str, ...]:
    """Names of the D coordinates: with the model's labels where a variable has dimensions and its transform keeps the shape."""
    names: list[str] = []
    for site in sites:
        labels = [model.coords.get(d) for d in model.named_vars_to_dims.get(site.name, ())]
        if site.free != site.shape or tuple(len(part or ()) for part in labels) != site.free or not site.free:
            names += site.coordinates
        else:
            rows = np.ndindex(site.free)
            names += [f"{site.name}[{','.join(str(p[i]) for p, i in zip(labels, at, strict=True))}]" for at in rows]
    return tuple(names)
