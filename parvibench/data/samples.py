"""Samples read from files of untrusted origin, in a process of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import InputError

from . import sample_formats

MAX_BYTES = 2**30
_TIMEOUT_S = 300
#: One thread each, and no arenas that are reserved ahead.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def read_samples(path: Path) -> NDArray[np.float64]:
    """Samples from ``.npy``, ``.npz`` (array ``samples``), ``.csv`` or ``.parquet``; never unpickles.

    A CSV file may begin with a row of names; all else must be real numbers, at most 2^25 of them.

    Returns:
        The array as found, float64, not to be written to; ``evaluate`` checks its shape.

    Raises:
        InputError: no such file, unknown ending, too large, anything but real numbers, or two ways to read it.
    """
    ending = path.suffix.lower()
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if ending not in sample_formats.FORMATS:
        raise InputError(f"{path}: samples come as {', '.join(sample_formats.FORMATS)}; got {ending or 'no ending'}")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**30} GiB")
    command = [sys.executable, "-P", "-m", sample_formats.__name__, str(path.absolute())]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_TIMEOUT_S, env={**os.environ, **_ENVIRONMENT}
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{path}: not read within {_TIMEOUT_S} s") from None
    if done.returncode:
        raise InputError(f"{path}: cannot be read as {ending} numbers: {_reason(done)}")
    end = done.stdout.index(b"\n")
    return np.frombuffer(done.stdout, offset=end + 1).reshape(json.loads(done.stdout[:end]))


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode == sample_formats.REFUSED:
        return done.stderr.decode(errors="replace")
    if done.returncode < 0:
        return f"the reader was ended by {signal.Signals(-done.returncode).name}"
    last = done.stderr.decode(errors="replace").strip().split("\n")[-1]
    return f"the reader failed ({last:.200})"
