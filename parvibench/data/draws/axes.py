"""Which dimension of an array is which: chains, draws, components.

Names of dimensions decide, in whatever order they stand. Without names a shape is read where it has one sensible
reading; where it has two, the question is put, with the option that settles it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Choice, Draws, choose, swapped

#: Names of dimensions, in small letters and without points; of several, the first counts.
CHAIN = ("chain", "chains")
DRAW = ("draw", "draws", "iteration", "iterations", "iter", "sample", "samples")
#: From so many on, wide arrays may as well be draws of vectors as chains: a verdict takes 50 draws.
_MANY_CHAINS = 50


@dataclass(frozen=True)
class Variable:
    """An array with what is known of its dimensions."""

    values: NDArray[Any]
    dims: Sequence[str] = ()  #: names, or none
    labels: Mapping[str, Any] = field(default_factory=dict)  #: of dimensions, where they have any


def arrange(variables: Mapping[str, Variable], choice: Choice) -> Draws:
    """Variables side by side, the chosen ones of their components as columns; a plain array is the only one, without a name.

    Raises:
        ValueError: no variables, lengths that differ, no dimension of draws, a shape with two readings, or what is chosen
            is not there.
    """
    if not variables:
        raise ValueError("no variables")
    for name, v in variables.items():
        if v.values.size == 0 or v.values.ndim == 0:
            raise ValueError(f"{f'{name[:40]!r}' if name else 'an array'} of shape {v.values.shape} holds no draws")
    variables, said = _with_dims(variables, choice)
    parts, names, places = zip(*(_columns(name, v) for name, v in variables.items()), strict=True)
    if len({part.shape[:-1] for part in parts}) > 1:
        raise ValueError(_lengths(variables))
    draws = Draws(np.concatenate(parts, axis=-1), [*chain.from_iterable(names)], said, [*chain.from_iterable(places)])
    if list(variables) == [""] and not any(draws.names):
        draws = replace(draws, names=(), places=())
    if not choice.any:
        return draws
    chosen = choose(draws.names or [str(i + 1) for i in range(draws.values.shape[-1])], choice)
    some, their_places = ([n[i] for i in chosen] if n else [] for n in (draws.names, draws.places))
    return Draws(draws.values[..., chosen], some, said, their_places)


def _columns(name: str, variable: Variable) -> tuple[NDArray[np.float64], list[str], list[str]]:
    """Components of a variable as columns, with their labels and with their numbers."""
    order, lead = _order(name, variable.dims)
    array = np.asarray(variable.values, dtype=np.float64).transpose(order)
    labels = [_labels(variable.labels.get(variable.dims[i], ()), variable.values.shape[i]) for i in order[lead:]]
    places = list(np.ndindex(array.shape[lead:]))
    labelled = [[label[i] for label, i in zip(labels, place, strict=True)] for place in places]
    columns = array.reshape(*array.shape[:lead], -1)
    return columns, [_component(name, own) for own in labelled], [_component(name, place) for place in places]


def _with_dims(variables: Mapping[str, Variable], choice: Choice) -> tuple[Mapping[str, Variable], list[str]]:
    """Variables with names of all dimensions, stated by ``axes`` or read by place; and the remark on these."""
    if choice.axes:
        stated = {}
        for name, v in variables.items():
            dims = _stated(choice.axes, name, v.values.shape)
            labels = {new: v.labels[old] for new, old in zip(dims, v.dims, strict=False) if old in v.labels}
            stated[name] = Variable(v.values, dims, labels)
        return stated, []
    if all(v.dims for v in variables.values()):
        return variables, []
    lead, said = _by_place(variables)
    named = {k: Variable(v.values, default_dims(v.values.ndim, lead)) for k, v in variables.items()}
    return named, [said] if said else []


def _lengths(variables: Mapping[str, Variable]) -> str:
    shown = ", ".join(f"{name:.40} {v.values.shape}" for name, v in list(variables.items())[:6])
    return f"variables of different lengths: {shown}"


def _component(name: str, index: Sequence[Any]) -> str:
    """``theta[1,2]``; of an array without a name the label, if it is text."""
    if not name:
        return ",".join(map(str, index)) if any(isinstance(i, str) for i in index) else ""
    return f"{name}[{','.join(map(str, index))}]" if len(index) else name


def _labels(given: Any, size: int) -> Sequence[Any]:
    """Labels of a dimension: text, or whole numbers in an order of their own; else numbers from 0 on."""
    array = np.asarray(given)
    if array.shape != (size,) or array.dtype.kind not in "iuUSO" or len(set(array.tolist())) < size:
        return range(size)
    if array.dtype.kind in "iu":
        counted = any(np.array_equal(array, np.arange(size) + first) for first in (0, 1))
        return range(size) if counted else array.tolist()
    return [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in array.tolist()]


def _order(name: str, dims: Sequence[str]) -> tuple[list[int], int]:
    """Dimensions in the order (chain, draw, others), and how many of the first two there are."""
    plain = [dim.strip("._ ").lower() for dim in dims]
    draw = next((plain.index(d) for d in DRAW if d in plain), None)
    if draw is None:
        raise ValueError(
            f"{name[:40]!r} has the dimensions ({', '.join(dims)}), none of them draw; leave it out by --variables"
        )
    chain = next((plain.index(c) for c in CHAIN if c in plain), None)
    lead = [draw] if chain is None else [chain, draw]
    return lead + [i for i in range(len(dims)) if i not in lead], len(lead)


def default_dims(ndim: int, lead: int = 2) -> list[str]:
    """Names of the dimensions of an array that has none: chain and draw, or draw alone, then components."""
    return [*("chain", "draw")[2 - lead :], *(f"dim_{i}" for i in range(ndim - lead))]


def _stated(axes: str, name: str, shape: Sequence[int]) -> list[str]:
    """Names of the dimensions of an array by ``axes``; components of variables need not be named."""
    said = [part.strip().lower() for part in axes.split(",")]
    if not name and len(shape) == 2 and len(said) == 3 and "chain" in said:
        said.remove("chain")  # a reference without chains, and samples in chains
    fitting = said[: len(shape)] if name else said
    counts = {kind: fitting.count(kind) for kind in ("chain", "draw", "dim")}
    right = counts["draw"] == 1 and counts["chain"] <= 1 and sum(counts.values()) == len(fitting)
    if not right or set(said[len(fitting) :]) - {"dim"} or (not name and len(said) != len(shape)):
        raise ValueError(
            f"axes {axes!r} do not name the dimensions of shape {tuple(shape)}: one of them is draw, at most one chain, the "
            "others dim, as in --axes draw,chain,dim"
        )
    rest = iter(default_dims(len(shape), 0))
    return [part if part != "dim" else next(rest) for part in [*fitting, *["dim"] * (len(shape) - len(fitting))]]


def _by_place(variables: Mapping[str, Variable]) -> tuple[int, str]:
    """Number of leading dimensions that count draws (1), or chains and draws (2), without names; and the remark on it."""
    shapes = {name: v.values.shape for name, v in variables.items()}
    first, two = ({shape[:k] for shape in shapes.values()} for k in (1, 2))
    if len(first) > 1:
        raise ValueError(_lengths(variables))
    name, shape = next(iter(shapes.items()))
    if not name and len(shape) < 3:
        return 1, ""
    if not name and len(shape) > 3:
        raise ValueError(
            f"an array of shape {tuple(shape)}: (draws, dimension) or (chains, draws, dimension) is wanted"
        )
    if not name and shape[0] >= shape[1]:
        raise ValueError(f"shape {tuple(shape)}: {swapped(*shape[:2])}")
    if name and (len(two) > 1 or min(map(len, shapes.values())) == 1):
        return 1, f"{shape[0]} draws by place"
    chains, draws = min(two)
    if chains >= draws:
        return 1, f"{chains} draws by place" + (f" (not {draws} chains: --axes draw,chain)" if chains > draws else "")
    if not name or chains < _MANY_CHAINS:
        return 2, f"{chains} chains of {draws} draws by place"
    raise ValueError(
        f"{name[:40]!r} of shape {tuple(shape)} may be {chains} chains of {draws} draws, or {chains} draws of {draws} "
        "numbers: say --axes chain,draw or --axes draw,dim (axes= in Python)"
    )
