"""Data sets from a folder of the user, the cache, or a checksummed download.

A file is looked for in the folder named by ``PARVIBENCH_DATA_DIR`` (read only, same relative paths as in
``registry.json``), then in the user's cache, then downloaded into the cache. Wherever it comes from, its
SHA-256, or the hash that git gives its content, must be the registry's.
"""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from parvibench.core.errors import DataMissingError, InputError, UnknownNameError

#: Environment variable with a folder that already holds the files.
FOLDER_VARIABLE = "PARVIBENCH_DATA_DIR"

#: Seconds to wait for a connection, and between two bytes: a run without network must fail quickly.
_TIMEOUT_S = (5, 30)
#: Redirects that are followed, and bytes that are taken of a file whose size is not registered.
_REDIRECTS, _MOST_BYTES = 3, 2**28
#: Seconds without a second try of an address that did not answer: a suite needs its data once a cell.
_PAUSE_S = 60.0
_unanswered: dict[Path, tuple[float, DataMissingError]] = {}


Content = bytes  # ``DataSet.bytes`` is a size


@dataclass(frozen=True)
class DataSet:
    """One registered file."""

    name: str  #: canonical name
    file: str  #: path relative to the data folder
    url: str  #: where the bytes are, at a pinned commit
    sha256: str = ""  #: of the bytes, or empty where only git's hash is known
    bytes: int | None = None  #: size, or None where it is not known
    rows: int = 0  #: data rows, without a header
    features: int = 0  #: how many columns are features: the first ones, the response's left out
    target_column: int | None = None  #: column of the response, counted from 0; None where there is none
    licence: str = ""  #: of the data and of the repository that carries the file
    source: str = ""  #: where the data were first published, and what the response is
    header_lines: int = 0  #: lines before the data
    git_blob: str = ""  #: git's hash of the content, where no SHA-256 is known

    @property
    def hash(self) -> str:
        """The value ``hash_of`` must return for the file's content."""
        return f"git blob {self.git_blob}" if self.git_blob else f"sha256 {self.sha256}"

    def hash_of(self, content: Content) -> str:
        """The hash of ``content``, of the kind that the registry holds for this file."""
        if not self.git_blob:
            return f"sha256 {hashlib.sha256(content).hexdigest()}"
        header = f"blob {len(content)}\0".encode()
        return f"git blob {hashlib.sha1(header + content, usedforsecurity=False).hexdigest()}"


@dataclass(frozen=True)
class DataStatus:
    """A row of ``parvibench data status``."""

    name: str
    rows: int
    bytes: int | None
    state: Literal["ok", "damaged", "missing"]  #: ``ok``, ``damaged`` (wrong hash) or ``missing``
    path: Path | None  #: the file that would be used, or None when a run would have to download it
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
        DataMissingError: not on disk and cannot be downloaded; the message states the command that fetches it.
    """
    if name not in registry():
        raise UnknownNameError("data set", name, registry())
    return fetch_file(registry()[name])


def fetch_file(entry: DataSet) -> Path:
    """Path of a verified file, registered or not; errors as of ``fetch``."""
    path = _given(entry)
    if path is None:
        return _download(entry)
    if (found := _found(path, entry)) != entry.hash:
        raise InputError(
            f"{path}: not the registered file of data set {entry.name!r}\n"
            f"expected {entry.hash}, found {found}.\n"
            f"Remove it from the folder that {FOLDER_VARIABLE} names, then: parvibench data fetch {entry.name}"
        )
    return path


def held(name: str) -> Content | None:
    """The verified file of a data set that is on disk, or None, also for an unknown one; downloads nothing."""
    entry = registry().get(name)
    if entry is None:
        return None
    path = _given(entry) or cache_folder() / entry.file
    content = path.read_bytes() if path.is_file() else None
    return content if content is not None and entry.hash_of(content) == entry.hash else None


def keep(name: str, content: Content) -> None:
    """Put a data set's file into the cache where it is on disk nowhere; ``InputError`` for another file."""
    entry = registry()[name]
    if entry.hash_of(content) != entry.hash:
        raise InputError(f"data set {name!r}: not the registered file; expected {entry.hash}")
    if held(name) is None:
        path = cache_folder() / entry.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as aside:
            aside.write(content)
        Path(aside.name).replace(path)


def status() -> list[DataStatus]:
    """Which data sets are on disk, where, and whether they are intact; downloads nothing."""
    rows = []
    for entry in registry().values():
        path = _given(entry) or cache_folder() / entry.file
        state: Literal["ok", "damaged", "missing"] = "missing"
        if path.is_file():
            state = "ok" if _found(path, entry) == entry.hash else "damaged"
        place = None if state == "missing" else path
        rows.append(DataStatus(entry.name, entry.rows, entry.bytes, state, place, entry.licence))
    return rows


def cache_folder() -> Path:
    """Where downloads are stored."""
    import platformdirs

    return platformdirs.user_cache_path("parvibench") / "data"


def _given(entry: DataSet) -> Path | None:
    """The file in the user's folder, or None when there is none."""
    folder = os.environ.get(FOLDER_VARIABLE)
    path = Path(folder) / entry.file if folder else None
    return path if path is not None and path.is_file() else None


def _download(entry: DataSet) -> Path:
    """The file in the cache; pooch downloads it when it is absent or damaged there."""
    import pooch

    cached = cache_folder() / entry.file
    if cached in _unanswered and time.monotonic() - _unanswered[cached][0] < _PAUSE_S:
        raise _unanswered[cached][1]
    was = f"expected {entry.hash}"
    if cached.is_file() and (found := _found(cached, entry)) != entry.hash:
        was += f", found {found} in the cache: that copy is removed"
        cached.unlink()  # pooch would accept a file without a SHA-256 to compare

    def get_verified(url: str, output: str, source: object) -> None:
        _get(url, Path(output), entry.bytes or _MOST_BYTES)
        if (found := _found(Path(output), entry)) != entry.hash:
            raise ValueError(f"what {url} holds does not match: found {found}")

    try:
        path = pooch.retrieve(
            entry.url,
            known_hash=f"sha256:{entry.sha256}" if entry.sha256 else None,
            fname=entry.file,
            path=cache_folder(),
            downloader=get_verified,
        )
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        known = entry.name in registry()
        hint = f"; with a network connection: parvibench data fetch {entry.name}" if known else ""
        missing = DataMissingError(
            f"data set {entry.name!r} is not on disk and cannot be downloaded{hint}\n"
            f"Looked for {entry.file} ({was}) in {cache_folder()} and in {FOLDER_VARIABLE} "
            f"({os.environ.get(FOLDER_VARIABLE) or 'not set'}).\n{error}"
        )
        if isinstance(error, OSError):
            _unanswered[cached] = time.monotonic(), missing
        raise missing from error
    return Path(path)


def _get(url: str, output: Path, most: int) -> None:
    """Download a file of at most so many bytes, over a few redirects; an ``OSError`` or ``ValueError`` says why not."""
    import requests

    with requests.Session() as session, output.open("wb") as file:
        session.max_redirects = _REDIRECTS
        with session.get(url, stream=True, timeout=_TIMEOUT_S) as answer:
            answer.raise_for_status()
            for piece in answer.iter_content(2**16):
                file.write(piece)
                if file.tell() > most:
                    raise ValueError(f"what {url} holds is longer than the registered {most} bytes")


def _found(path: Path, entry: DataSet) -> str:
    return entry.hash_of(path.read_bytes())
