"""Permutations of row numbers that others saved with PyTorch."""

import pickletools
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import InputError

from .archives import read_member
from .fetch import fetch, registry

#: Of the unpacked pickle; 64 KiB hold 8000 row numbers.
MAX_BYTES = 2**16


@lru_cache(maxsize=4)
def load_permutation(name: str) -> NDArray[np.int64]:
    """A registered permutation of 0, ..., n - 1, (n,); read only.

    The file is a zip archive with a pickled array of little-endian 64-bit integers. Nothing is unpickled: the numbers
    are the longest string among the pickle's opcodes.

    Raises:
        UnknownNameError, InputError, DataMissingError: as ``fetch``.
        InputError: no such archive, a pickle of more than 64 KiB, or anything but a permutation of the registered length.
    """
    path, n = fetch(name), registry()[name].rows
    numbers = _longest_string(path)
    values = np.frombuffer(numbers, dtype="<i8") if len(numbers) == 8 * n else np.empty(0)
    if not np.array_equal(np.sort(values), np.arange(n)):
        raise InputError(f"{path}: expected a permutation of 0 to {n - 1} as 64-bit integers, found other content")
    permutation = values.astype(np.int64)
    permutation.setflags(write=False)  # one array serves all callers
    return permutation


def _longest_string(path: Path) -> bytes:
    """The longest string or byte string that the pickle in a PyTorch file holds; text stands for Latin-1 bytes."""
    pickle = read_member(path, MAX_BYTES, ending="data.pkl")
    try:
        arguments = [argument for _, argument, _ in pickletools.genops(pickle)]
        texts = [argument.encode("latin-1") for argument in arguments if isinstance(argument, str)]
    except ValueError as error:  # UnicodeErrors are ValueErrors
        raise InputError(f"{path}: data.pkl is no pickle of an array: {error}") from None
    raw = [bytes(argument) for argument in arguments if isinstance(argument, bytes | bytearray)]
    return max(texts + raw, key=len, default=b"")
