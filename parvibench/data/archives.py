"""Data sets in zip archives from untrusted sources: recordings, permutations, and the data of Stan programs."""

import json
import pickletools
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import InputError

from .fetch import fetch, registry

#: Limits on what is unpacked of a recording, of the data of a Stan program, and of a pickle: 64 KiB hold 8000 row numbers.
RECORDING_BYTES, STAN_BYTES, PICKLE_BYTES = 128 * 2**20, 32 * 2**20, 2**16


def read_member(path: Path, max_bytes: int, ending: str = "") -> bytes:
    """The content of the only file in a zip archive whose name ends so; never more than the limit is unpacked.

    ``InputError`` where there is no readable archive, not exactly one such file, or a larger one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir() and m.filename.endswith(ending)]
            if len(members) != 1:
                wanted = f"one file {ending}" if ending else "one file"
                raise InputError(f"{path}: expected {wanted} in the archive, found {len(members)}")
            with archive.open(members[0]) as file:
                content = file.read(max_bytes + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: no readable zip archive: {error}") from None
    if len(content) > max_bytes:
        raise InputError(f"{path}: {members[0].filename!r} unpacks to more than {max_bytes} bytes")
    return content


@lru_cache(maxsize=4)
def load_channels(name: str, count: int) -> NDArray[np.float64]:
    """The first ``count`` channels of a registered recording as columns, (n, count) float64; read only.

    The file is a text with one row of numbers per channel.

    Raises:
        UnknownNameError, InputError, DataMissingError: as ``fetch``.
        InputError: the archive holds anything but one text of the registered size, or more than 128 MiB.
    """
    entry, path = registry()[name], fetch(name)
    content = read_member(path, RECORDING_BYTES)
    wanted = f"{entry.features} rows of {entry.rows} numbers"
    try:
        lines = content.decode("ascii").splitlines()
        channels = np.loadtxt(lines[:count], dtype=np.float64, ndmin=2)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: no text file (byte {error.start} is not ASCII)") from None
    except ValueError as error:
        raise InputError(f"{path}: expected {wanted}; {error}") from None
    if (len(lines), channels.shape[1]) != (entry.features, entry.rows):
        raise InputError(f"{path}: expected {wanted}, found {len(lines)} rows of {channels.shape[1]}")
    signals = np.ascontiguousarray(channels.T)
    signals.setflags(write=False)  # one array serves all callers
    return signals


@lru_cache(maxsize=4)
def load_permutation(name: str) -> NDArray[np.int64]:
    """A registered permutation of 0, ..., n - 1 that was saved with PyTorch, (n,); read only.

    The file is a zip archive with a pickled array of little-endian 64-bit integers. Nothing is unpickled: the numbers
    are the longest string among the pickle's opcodes, whose text stands for Latin-1 bytes.

    Raises:
        UnknownNameError, InputError, DataMissingError: as ``fetch``.
        InputError: no such archive, a pickle of more than 64 KiB, or anything but a permutation of the registered length.
    """
    path, n = fetch(name), registry()[name].rows
    pickle = read_member(path, PICKLE_BYTES, "data.pkl")
    try:
        arguments = [argument for _, argument, _ in pickletools.genops(pickle)]
        texts = [argument.encode("latin-1") for argument in arguments if isinstance(argument, str)]
    except ValueError as error:  # UnicodeErrors are ValueErrors
        raise InputError(f"{path}: data.pkl is no pickle of an array: {error}") from None
    raw = [bytes(argument) for argument in arguments if isinstance(argument, bytes | bytearray)]
    numbers = max(texts + raw, key=len, default=b"")
    values = np.frombuffer(numbers, dtype="<i8") if len(numbers) == 8 * n else np.empty(0)
    if not np.array_equal(np.sort(values), np.arange(n)):
        raise InputError(f"{path}: expected a permutation of 0 to {n - 1} as 64-bit integers, found other content")
    permutation = values.astype(np.int64)
    permutation.setflags(write=False)
    return permutation


@lru_cache(maxsize=8)
def load_stan_data(name: str) -> Mapping[str, NDArray[np.float64]]:
    """The variables of a registered data set by name, float64 arrays of their own shapes; read only.

    Raises:
        UnknownNameError, InputError, DataMissingError: as ``fetch``.
        InputError: the archive holds anything but one JSON of at most 32 MiB with numbers and arrays of numbers.
    """
    path = fetch(name)
    content = read_member(path, STAN_BYTES, ".json")
    try:
        found = {key: np.array(value, dtype=np.float64) for key, value in json.loads(content).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: expected a JSON object of numbers and arrays of numbers: {error}") from None
    for array in found.values():
        array.setflags(write=False)
    return MappingProxyType(found)
