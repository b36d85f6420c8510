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
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.errors import InputError, ShapeError

from .densities import METRICS, FunctionTarget, FunctionTask, checked, label_of
from .pyro_models import Box, PyroTask
from .stan_programs import StanModel, compiled, lacking

#: Random starts that Stan, too, tries before it gives up.
_STARTS = 100


S = TypeVar("S", bound="StanTask")


class Parameter(NamedTuple):
    """A parameter of the program, or what it computes from them."""

    name: str
    shape: tuple[int, ...]


def from_stan(
    program: str | Path, data: str | Path | Mapping[str, Any] | None = None, *, name: str | None = None
) -> StanTask:
    """The posterior of a Stan program as a task.

    The program is compiled at first, in about half a minute, and kept in the user's cache. Needs the extra ``stan``.

    Args:
        program: file of the program, ``.stan``.
        data: file of its data in JSON, or the values by name; None for a program without data.
        name: of the task; default: the program's, followed by that of the data where they differ.

    Raises:
        InputError: Stan refuses program or data, a parameter is discrete, or the density is not finite at random starts.
        LibraryMissingError: httpstan is not installed.

    >>> task = from_stan("schools.stan", "schools.json")  # doctest: +SKIP
    >>> task.constrain(samples)["tau"]  # doctest: +SKIP
    """
    program, place = Path(program), ""
    if isinstance(data, str | Path):
        text, stem = _read(Path(data)), Path(data).stem
        place = f"{program.resolve()}:{Path(data).resolve()}"
    else:
        text, stem = json.dumps(dict(data or {}), default=_plain), ""
        place = "" if data else f"{program.resolve()}:"
    stems = [program.stem, stem] if stem not in ("", "data", program.stem) else [program.stem]
    label = label_of(name or re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(stems))[:64])
    return task_of(StanTask, label, program, text, "" if name else place)


def opened(place: str) -> StanTask:
    """The task of a place, ``model.stan:data.json`` or ``model.stan``; errors as of ``from_stan``."""
    found = re.fullmatch(r"(.*\.stan)(?::(.*))?", place)
    if found is None:
        raise InputError(f"{place}: write model.stan:data.json, or model.stan for a program without data")
    return from_stan(found[1], found[2] or None)


def task_of(kind: type[S], label: str, program: Path, data: str, place: str, **more: Any) -> S:
    """A task of a program and the JSON text of its data; ``more`` are further fields."""
    try:
        model = StanModel(compiled(program), data)
    except InputError as error:
        raise InputError(f"{label}: {error}{lacking(program, json.loads(data))}") from None
    if not model.dim:
        raise InputError(f"{label}: the program has no parameters: nothing to sample")
    parameters = _shapes(model.names(1))
    fields = {"citation": "", "summary": f"a Stan program with the parameters {', '.join(p.name for p in parameters)}"}
    made = kind(
        name=label,
        dim=model.dim,
        tags=frozenset({"own", "stan"}),
        metrics=METRICS,
        log_density=Density(model),
        own_score=Score(model),
        batched=True,
        start=Starts(model),
        coordinates=tuple(_bracketed(n) for n in model.names(0)),
        model=model,
        sites=parameters,
        place=place,
        **(fields | more),
    )
    try:
        tried = checked(made)
    except InputError as error:
        raise InputError(f"{error}; Stan: {model.rejection}" if model.rejection else str(error)) from None
    found = {f: getattr(tried, f) for f in ("precision", "fingerprint")}
    return replace(made, **found, provides=tried.provides | {"stan"})


@dataclass(frozen=True, kw_only=True)
class StanTask(FunctionTask):
    """The posterior of a Stan program; its points are Stan's unconstrained coordinates."""

    model: StanModel
    sites: tuple[Parameter, ...] = ()  #: the parameters
    place: str = ""  #: where other processes load it from

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> StanTarget:
        """The density."""
        return StanTarget(self)

    initial = PyroTask.initial

    def constrain(self, x: Any, *, generated: bool = False) -> dict[str, Tensor]:
        """Values of the parameters, name -> (n, ...), at points (n, D).

        With ``generated`` transformed parameters and generated quantities as well, drawn with one fixed seed.
        """
        values = self.model.constrain(_doubles(x), everything=generated)
        found, first = {}, 0
        for name, shape in _shapes(self.model.names(2 if generated else 1)):
            part = values[:, first : (first := first + math.prod(shape))]
            part = part.reshape(len(part), *shape[::-1]).transpose(0, *range(len(shape), 0, -1))  # by columns
            found[name] = torch.from_numpy(part.copy())
        return found

    def unconstrain(self, values: Mapping[str, Any]) -> Tensor:
        """Points (n, D), float64, of values of the parameters, name -> (n, ...); others are left out.

        Raises:
            ShapeError: a parameter is missing, of another shape, or outside its support.
        """
        missing = [site.name for site in self.sites if site.name not in values]
        if missing:
            raise ShapeError(f"{self.name}: no values of {', '.join(missing)}; found {', '.join(values) or 'none'}")
        parts = []
        for site in self.sites:
            value = np.asarray(values[site.name], dtype=np.float64)
            if value.shape[1:] != site.shape:
                raise ShapeError(f"{self.name}: {site.name} has shape {value.shape}, not {('n', *site.shape)}")
            parts.append(value.transpose(0, *range(value.ndim - 1, 0, -1)).reshape(len(value), -1))  # by columns
        try:
            return torch.from_numpy(self.model.unconstrain(np.concatenate(parts, axis=1)))
        except InputError as error:
            raise ShapeError(f"{self.name}: {error}") from None

    @property
    def source(self) -> str:
        """What names this density in a cell's key: program and data."""
        return f"{self.model.library.stem}-{super().source}"


class StanTarget(FunctionTarget):
    """The density of a ``StanTask``."""

    task: StanTask

    def __init__(self, task: StanTask) -> None:
        super().__init__(task)
        self.native = task.model

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""
        values, slopes = _evaluated(self.native, x.detach().reshape(-1, self.dim))
        return values.to(x).reshape(x.shape[:-1]), slopes.to(x).reshape(x.shape)


@dataclass(frozen=True)
class Density:
    """Log densities (n,) of points (n, D)."""

    model: StanModel

    def __call__(self, x: Tensor) -> Tensor:
        """float64."""
        return torch.from_numpy(self.model.evaluate(_doubles(x), gradients=False, threads=torch.get_num_threads())[0])


@dataclass(frozen=True)
class Score:
    """Gradients (n, D) at points (n, D)."""

    model: StanModel

    def __call__(self, x: Tensor) -> Tensor:
        """float64."""
        return _evaluated(self.model, x)[1]


@dataclass(frozen=True)
class Starts:
    """Uniform draws from the cube [-2, 2]^D, again where the program rejects one, as Stan does."""

    model: StanModel

    def __call__(self, n: int, generator: Generator) -> Tensor:
        """Draws, (n, D) float64."""
        box, density = Box(self.model.dim), Density(self.model)
        drawn = box(n, generator)
        for _ in range(_STARTS):
            bad = ~density(drawn).isfinite()
            if not bool(bad.any()):
                break
            drawn[bad] = box(int(bad.sum()), generator)
        return drawn


def _evaluated(model: StanModel, x: Tensor) -> tuple[Tensor, Tensor]:
    values, slopes = model.evaluate(_doubles(x), threads=torch.get_num_threads())
    return torch.from_numpy(values), torch.from_numpy(slopes)


def _doubles(x: Any) -> Any:
    return torch.as_tensor(x).detach().cpu().to(torch.float64).numpy()


def _shapes(names: Sequence[str]) -> tuple[Parameter, ...]:
    """Parameters with their shapes from names of their entries, as ``theta.2.1``: the last entry has the largest indices."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name in names:
        base, *index = name.split(".")
        shapes[base] = tuple(int(i) if i.isdecimal() else 1 for i in index)
    return tuple(Parameter(base, shape) for base, shape in shapes.items())


def _bracketed(name: str) -> str:
    """``theta[2,1]`` of ``theta.2.1``."""
    base, _, index = name.partition(".")
    return f"{base}[{index.replace('.', ',')}]" if index else base


def _read(path: Path) -> str:
    """The text of a JSON file of data."""
    try:
        text = path.read_text(encoding="utf-8")
        if not isinstance(json.loads(text), dict):
            raise ValueError("it holds no object {name: value}")
    except FileNotFoundError:
        raise InputError(f"no such data file: {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected the data of a Stan program in JSON: {error}") from None
    return text


def _plain(value: Any) -> Any:
    """Arrays and tensors as lists."""
    return np.asarray(value).tolist()
