"""Samples, the choice of their columns, and arrays of real numbers in NumPy's file format."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .naming import listed, parse, plain_letters

#: Of dtypes: floating, signed and unsigned integers; neither booleans, complex numbers, dates nor text.
REAL = "fiu"
#: Numbers in one file; as float64 they take 256 MiB.
MAX_NUMBERS = 2**25


@dataclass(frozen=True)
class Draws:
    """Samples with what is known of their form."""

    values: NDArray[np.float64]  #: (n, d), or (chains, draws, d); not to be written to
    names: Sequence[str] = ()  #: of the d columns, or none
    read: Sequence[str] = ()  #: how they were read, where that is not obvious
    places: Sequence[str] = ()  #: the names with numbers in place of labels, where they differ
    chosen: bool = False  #: whether the columns were chosen one by one, and so are in the order of the task

    def __post_init__(self) -> None:
        for field in ("names", "read", "places"):
            object.__setattr__(self, field, tuple(getattr(self, field)))


def refuse_many(numbers: int) -> None:
    """``ValueError`` for more numbers than a file may hold."""
    if numbers > MAX_NUMBERS:
        raise ValueError(f"holds {numbers} numbers, more than {MAX_NUMBERS}; thin them")


def refuse_repeats(names: Sequence[str]) -> None:
    """``ValueError`` for two columns of one name."""
    repeated = sorted(n for n, times in Counter(names).items() if times > 1)
    if repeated:
        raise ValueError(f"two columns named {repeated[0][:40]!r}")


def read_array(file: IO[bytes], held: int) -> NDArray[Any]:
    """An array of real numbers from a file of ``held`` bytes; the header's claims are checked before memory is given out for them.

    ``ValueError`` for another format, anything but real numbers, or more or fewer bytes than the header claims.
    """
    began = file.tell()
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"npy version {version}")
    shape, by_columns, dtype = read[version](file)
    if dtype.kind not in REAL:
        raise ValueError(f"holds {dtype}, not real numbers")
    claimed, rest = math.prod(shape) * dtype.itemsize, held - (file.tell() - began)
    if claimed != rest:
        raise ValueError(f"claims {claimed} bytes of numbers and holds {rest}")
    content = file.read(rest + 1)  # one more: at the end of a zip archive's file its checksum is compared
    if len(content) != rest:
        raise ValueError(f"claims {claimed} bytes of numbers and holds {len(content)}")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C")


@dataclass(frozen=True)
class Choice:
    """What to take of a file of samples; nothing named: all."""

    columns: Sequence[str] = ()  #: names, or numbers from 1 on, in the order of the task's coordinates
    variables: Sequence[str] = ()  #: names; ``theta`` means all of ``theta[1]``, ``theta[2]``, ...
    axes: str = ""  #: names of the dimensions of arrays, as ``draw,chain,dim``, where they have none or others
    weights: str = ""  #: name of a column of weights, or of their logarithms

    def __post_init__(self) -> None:
        for field in ("columns", "variables"):  # what is chosen comes with its weights
            chosen = getattr(self, field)
            if self.weights and chosen and self.weights not in chosen:
                object.__setattr__(self, field, (*chosen, self.weights))

    @property
    def any(self) -> bool:
        """Whether columns or variables are named."""
        return bool(self.columns or self.variables)


def choose(names: Sequence[str], choice: Choice) -> list[int]:
    """Indices of the chosen ones among named columns, in the order of the choice; ``ValueError`` for an unknown name."""
    found = [] if choice.any else list(range(len(names)))
    keys = [parse(name) for name in names] if choice.any else []
    for name in choice.variables:
        of_variable = [i for i, column in enumerate(names) if name in (column, keys[i][0])]
        if not of_variable:
            raise ValueError(f"no variable {name!r}; it has {listed(list(dict.fromkeys(base for base, _ in keys)))}")
        found += of_variable
    for name in choice.columns:
        number = int(name) - 1 if name.isdecimal() and name not in names else -1
        if name in names:
            found.append(names.index(name))
        elif keys.count(parse(name)) == 1:  # written in another style
            found.append(keys.index(parse(name)))
        elif 0 <= number < len(names):
            found.append(number)
        else:
            raise ValueError(f"no column {name!r}; it has {listed(names)}")
    return found


def settled(draws: Draws, choice: Choice) -> Draws:
    """Draws of equal weight, in no more chains than draws unless the axes are stated.

    Rows with weights are retained with probability w / max w, which leaves independent rows and repeats none.

    Raises:
        ValueError: no such column of weights, weights that are none, or more chains than draws.
    """
    values, name = draws.values, choice.weights
    if name:
        if name not in draws.names:
            raise ValueError(f"no column {name!r:.40} of weights; it has {listed(draws.names)}")
        at = draws.names.index(name)
        values = values.reshape(-1, values.shape[-1])
        retained, said = _retained(values[:, at], name)
        names, places = ([n for i, n in enumerate(ns) if i != at] for ns in (draws.names, draws.places))
        draws = Draws(np.delete(values[retained], at, axis=1), names, [*draws.read, said], places)
    elif values.ndim == 3 and values.shape[0] > values.shape[1] and not choice.axes:
        raise ValueError(swapped(*values.shape[:2]))
    return replace(draws, chosen=bool(choice.columns))


def _retained(weights: NDArray[np.float64], name: str) -> tuple[NDArray[np.bool_], str]:
    """The rows retained by their weights (n,), or logarithms of weights; and a remark on them."""
    if logs := bool(re.search("log|ln|lw", plain_letters(name)) or (weights < 0).any()):
        weights = np.exp(weights - weights.max())
    if not np.isfinite(weights).all() or not weights.max() > 0:
        raise ValueError(f"the weights {name!r:.40} are not finite, or all of them 0")
    rows = np.random.default_rng(0).uniform(size=len(weights)) < weights / weights.max()
    effective = weights.sum() ** 2 / (weights**2).sum()
    by = f"the weights {name!r:.40}{' (logarithms)' * logs}"
    return rows, f"{rows.sum()} of {len(weights)} rows kept by {by}, effective size {effective:.0f}"


def swapped(chains: int, draws: int) -> str:
    """The question put where the two may stand for each other."""
    return (
        f"{chains} chains of {draws} draws: if these are {draws} chains of {chains} draws, say --axes draw,chain,dim; if not, "
        "--axes chain,draw,dim (axes= in Python)"
    )
