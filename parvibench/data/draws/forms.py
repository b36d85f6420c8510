"""Samples in whatever form a program holds them, as draws in a task's coordinates or in a reference's order."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parvibench.core.errors import ShapeError
from parvibench.core.task import Task
from parvibench.data.samples import joined, read_draws

from .arrays import REAL, Choice, Draws, refuse_repeats, settled
from .axes import DRAW, Variable, arrange, default_dims
from .naming import BY_WEIGHTS, Key, is_weight, listed, match, parse
from .tables import in_chains, names_chains, read_table, wanted, without_flags

#: Names that PyTorch's, JAX's and pandas' numbers of eight and sixteen bits have in NumPy, where it knows them at all.
_SHORT = ("bfloat16", "float8")


#: Attributes of programs' results, and what of these to pass.
_HOW = {
    "samples_equal": "{'x': r.samples, 'logwt': r.logwt} of these results r with weights='logwt', or r.samples_equal()",
    "get_chain": "its get_chain(discard=N), N the steps of burn-in, with axes='draw,chain,dim'",
    "weights": "{**dict(zip(names, s.samples.T)), 'weight': s.weights} of these samples s with weights='weight'",
    "results": "the draws of its results",
    "chains": "its chains()",
}


def draws_of(samples: Any, choice: Choice = Choice()) -> Draws:  # noqa: B008 - frozen
    """Samples of any of the forms of ``evaluate``, with names where they have any.

    Raises:
        ShapeError: anything but real numbers, columns of one name, or dimensions that can be read in two ways.
    """
    if isinstance(samples, Draws):
        return samples
    several = isinstance(samples, (list, tuple)) and not hasattr(samples, "_fields")
    parts = list(samples) if several else [samples]
    if parts and all(isinstance(part, (str, Path)) for part in parts):
        return read_draws([Path(part) for part in parts], choice)
    try:
        if several and _are_chains(parts):
            names = [f"element {i}" for i in range(len(parts))]
            return joined([draws_of(part, choice) for part in parts], names, choice)
        return settled(_read(samples, choice), choice)
    except ValueError as error:
        raise ShapeError(str(error)) from None


def _are_chains(parts: Sequence[Any]) -> bool:
    """Whether objects with names, or tables of different lengths, stand side by side: a chain each, or several."""
    names = ("data_vars", "posterior", "columns", "column_names")
    shapes = [tuple(getattr(part, "shape", ())) for part in parts]
    named = all(isinstance(part, Mapping) or any(hasattr(part, n) for n in names) for part in parts)
    return bool(parts) and (named or (len(set(shapes)) > 1 and all(len(shape) == 2 for shape in shapes)))


def _of_program(samples: Any, choice: Choice) -> Draws | None:
    """Draws of a sampler's own objects; None of anything else."""
    if callable(getattr(samples, "get_samples", None)):  # MCMC of NumPyro and Pyro
        sites = {str(k): _real(v, str(k)) for k, v in samples.get_samples(group_by_chain=True).items()}
        return arrange({k: Variable(v, default_dims(v.ndim)) for k, v in sites.items()}, choice)
    if hasattr(samples, "column_names") and callable(getattr(samples, "draws", None)):  # fits of CmdStanPy
        array, names = _real(samples.draws()), list(samples.column_names)
        chosen = wanted(names, choice)[0]
        array = array.swapaxes(0, 1) if array.ndim == 3 else array
        return Draws(array[..., [names.index(n) for n in chosen]], chosen)
    if hasattr(samples, "_fields") and hasattr(samples, "position"):  # states of BlackJAX
        return _read(samples.position, choice)
    return None


def _read(samples: Any, choice: Choice) -> Draws:
    if (draws := _of_program(samples, choice)) is not None:
        return draws
    posterior = getattr(samples, "posterior", None)
    data = posterior if hasattr(posterior, "data_vars") else samples
    if hasattr(data, "data_vars"):
        return _of_variables(data, choice)
    if hasattr(data, "dims") and hasattr(data, "coords"):  # a DataArray
        return arrange({str(getattr(data, "name", "") or ""): _variable("samples", data)}, choice)
    if isinstance(data, Mapping):
        return _of_arrays(data, choice)
    if (columns := _table_of(data)) is not None:
        return read_table(
            list(columns), lambda names: {n: _column(columns[n], n) for n in names}, choice, _flags(columns)
        )
    for accessor, line in _HOW.items():
        if hasattr(data, accessor) and not hasattr(data, "__array__"):
            raise ShapeError(f"a {type(data).__name__} is no array of draws: pass {line}")
    return arrange({"": Variable(_real(data))}, choice)


def _of_arrays(data: Mapping[Any, Any], choice: Choice) -> Draws:
    names, said = without_flags([str(k) for k in data], _flags(data))
    try:
        draws = arrange({str(k): Variable(_real(v, str(k))) for k, v in data.items() if str(k) in names}, choice)
    except ShapeError as error:
        arrays = [k for k, v in data.items() if getattr(v, "ndim", 0) > 1][:1]
        if not arrays:
            raise
        weights = [k for k in data if is_weight(str(k))][:1]
        alone = ", ".join(f"{k!r}: d[{k!r}]" for k in arrays + weights)
        way = "".join(f" with weights={k!r}" for k in weights)
        raise ShapeError(f"{error}; pass of this dictionary d the draws alone: {{{alone}}}{way}") from None
    return replace(draws, read=[*draws.read, *said])


def _flags(columns: Mapping[Any, Any]) -> set[str]:
    """Names of columns of truth values."""
    return {
        str(k) for k, v in columns.items() if str(getattr(v, "dtype", "")).removeprefix("torch.").startswith("bool")
    }


def _column(values: Any, name: str) -> NDArray[Any]:
    """Numbers of a column; of text that tells chains apart its ranks."""
    text = names_chains(name) and np.asarray(values).dtype.kind in "OUST"
    return np.unique(np.asarray(values).astype(str), return_inverse=True)[1] if text else _real(values, name)


def _of_variables(data: Any, choice: Choice) -> Draws:
    """An xarray data set, such as the posterior of an InferenceData."""
    variables = {
        str(k): _variable(str(k), v) for k, v in data.data_vars.items() if not choice.variables or k in choice.variables
    }
    draws = arrange(variables, choice)
    numbers = getattr(data, "coords", {}).get("chain")  # of chains and draws stacked into one dimension
    if draws.values.ndim == 3 or numbers is None:
        return draws
    if tuple(getattr(numbers, "dims", ()))[:1] in [(d,) for d in DRAW]:
        return replace(draws, values=in_chains(draws.values, np.asarray(numbers.values), "chain"))
    return draws


def _variable(name: str, array: Any) -> Variable:
    dims, coords = getattr(array, "dims", ()), dict(getattr(array, "coords", {}))
    labels = {str(d): np.asarray(getattr(coords[d], "values", coords[d])) for d in dims if d in coords}
    return Variable(_real(array.values, name), [str(d) for d in dims], labels)


def _table_of(data: Any) -> dict[str, Any] | None:
    """Columns by name of a data frame, a series or an array of records; None for anything else."""
    fields = getattr(getattr(data, "dtype", None), "names", None)
    if fields:
        return {name: data[name] for name in fields}
    if hasattr(data, "to_frame") and not hasattr(data, "columns"):
        data = data.to_frame(data.name if data.name is not None else 0)
    names = getattr(data, "column_names", None) or getattr(data, "columns", None)
    if names is None or isinstance(names, np.ndarray):
        return None
    names = list(names)
    numbered = names == list(range(len(names))) and all(isinstance(name, int) for name in names)  # by pandas
    own = getattr(data, "index", None)
    levels = [n for n in getattr(own, "names", ()) if isinstance(n, str)]
    counted = [n for n in levels if n.lower() in ("chain", "draw")]
    if counted and len(levels) > len(counted):
        raise ValueError(f"an index of {', '.join(levels)}: draws in long form; give a row to each draw")
    index = {name: own.get_level_values(name) for name in counted}  # type: ignore[union-attr]
    if numbered and not index:
        return None
    refuse_repeats([str(name) for name in names])
    return index | {str(n): data.iloc[:, i] if hasattr(data, "iloc") else data[n] for i, n in enumerate(names)}


def _real(values: Any, name: str = "") -> NDArray[np.float64]:
    whose = f"column {name[:40]!r} holds" if name else "samples hold"
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().to_dense()
        values = (values.double() if values.is_floating_point() else values).numpy()
    if isinstance(values, np.ma.MaskedArray):
        if masked := int(np.ma.getmaskarray(values).sum()):
            raise ShapeError(f"{whose} masked entries, {masked} of them: fill or drop them")
        values = values.data
    own = getattr(values, "dtype", None)
    # Nullable numbers of pandas.
    if hasattr(values, "to_numpy") and not isinstance(own, np.dtype) and getattr(own, "kind", "b") in REAL:
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:  # lists of unequal lengths; objects that refuse
        told = "rows of different lengths" if "inhomogeneous" in str(error) else f"{type(values).__name__}"
        raise ShapeError(f"{whose} {told}, not real numbers") from None
    if array.dtype.kind not in REAL and not array.dtype.name.startswith(_SHORT):
        raise ShapeError(f"{whose} {array.dtype}, not real numbers")
    return array.astype(np.float64)


def against(draws: Draws, given: Draws) -> Draws:
    """Samples in the order of the reference's columns; ``ShapeError`` where names do not match, or draws have weights."""
    _refuse_weights(draws, given.names)
    return _matched(draws, given.names, "the reference", given.values.shape[-1])


def in_coordinates(draws: Draws, task: Task, of: str = "the samples") -> Draws:
    """Draws in the order of a task's coordinates, by name; those named after the sites of a Pyro model as its points.

    ``ShapeError`` for names that do not match, with both lists.
    """
    sites = getattr(task, "sites", ())
    names = draws.places or draws.names
    _refuse_weights(draws, [*getattr(task, "coordinates", ()), *(site.name for site in sites)], of)
    styles = ([parse(name, underscores=underscores) for name in names] for underscores in (False, True))
    keys = next((k for k in styles if sites and {site.name for site in sites} <= {base for base, _ in k}), None)
    if keys is None:
        convention = f" ({said})" if (said := getattr(task, "convention", "")) else ""
        return _matched(draws, getattr(task, "coordinates", ()), f"the task's coordinates{convention}", task.dim, of)
    lead, flat = draws.values.shape[:-1], draws.values.reshape(-1, draws.values.shape[-1])
    values = {site.name: _value_of(site.name, site.shape, keys, flat) for site in sites}
    points = task.unconstrain(values).numpy()  # type: ignore[attr-defined]
    said = f"values of the model's sites {', '.join(values)} mapped to its coordinates"
    more = [name for name, (base, _) in zip(names, keys, strict=True) if base not in values]
    said += f"; left out: {listed(more)}" if more else ""
    return Draws(points.reshape(*lead, -1), tuple(task.coordinates), (*draws.read, said))  # type: ignore[attr-defined]


def _refuse_weights(draws: Draws, wanted: Sequence[str], of: str = "the samples") -> None:
    """``ShapeError`` for columns that are weights by their names, no coordinates, and not all the same."""
    own = {parse(name)[0] for name in wanted}
    for i, name in enumerate(draws.names):
        if is_weight(name) and name not in own and not draws.chosen and np.ptp(draws.values[..., i]) != 0:
            raise ShapeError(f"{of} have weights ({name:.40}): {BY_WEIGHTS.format(name)}")


def _matched(draws: Draws, names: Sequence[str], to: str, dim: int, of: str = "the samples") -> Draws:
    count = draws.values.shape[-1]
    if (not names or not draws.names) and count != dim:
        return draws  # refused by its shape, where it is judged
    try:
        try:
            order, said = match(draws.names, names, of, to, count)
        except ValueError:
            if not draws.places or list(draws.places) == list(draws.names):
                raise
            order, said = match(draws.places, names, of, to, count)  # a name has numbers where the draws have labels
    except ValueError as error:
        if not (draws.chosen and count == dim):
            raise ShapeError(str(error)) from None
        return replace(draws, read=(*draws.read, f"columns taken as they were chosen, in the order of {to}"))
    values = draws.values if order == list(range(count)) else draws.values[..., order]
    return replace(
        draws, values=values, names=tuple(names) or draws.names, read=(*draws.read, said), places=(), chosen=False
    )


def _value_of(name: str, shape: tuple[int, ...], keys: Sequence[Key], flat: NDArray[Any]) -> NDArray[Any]:
    """Values (n, *shape) of a variable from its columns, wherever its indices count from."""
    columns = {index: i for i, (base, index) in enumerate(keys) if base == name}
    whole = all(len(index) == len(shape) and all(isinstance(i, int) for i in index) for index in columns)
    lowest = [min(int(index[axis]) for index in columns) for axis in range(len(shape))] if whole else []
    value: Any = np.full((len(flat), *shape), np.nan)
    for index, column in columns.items():
        place = tuple(int(i) - low for i, low in zip(index, lowest, strict=True)) if whole else ()
        if not whole or any(i >= length for i, length in zip(place, shape, strict=True)):
            raise ShapeError(f"{name}[{','.join(map(str, index))}]: {name} of the model has the shape {shape}")
        value[(slice(None), *place)] = flat[:, column]
    if np.isnan(value).any() and not np.isnan(flat).any():
        raise ShapeError(f"{len(columns)} columns of {name}; its shape in the model is {shape}")
    return value
