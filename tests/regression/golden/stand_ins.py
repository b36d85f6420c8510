"""Small generated files in the place of the data sets, so that what reads and splits them is traced without a download."""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from parvibench.data import archives, fetch, loaders

from .noise import normal_numbers, uniform_numbers

#: Rows of every file, more than a mini-batch.
ROWS = 150


@contextmanager
def generated_data() -> Iterator[None]:
    """Every registered file but those that ship with packages has ``ROWS`` generated rows."""
    entries = {name: replace(entry, rows=ROWS) for name, entry in fetch.registry().items()}
    with TemporaryDirectory() as folder:

        def place(name: str) -> Path:
            path = Path(folder) / entries[name].file
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(_content(entries[name]))
            return path

        with ExitStack() as patches:
            for module in (loaders, archives):
                patches.enter_context(mock.patch.multiple(module, fetch=place, registry=lambda: entries))
            forget()
            patches.callback(forget)
            yield


def forget() -> None:
    """Empty the caches of what was read from files or drawn; the registry's stay."""
    for name, module in list(sys.modules.items()):
        if name.startswith("parvibench.") and name != "parvibench.core.registry":
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _content(entry: fetch.DataSet) -> bytes:
    """The bytes of a file that is read as the registered one is."""
    key = zlib.crc32(entry.name.encode())
    write = _WRITERS.get(Path(entry.file).suffix, _table)
    return write(entry, key)


def _regression(entry: fetch.DataSet, key: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features of unlike scales, and a response that depends on two of them."""
    X = normal_numbers(key, ROWS, entry.features) * np.arange(1, entry.features + 1) + 5
    noise = normal_numbers(key + 1, ROWS)
    return X, 3 + 2 * np.sin(X[:, 0]) + 0.3 * X[:, -1] + 0.5 * noise


def _table(entry: fetch.DataSet, key: int) -> bytes:
    X, y = _regression(entry, key)
    # One column more than is registered, as in naval-propulsion-plant.
    return _text(np.column_stack([X, y, y + 1]), entry, " ")


def _csv(entry: fetch.DataSet, key: int) -> bytes:
    return _text(np.column_stack(_regression(entry, key)), entry, ",")


def _text(values: NDArray[np.float64], entry: fetch.DataSet, delimiter: str) -> bytes:
    buffer = io.StringIO()
    buffer.write("header\n" * entry.header_lines)
    np.savetxt(buffer, values, fmt="%.17g", delimiter=delimiter)
    return buffer.getvalue().encode()


def _letters(entry: fetch.DataSet, key: int) -> bytes:
    """The first column is the response."""
    u = uniform_numbers(key, ROWS * (entry.features + 1)).reshape(ROWS, -1)
    sizes = np.array([2, *_LETTERS])
    rows = (u * sizes).astype(int)
    rows[: sizes.max()] = np.arange(sizes.max())[:, None] % sizes  # every letter occurs
    return "\n".join(",".join(chr(ord("a") + v) for v in row) for row in rows).encode()


#: Letters of the 22 attributes of a mushroom: 117 indicators.
_LETTERS = (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7)


def _matlab(entry: fetch.DataSet, key: int) -> bytes:
    from scipy.io import savemat

    X, y = _regression(entry, key)
    buffer = io.BytesIO()
    savemat(buffer, {"X_train": np.column_stack([np.ones(ROWS), X - 5]), "y_train": (y > np.median(y)) + 0.0})
    return buffer.getvalue()


def _recording(entry: fetch.DataSet, key: int) -> bytes:
    """Mixed heavy-tailed sources, a row for each channel."""
    sources = np.sinh(normal_numbers(key, ROWS, 5))
    mixed = sources @ normal_numbers(key + 1, 5, 5)
    rows = np.column_stack([mixed, np.zeros((ROWS, entry.features - 5))]).T
    return _zipped(_text(rows, entry, " "), "recording.txt")


def _permutation(entry: fetch.DataSet, key: int) -> bytes:
    order = np.argsort(uniform_numbers(key, ROWS)).astype("<i8")
    return _zipped(pickle.dumps(order.tobytes()), "archive/data.pkl")


def _zipped(content: bytes, name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


_WRITERS: dict[str, Callable[[fetch.DataSet, int], bytes]] = {
    ".csv": _csv,
    ".data": _letters,
    ".mat": _matlab,
    ".zip": _recording,
    ".pt": _permutation,
}
