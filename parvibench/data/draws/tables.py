"""Tables of draws: which of their columns are coordinates, and which number chains and draws."""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Choice, Draws, choose
from .naming import is_weight, listed

#: Names of columns that may number chains or draws, in small letters; whether they do, their values decide.
_CHAIN = (".chain", "chain__", "chain", "chain_id")
_DRAW = (".iteration", ".draw", "iter__", "draw__", "iteration", "draw", "iter", "sample")
#: Likewise of rows.
_ROW = ("unnamed: 0", "index", "id", "row")
#: Names that tell rows of a warm-up from draws.
_WARMUP = re.compile(r"(?i)(is_?|in_?|\.)?(warm_?up|burn_?in|burned|tun(e|ed|ing))")
#: Named by programs alone.
_ALWAYS = (".chain", ".iteration", ".draw", "chain__", "iter__", "draw__")


def offered(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Columns that may be coordinates, and those that may number draws; a sampler's own (``lp__``) are neither."""
    counts = [name for name in names if name.lower() in (*_CHAIN, *_DRAW, *_ROW)]
    known = set(counts)
    return [n for n in names if n and n not in known and (not n.endswith("__") or is_weight(n))], counts


def wanted(names: Sequence[str], choice: Choice) -> tuple[list[str], list[str]]:
    """The chosen columns in their order, all where none is chosen, and those that may number draws."""
    plain, counts = offered(names)
    if not choice.any:
        either = {*plain, *counts}
        return [n for n in names if n in either], counts
    known = [*plain, *(n for n in counts if n.lower() not in _ALWAYS)]
    return [known[i] for i in choose(known, choice)], counts


def names_chains(name: str) -> bool:
    """Whether a column of this name may tell chains apart by text."""
    return name.lower() in _CHAIN


def without_flags(names: Sequence[str], flags: Set[str]) -> tuple[list[str], list[str]]:
    """Columns without those of truth values, and the remark on these; one that marks a warm-up remains and is refused."""
    left = [n for n in names if n in flags and not _WARMUP.fullmatch(n)]
    said = [f"columns of truth values left out: {listed(left)}"] if left else []
    return [n for n in names if n not in left], said


def read_table(
    names: Sequence[str], read: Callable[[list[str]], Mapping[str, Any]], choice: Choice, flags: Set[str] = frozenset()
) -> Draws:
    """Draws of the columns that are coordinates, in the chains and the order that other columns tell.

    Columns that the user names are coordinates, whatever their names. ``read`` gives columns by name, and ``flags`` are those
    of truth values.
    """
    names, said = (names, []) if choice.any else without_flags(names, flags)
    chosen, counts = wanted(names, choice)
    if not chosen and not counts:
        raise ValueError(f"no column of draws; it has {listed(names)}")
    columns = read(list(dict.fromkeys([*chosen, *counts])))
    open_to = [c for c in counts if not (choice.any and c in chosen)]
    chain = next((n for c in _CHAIN for n in open_to if n.lower() == c and _numbers_chains(columns[n], c)), "")
    rows, chains = [n for n in open_to if n.lower() in (*_DRAW, *_ROW)], columns.get(chain)
    order = [n for n in rows if _numbers_draws(columns[n], chains, n.lower())]
    used = [*filter(None, [chain, *order])]
    _refuse_mixed(columns, [n for n in open_to if n not in used], () if choice.any else chosen, chains)
    names = [n for n in chosen if n not in used and n.lower() not in _ALWAYS]
    if not names or not len(columns[names[0]]):
        raise ValueError(f"no column of draws; it has {listed(list(columns))}")
    values = np.column_stack([np.asarray(columns[n], dtype=np.float64) for n in names])
    if chain:
        values = in_chains(values, columns[chain], chain, columns[order[0]] if order else None)
        if choice.axes.replace(" ", "").startswith("draw,chain"):
            values = values.swapaxes(0, 1)
    left = [f"columns that number draws left out: {listed(used)}"] if used else []
    return Draws(values, names, [*left, *said])


def _refuse_mixed(
    columns: Mapping[str, NDArray[Any]], counts: Sequence[str], names: Sequence[str], chains: NDArray[Any] | None
) -> None:
    """``ValueError`` where ``counts`` show draws in long form, or one of ``names`` marks rows of a warm-up."""
    for name in counts:
        if name.lower() in _DRAW and _repeats(columns[name], chains):
            raise ValueError(
                f"column {name!r} has every number in several rows: draws in long form; give a row to each draw, and a "
                "column to each coordinate"
            )
    for name in names:
        if _WARMUP.fullmatch(name) and len(np.unique(columns[name])) > 1:
            raise ValueError(f"column {name!r} tells rows apart: keep those of draws alone, or choose with --columns")


def in_chains(
    values: NDArray[np.float64], numbers: NDArray[Any], name: str, by: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """Rows (n, d) as (chains, draws, d), each chain in its own order, or ``by`` numbers of draws.

    ``ValueError`` for chains of different lengths.
    """
    numbers = np.asarray(numbers)
    if by is not None:
        order = np.argsort(np.asarray(by), kind="stable")
        values, numbers = values[order], numbers[order]
    chains = np.unique(numbers)
    parts = [values[numbers == c] for c in chains]
    if len({len(part) for part in parts}) > 1:
        raise ValueError(f"column {name!r} separates chains of {', '.join(str(len(p)) for p in parts[:8])} draws")
    return np.stack(parts)


def _numbers_chains(values: NDArray[Any], name: str) -> bool:
    """Few whole numbers, each in several rows."""
    if name in _ALWAYS:
        return True
    if not _whole(values):
        return False
    distinct, rows = np.unique(values, return_counts=True)
    return bool(rows.min() > 1 and distinct.min() >= 0 and distinct.max() <= 10_000)


def _numbers_draws(values: NDArray[Any], chains: NDArray[Any] | None, name: str) -> bool:
    """Whole numbers that count on evenly, in every chain."""
    if name in _ALWAYS:
        return True
    if not _whole(values) or len(values) < 2:
        return False
    parts = [values] if chains is None else [values[chains == c] for c in np.unique(chains)]
    steps = {tuple(np.unique(np.diff(np.sort(part)))) for part in parts if len(part) > 1}
    return all(len(step) == 1 and step[0] >= 1 for step in steps)


def _repeats(values: NDArray[Any], chains: NDArray[Any] | None) -> bool:
    """Whether every number is in as many rows, and in more than one, of each chain."""
    if not _whole(values):
        return False
    pairs = np.column_stack([values, np.zeros(len(values)) if chains is None else chains])
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    return bool(counts.min() > 1 and counts.min() == counts.max())


def _whole(values: NDArray[Any]) -> bool:
    array = np.asarray(values)
    return array.dtype.kind in "iuf" and bool(np.isfinite(array).all() and (array == np.round(array)).all())
