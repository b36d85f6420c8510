"""Samples read from files of untrusted origin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core.errors import InputError

MAX_BYTES = 2 * 2**30


def read_samples(path: Path) -> NDArray[np.float64]:
    """Samples from ``.npy``, ``.npz`` (array ``samples``), ``.csv`` or ``.parquet``; never unpickles.

    A CSV file may have a header line; all columns must be numbers.

    Returns:
        The array as found, float64; ``evaluate`` checks its shape.

    Raises:
        InputError: no such file, unknown ending, too large, or not numbers.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**30} GiB")
    try:
        return _READERS[path.suffix](path)
    except KeyError:
        if path.suffix in _READERS:
            raise InputError(f"{path}: no array named 'samples' inside") from None
        given = path.suffix or "no ending"
        raise InputError(f"{path}: samples come as {', '.join(_READERS)}; got {given}") from None
    except (ValueError, OSError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: cannot be read as {path.suffix} numbers: {reason}") from None


def _npy(path: Path) -> NDArray[np.float64]:
    return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)


def _npz(path: Path) -> NDArray[np.float64]:
    with np.load(path, allow_pickle=False) as arrays:
        return np.asarray(arrays["samples"], dtype=np.float64)


def _csv(path: Path) -> NDArray[np.float64]:
    with path.open(encoding="utf-8") as file:
        first = file.readline().strip().split(",")
    header = None if all(_is_number(f) for f in first) else 0
    return pd.read_csv(path, header=header).to_numpy(dtype=np.float64)


def _parquet(path: Path) -> NDArray[np.float64]:
    return pd.read_parquet(path).to_numpy(dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_READERS = {".npy": _npy, ".npz": _npz, ".csv": _csv, ".parquet": _parquet}
