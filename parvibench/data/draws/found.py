"""What a file of samples holds, and how much it may hold."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

#: Numbers in one file; as float64 they take 256 MiB.
MAX_NUMBERS = 2**25


class Found(NamedTuple):
    """What a file holds."""

    values: NDArray[Any]  #: (n, d), or (chains, draws, d)
    names: Sequence[str] = ()  #: of the d columns, or none
    said: Sequence[str] = ()  #: how it was read, where that is not obvious
    places: Sequence[str] = ()  #: the names with numbers in place of labels, where they differ


def refuse_many(numbers: int) -> None:
    """``ValueError`` for more numbers than a file may hold."""
    if numbers > MAX_NUMBERS:
        raise ValueError(f"holds {numbers} numbers, more than {MAX_NUMBERS}; thin them")


def refuse_repeats(names: Sequence[str]) -> None:
    """``ValueError`` for two columns of one name."""
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise ValueError(f"two columns named {repeated[0][:40]!r}")
