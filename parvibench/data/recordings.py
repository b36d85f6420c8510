"""Recordings of many channels: a text file in a zip archive, one row of numbers per channel."""

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import InputError

from .archives import read_member
from .fetch import fetch, registry

#: Limit on the unpacked text.
MAX_BYTES = 128 * 2**20


@lru_cache(maxsize=4)
def load_channels(name: str, count: int) -> NDArray[np.float64]:
    """The first ``count`` channels of a registered recording as columns, (n, count) float64; read only.

    Raises:
        UnknownNameError, InputError, DataMissingError: as ``fetch``.
        InputError: the archive holds anything but one text of the registered size, or more than 128 MiB.
    """
    entry, path = registry()[name], fetch(name)
    lines = _text(path).splitlines()
    wanted = f"{entry.features} rows of {entry.rows} numbers"
    try:
        channels = np.loadtxt(lines[:count], dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise InputError(f"{path}: expected {wanted}; {error}") from None
    if (len(lines), channels.shape[1]) != (entry.features, entry.rows):
        raise InputError(f"{path}: expected {wanted}, found {len(lines)} rows of {channels.shape[1]}")
    signals = np.ascontiguousarray(channels.T)
    signals.setflags(write=False)  # one array serves all callers
    return signals


def _text(path: Path) -> str:
    """The only file in the archive, as text; at most ``MAX_BYTES`` are unpacked."""
    try:
        return read_member(path, MAX_BYTES).decode("ascii")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: no text file (byte {error.start} is not ASCII)") from None
