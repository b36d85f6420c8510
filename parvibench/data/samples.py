"""Samples read from files of untrusted origin, in a process of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from parvibench.core.errors import InputError

from .draws import sample_formats
from .draws.arrays import Choice, Draws, swapped
from .draws.naming import listed, match

MAX_BYTES = 2**30
_TIMEOUT_S = 300
#: One thread each, and no arenas that are reserved ahead.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def read_draws(paths: Sequence[Path], choice: Choice = Choice()) -> Draws:  # noqa: B008 - frozen
    """Samples from one file of one of the ``FORMATS``, or from several that hold a chain each; never unpickles.

    A table may begin with a row of names; all else must be real numbers, at most 2^25 of them. ``evaluate`` checks the
    shape.

    Raises:
        InputError: no such file, unknown ending, too large, anything but real numbers, or two ways to read it; chains of
            different lengths or columns.
    """
    read = [_read(path, choice) for path in paths]
    return read[0] if len(read) == 1 else joined(read, [f"{path}" for path in paths], choice)


def joined(read: Sequence[Draws], of: Sequence[str], choice: Choice) -> Draws:
    """Draws of several files or objects, each a chain or several, with the columns of the first one.

    ``InputError`` for other columns, unequal lengths, or more chains than draws.
    """
    read = [read[0], *(_like(draws, read[0], own, of[0]) for draws, own in zip(read[1:], of[1:], strict=True))]
    chains = [d.values if d.values.ndim == 3 else d.values[None] for d in read]
    if len({chain.shape[1:] for chain in chains}) > 1:
        told = ", ".join(f"{own}: {d.values.shape}" for own, d in list(zip(of, read, strict=True))[:8])
        raise InputError(f"each is a chain, and they must be equally long: {told}")
    said = tuple(dict.fromkeys(s for draws in read for s in draws.read))
    values = np.concatenate(chains)
    if len(values) > values.shape[1] and not choice.axes:
        raise InputError(swapped(*values.shape[:2]))
    return replace(read[0], values=values, read=said)


def _like(draws: Draws, first: Draws, path: str, its: str) -> Draws:
    """A chain with its columns in the order of the first one's."""
    if draws.names == first.names:
        return draws
    try:
        order, _ = match(draws.names, first.names, path, its, len(first.names))
    except ValueError as error:
        raise InputError(str(error)) from None
    if not draws.names or not first.names or len(order) < len(draws.names):
        raise InputError(
            f"{path} and {its}: their columns differ: {listed(draws.names) or 'no names'}; {listed(first.names) or 'no names'}"
        )
    return replace(draws, values=draws.values[..., order], names=first.names)


def _read(path: Path, choice: Choice) -> Draws:
    ending = path.suffix.lower()
    try:
        there = path.is_file() or (path.is_dir() and ending == ".zarr")
    except OSError as error:
        raise InputError(f"{str(path)[:80]}...: {error.strerror}") from None
    if not there:
        raise InputError(f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}")
    if ending not in sample_formats.FORMATS:
        raise InputError(f"{path}: samples come as {', '.join(sample_formats.FORMATS)}; got {ending or 'no ending'}")
    files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    size = sum(f.stat().st_size for f in files)
    if not size:
        raise InputError(f"{path}: is empty")
    if size > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**30} GiB")
    command = [sys.executable, "-P", "-m", sample_formats.__name__, str(path.absolute()), json.dumps(asdict(choice))]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_TIMEOUT_S, env={**os.environ, **_ENVIRONMENT}
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{path}: not read within {_TIMEOUT_S} s") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().split("\n")[-1]  # a parser's warnings stand before it
        ended = f"the reader was ended by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else ""
        why = last if done.returncode == sample_formats.REFUSED else ended or f"the reader failed ({last:.200})"
        raise InputError(f"{path}: cannot be read as {ending} numbers: {why}")
    end = done.stdout.index(b"\n")
    form = json.loads(done.stdout[:end])
    return Draws(np.frombuffer(done.stdout, offset=end + 1).reshape(form.pop("shape")), **form)
