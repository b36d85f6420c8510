"""Where data sets come from: a folder of the user's, the cache, or a checksummed download.

A file is looked for in the folder named by ``PARVIBENCH_DATA_DIR`` (read only, same relative paths as in
``registry.json``), then in the user's cache, then downloaded into the cache. Wherever it comes from, its
SHA-256 must be the registry's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from parvibench.core.errors import DataMissingError, InputError, UnknownNameError

#: Environment variable naming a folder that already holds the files.
FOLDER_VARIABLE = "PARVIBENCH_DATA_DIR"

#: Seconds to wait for a connection, and between two bytes: a run without network must fail quickly.
_TIMEOUT_S = (5, 30)


@dataclass(frozen=True)
class DataSet:
    """One registered file.

    Attributes:
        name: canonical name.
        file: path relative to the data folder.
        url: where the bytes are, at a pinned commit.
        sha256: of the bytes.
        bytes: size.
        rows: data rows, without a header.
        features: how many columns are features: the first ones, the response's left out.
        target_column: column of the response, counted from 0.
        licence: of the data and of the repository that carries the file.
        source: where the data were first published, and what the response is.
        header_lines: lines before the data.
    """

    name: str
    file: str
    url: str
    sha256: str
    bytes: int
    rows: int
    features: int
    target_column: int
    licence: str
    source: str
    header_lines: int = 0


@dataclass(frozen=True)
class DataStatus:
    """A row of ``parvibench data status``.

    Attributes:
        path: the file that would be used, or None when a run would have to download it.
        state: ``ok``, ``damaged`` (wrong SHA-256) or ``missing``.
    """

    name: str
    rows: int
    bytes: int
    state: Literal["ok", "damaged", "missing"]
    path: Path | None
    licence: str


@cache
def registry() -> Mapping[str, DataSet]:
    """All registered data sets by name."""
    rows = json.loads((files("parvibench.data") / "registry.json").read_text(encoding="utf-8"))
    return {row["name"]: DataSet(**row) for row in rows}


def fetch(name: str) -> Path:
    """Path of a verified data file, downloaded if it is nowhere on disk.

    Raises:
        UnknownNameError: no such data set.
        InputError: the file in the user's folder is not the registered one.
        DataMissingError: neither on disk nor to be had; the message holds the command that fetches it.
    """
    if name not in registry():
        raise UnknownNameError("data set", name, registry())
    entry = registry()[name]
    given = _given(entry)
    return _download(entry) if given is None else _verified(given, entry)


def status() -> list[DataStatus]:
    """Which data sets are on disk, where, and whether they are intact; downloads nothing."""
    return [_status(entry) for entry in registry().values()]


def cache_folder() -> Path:
    """Where downloads are kept."""
    import platformdirs

    return platformdirs.user_cache_path("parvibench") / "data"


def _status(entry: DataSet) -> DataStatus:
    path = _given(entry) or cache_folder() / entry.file
    if not path.is_file():
        return DataStatus(entry.name, entry.rows, entry.bytes, "missing", None, entry.licence)
    state: Literal["ok", "damaged"] = "ok" if _sha256(path) == entry.sha256 else "damaged"
    return DataStatus(entry.name, entry.rows, entry.bytes, state, path, entry.licence)


def _given(entry: DataSet) -> Path | None:
    """The file in the user's folder, or None when there is none."""
    folder = os.environ.get(FOLDER_VARIABLE)
    path = Path(folder) / entry.file if folder else None
    return path if path is not None and path.is_file() else None


def _verified(path: Path, entry: DataSet) -> Path:
    found = _sha256(path)
    if found != entry.sha256:
        raise InputError(
            f"{path}: not the registered file of data set {entry.name!r}\n"
            f"expected sha256 {entry.sha256}, found {found}.\n"
            f"Remove it from the folder that {FOLDER_VARIABLE} names, then: parvibench data fetch {entry.name}"
        )
    return path


def _download(entry: DataSet) -> Path:
    """The file in the cache; pooch downloads it when it is absent or damaged there."""
    import pooch

    try:
        path = pooch.retrieve(
            entry.url,
            known_hash=f"sha256:{entry.sha256}",
            fname=entry.file,
            path=cache_folder(),
            downloader=pooch.HTTPDownloader(timeout=_TIMEOUT_S),
        )
    # requests' errors are OSErrors; pooch raises ValueError when the downloaded bytes are not the registered ones.
    except (OSError, ValueError) as error:
        raise DataMissingError(
            f"data set {entry.name!r} is not on disk and cannot be downloaded: {error}\n"
            f"Looked for {entry.file} in {cache_folder()} and in {FOLDER_VARIABLE} "
            f"({os.environ.get(FOLDER_VARIABLE) or 'not set'}).\n"
            f"With a network connection: parvibench data fetch {entry.name}"
        ) from error
    return Path(path)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
