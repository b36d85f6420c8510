"""Data of Stan programs: a JSON of named numbers and arrays in a zip archive."""

import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import InputError

from .archives import read_member
from .fetch import fetch

#: Limit on the unpacked text.
_MOST_BYTES = 32 * 2**20

Variables = Mapping[str, NDArray[np.float64]]


@lru_cache(maxsize=8)
def load_stan_data(name: str) -> Variables:
    """The variables of a registered data set by name, float64 arrays of their own shapes; read only.

    Raises:
        UnknownNameError, InputError, DataMissingError: as ``fetch``.
        InputError: the archive holds anything but one JSON of at most 32 MiB with numbers and arrays of numbers.
    """
    path = fetch(name)
    content = read_member(path, _MOST_BYTES, ".json")
    try:
        found = {key: np.array(value, dtype=np.float64) for key, value in json.loads(content).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: expected a JSON object of numbers and arrays of numbers: {error}") from None
    for array in found.values():
        array.setflags(write=False)  # one array serves all callers
    return MappingProxyType(found)
