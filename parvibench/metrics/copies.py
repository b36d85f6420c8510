"""Copies among draws: equal chains, chains that share a stretch, and rows that repeat more often than by chance.

Rows of a continuous law never repeat. Rounded or discrete values do: the chance that two independent draws coincide is at
most that of their rarest coincidence in one coordinate, estimated from its grid and density.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

#: Chance of more coincidences than these among independent draws, of which twice as many as estimated are expected.
_CHANCE = 1e-3
#: Of plain sets, this share of the rows may repeat more often than the step between the rows that are counted.
_OFTEN = 0.05
#: Fewest rows, and different ones, of equal chains.
_ROWS, _DIFFERENT = 8, 5
#: In one dimension fewer distinct values than this share are those of a discrete law.
_DISCRETE = 0.1
#: A row, or value, more frequent than this is an atom of the law, or a chain that does not move.
_ATOM = 0.05
#: Coordinates looked at, binary digits of half and single precision, and decimal ones.
_COORDINATES, _BITS, _DIGITS = 20, (8, 11, 24), range(1, 10)


@dataclass(frozen=True)
class Copies:
    """Copies among draws."""

    chains: list[int]  #: the chains that are no copies of earlier ones; of a plain set 0
    counted: NDArray[np.bool_]  #: (n,), or (C, T) of these chains: rows that count, no two of them copies
    repeats: bool  #: True where rows repeat, besides those of equal chains
    said: str  #: the copies in words; empty without any


def find_copies(x: Tensor) -> Copies:
    """Copies among draws (n, D), or chains (C, T, D), float64.

    A plain set counts one row in k, copies side by side, k the multiplicity that 5% of the rows exceed at most: frequent rows
    keep their weight. Of chains the first copy counts; a state that a chain holds for some time is no copy of itself.
    """
    values = x.numpy()
    if values.ndim == 2:
        ids = _ids(values)
        if not _beyond_chance(values, ids):
            return Copies([0], np.ones(len(values), dtype=bool), False, "")
        often = np.bincount(ids)[ids]
        step = int(np.quantile(often, 1 - _OFTEN, method="higher"))
        _, first = np.unique(ids, return_index=True)
        order = np.argsort(first[ids], kind="stable")  # copies side by side, at the place of the first
        picked = order[::step]
        counted = np.zeros(len(values), dtype=bool)
        counted[picked[np.unique(ids[picked], return_index=True)[1]]] = True
        said = f"{len(first):,} of {len(values):,} rows are distinct, counted as {int(counted.sum()):,} draws"
        return Copies([0], counted, True, said)
    kept, said_chains = _different(values)
    values = values[kept]
    moved = np.ones(values.shape[:2], dtype=bool)
    moved[:, 1:] = (values[:, 1:] != values[:, :-1]).any(-1)
    runs = values[moved]
    ids = _ids(runs)
    counted, repeats = np.ones(values.shape[:2], dtype=bool), _beyond_chance(runs, ids)
    if repeats:
        new = np.zeros(len(ids), dtype=bool)
        new[np.unique(ids, return_index=True)[1]] = True
        counted = new[moved.ravel().cumsum() - 1].reshape(moved.shape)
        said_chains.append(
            f"{int(new.sum()):,} of the {len(ids):,} states of the chains are distinct, each counted once"
        )
    return Copies(kept, counted, repeats, "; ".join(said_chains))


def _ids(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Numbers of the distinct rows of (n, D), (n,): equal for equal rows."""
    return np.unique(rows + 0.0, axis=0, return_inverse=True)[1].reshape(-1)  # no -0.0


def _different(chains: NDArray[np.float64]) -> tuple[list[int], list[str]]:
    """Chains that equal no earlier one, and the others in words."""
    first: dict[bytes, int] = {}
    copies: dict[int, list[str]] = {}
    for i, chain in enumerate(chains):
        origin = first.setdefault((chain + 0.0).tobytes(), i)
        if origin != i:
            copies.setdefault(origin, []).append(str(i + 1))
    copies = {
        i: c for i, c in copies.items() if len(chains[i]) >= _ROWS and len(np.unique(chains[i], axis=0)) >= _DIFFERENT
    }
    left = {int(c) - 1 for numbers in copies.values() for c in numbers}
    said = [
        f"chain{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} equal{'' if len(numbers) > 1 else 's'} chain {i + 1}: "
        "identical chains are counted once"
        for i, numbers in copies.items()
    ]
    return [i for i in range(len(chains)) if i not in left], said


def _beyond_chance(rows: NDArray[np.float64], ids: NDArray[np.int64]) -> bool:
    """Whether more pairs of rows (n, D) are equal than among independent draws of a law that is rounded, or has an atom."""
    often, n, dim = np.bincount(ids), len(rows), rows.shape[1]
    repeated = often[(often > 1) & (often <= _ATOM * n)]
    distinct = len(often)
    lone = len(repeated) == 1 and repeated[0] > 2  # in one dimension a rare atom
    if not len(repeated) or (dim == 1 and (lone or distinct < _DISCRETE * n)):
        return False
    once, share = np.unique(ids, return_index=True)[1], 1.0
    for j in range(min(dim, _COORDINATES)):
        rest = rows[often[ids] <= _ATOM * n, j] if dim == 1 else rows[:, j]
        # Where distinct rows share a value, it is an atom, as frequent as it is in all rows.
        values, inverse, counts = np.unique(rows[:, j], return_inverse=True, return_counts=True)
        atoms = np.bincount(inverse[once], minlength=len(values)) > 1
        apart = float(((counts[atoms] / n) ** 2).sum()) if dim > 1 else 0.0
        share = min(share, max(apart, coincidence(rest)))
    pairs = int((repeated * (repeated - 1) // 2).sum())
    return bool(special.pdtrc(pairs - 1, share * n * (n - 1)) <= _CHANCE)


def coincidence(values: NDArray[np.float64], width: float = 0.0) -> float:
    """Chance that two independent draws of the law of (n,) values coincide by rounding, or to half a ``width``."""
    x = np.sort(values)
    n, reach = len(x), max(2, len(x) // 40)
    low, high = np.maximum(np.arange(n) - reach, 0), np.minimum(np.arange(n) + reach, n - 1)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # of grids beyond the range of doubles
        unit = np.maximum(_unit(x), width)
    return float(((high - low) / n * (unit / np.maximum(x[high] - x[low], unit))).mean())


def _unit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of neighbouring numbers that are written with as many digits, binary or decimal, as the values (n,)."""
    mantissa, exponent = np.frexp(x)
    units = [np.spacing(np.abs(x))]
    units += [np.ldexp(1.0, exponent - bits) for bits in _BITS if (np.ldexp(mantissa, bits) % 1 == 0).all()][:1]
    size = np.floor(np.log10(np.abs(x), out=np.zeros_like(x), where=x != 0))
    for grids in (
        (10.0 ** (size + 1 - digits) for digits in _DIGITS),
        (np.full_like(x, 10.0**-k) for k in range(-3, 10)),
    ):
        multiples = ((unit, x / unit) for unit in grids)
        units += [next((unit for unit, q in multiples if (np.abs(q - np.round(q)) <= 1e-6).all()), units[0])]
    return np.asarray(np.max(units, axis=0))
