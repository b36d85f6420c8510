"""A task made of a Stan program and its data: ``pb.from_stan``.

Density, gradient, transforms and names are Stan's own: points are its unconstrained coordinates, and densities its
``target`` with the Jacobians, without constants.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core.errors import InputError, ShapeError

from .densities import METRICS, FunctionTarget, checked, label_of
from .sites import Box, Site, SiteTask
from .stan_programs import Program, StanModel, digest, library_of, read, text_of
from .stan_sampling import NUTS

_STARTS = 100  #: Random starts that Stan, too, tries before it gives up.
S = TypeVar("S", bound="StanTask")


def from_stan(
    program: str | Path,
    data: str | Path | Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    library: str | Path | None = None,
) -> StanTask:
    """The posterior of a Stan program as a task.

    stanli interprets the program, without a compiler. Needs the extra ``stan``.

    Args:
        program: file of the program, ``.stan``.
        data: file of its data in JSON, or the values by name; None for a program without data.
        name: of the task; default: the program's, followed by that of the data where they differ.
        library: what BridgeStan compiled of the program, for what stanli does not support; default: the one of the name
            ``PROGRAM_model`` that the environment variable ``PARVIBENCH_STAN_LIBRARY`` names, if any.

    Raises:
        InputError: Stan refuses program or data, a parameter is discrete, or the density is not finite at random starts.
        LibraryMissingError: the extra is not installed.

    >>> task = from_stan("schools.stan", "schools.json")  # doctest: +SKIP
    >>> task.constrain(samples)["tau"]  # doctest: +SKIP
    """
    program, place, stem, origin = Path(program), f"{Path(program).resolve()}:", "", "the data"
    if isinstance(data, str | Path):
        text = _json(Path(data), text_of(Path(data), "data file", "the data of a Stan program in JSON"))
        stem, origin, place = Path(data).stem, str(data), f"{place}{Path(data).resolve()}"
    else:
        text = _json("data", json.dumps(dict(data or {}), default=lambda value: np.asarray(value).tolist()))
    stems = [program.stem, stem] if stem not in ("", "data", program.stem) else [program.stem]
    label = label_of(name or re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(stems))[:64])
    loadable = name is None and library is None and not isinstance(data, Mapping)
    given = None if library is None else Path(library)
    return task_of(StanTask, label, program, text, place if loadable else "", origin, given)


def opened(place: str) -> StanTask:
    """The task of a place, ``model.stan:data.json`` or ``model.stan``; errors as of ``from_stan``."""
    found = re.fullmatch(r"(.*\.stan)(?::(.*))?", place)
    if found is None:
        raise InputError(f"{place}: write model.stan:data.json, or model.stan for a program without data")
    return from_stan(found[1], found[2] or None)


def task_of(
    kind: type[S], label: str, program: Path | Program, data: str, place: str, origin: str = "the data",
    library: Path | None = None, **more: Any,
) -> S:  # fmt: skip
    """A task of a program and the JSON text of its data, which come from ``origin``; ``more`` are further fields."""
    try:
        if isinstance(program, Path):
            library, program = library or library_of(program), read(program)
        model = StanModel(program, data, library, origin=origin)
    except InputError as error:
        raise InputError(f"{label}: {error}") from None
    if not model.dim:
        raise InputError(f"{label}: the program has no parameters: nothing to sample")
    parameters = _shapes(model.names(1))
    fields = {"citation": "", "summary": f"a Stan program with the parameters {', '.join(p.name for p in parameters)}"}
    made = kind(
        name=label, dim=model.dim, tags=frozenset({"own", "stan"}), metrics=METRICS, log_density=model.density,
        own_score=model.score, both=model.both, batched=True, start=Starts(model), coordinates=tuple(map(_bracketed, model.names(0))),
        model=model, sites=parameters, place=place, **(fields | more),
    )  # fmt: skip
    try:
        made = checked(made, derived=True)
    except InputError as error:
        raise InputError(f"{error}; Stan: {model.rejection}" if model.rejection else str(error)) from None
    return made if model.library else replace(made, provides=made.provides | {"stan"})


@dataclass(frozen=True, kw_only=True)
class StanTask(SiteTask):
    """The posterior of a Stan program; its points are Stan's unconstrained coordinates."""

    model: StanModel
    place: str = ""  #: where other processes load it from
    has_constant: bool = False  #: densities are proportional ones

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> FunctionTarget:
        """The density."""
        made = FunctionTarget(self)
        made.native = None if self.model.library else NUTS(self.model)
        return made

    def constrain(self, x: Any, *, generated: bool = False) -> dict[str, Tensor]:
        """Values of the parameters, name -> (n, ...), at points (n, D).

        With ``generated`` transformed parameters and generated quantities as well, drawn with one fixed seed.
        """
        values = by_name(self.model.constrain(x, everything=generated), self.model.names(2 if generated else 1))
        return {name: torch.from_numpy(value) for name, value in values.items()}

    def unconstrain(self, values: Mapping[str, Any]) -> Tensor:
        """Points (n, D), float64, of values of the parameters; errors and others as of ``SiteTask.unconstrain``."""
        if self.model.lost:
            lost = ", ".join(self.model.lost)
            raise ShapeError(f"{self.name}: {lost}: values of a unit vector do not hold its coordinates")
        return super().unconstrain(values)

    def _points(self, values: dict[str, Tensor]) -> Tensor:
        parts = (values[site.name].permute(0, *range(len(site.shape), 0, -1)) for site in self.sites)  # by columns
        rows = torch.cat([part.reshape(len(part), -1) for part in parts], 1).numpy()
        try:
            return torch.from_numpy(self.model.unconstrain(rows))
        except InputError as error:
            raise ShapeError(f"{self.name}: {error}") from None

    @property
    def source(self) -> str:
        """What names this density in a cell's key: program and data."""
        return f"{digest(self.model.program.text)}-{digest(self.model.data)}-{super().source}"


@dataclass(frozen=True)
class Starts:
    """Uniform draws from the cube [-2, 2]^D, again where the program rejects one, as Stan does."""

    model: StanModel

    def __call__(self, n: int, generator: Generator) -> Tensor:
        """Draws, (n, D) float64."""
        box = Box(self.model.dim)
        drawn, bad = box(n, generator), torch.arange(n)
        for _ in range(_STARTS):
            bad = bad[~self.model.density(drawn[bad]).isfinite()]
            if not len(bad):
                break
            drawn[bad] = box(len(bad), generator)
        return drawn


def by_name(values: NDArray[np.float64], names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Values (n, k) of the entries ``names``, such as ``theta.2.1``, by variable: name -> (n, ...)."""
    found, first = {}, 0
    for site in _shapes(names):
        part = values[:, first : (first := first + math.prod(site.shape))]
        part = part.reshape(len(part), *site.shape[::-1]).transpose(0, *range(len(site.shape), 0, -1))  # by columns
        found[site.name] = part.copy()
    return found


def _shapes(names: Sequence[str]) -> tuple[Site, ...]:
    """Parameters with their shapes from names of their entries, as ``theta.2.1``: the last entry has the largest indices."""
    parts = [name.split(".") for name in names]
    shapes = {base: tuple(int(i) if i.isdecimal() else 1 for i in index) for base, *index in parts}
    return tuple(Site(base, shape, ()) for base, shape in shapes.items())


def _bracketed(name: str) -> str:
    """``theta[2,1]`` of ``theta.2.1``."""
    base, _, index = name.partition(".")
    return f"{base}[{index.replace('.', ',')}]" if index else base


def _json(origin: str | Path, text: str) -> str:
    """The text of data in JSON; ``InputError`` where it is none, or a number is missing."""
    try:
        if not isinstance(found := json.loads(text), dict):
            raise ValueError("it holds no object {name: value}")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: expected the data of a Stan program in JSON: {error}") from None
    if lacking := [name for name, value in found.items() if "NaN" in json.dumps(value)]:
        raise InputError(f"{origin}: {', '.join(lacking)} has missing numbers (NaN), which Stan does not take")
    return text
