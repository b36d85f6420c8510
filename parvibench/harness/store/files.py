"""The files of a store: written as a whole, sealed, read safely where strangers may have written them, and snapshots.

A sealed record is a JSON file that holds the SHA-256 of itself.

``<store>/unfinished/<cell key>/<chunk>.pt`` is a snapshot of a running chunk, ``<chunk>.done.pt`` the result of a
finished one of several: the SHA-256 of the content, then the content. The folder goes when the cell is in the store.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from parvibench.core.errors import DamagedError, DiskError, InputError, StoreError
from parvibench.core.result import STORE_FORMAT, CellRecord
from parvibench.data.atomic import write_atomically as write_atomically

MAX_TEXT, MAX_SNAPSHOT = 64 * 2**20, 8 * 2**30  #: Most bytes of a text file, and of a snapshot.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
EVERY_S = 60.0  #: Seconds between two snapshots of a chunk.
_DIGEST = hashlib.sha256().digest_size


def output_place(path: str | Path, *, folder: bool = False) -> Path:
    """Where an output will be written, links followed; checked before work begins, and nothing is left there.

    Raises:
        InputError: a folder in place of a file or the reverse, or no folder to write into.
        DiskError: it cannot be written.
    """
    try:
        place = Path(os.path.realpath(path) if Path(path).is_symlink() else path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            mode = os.lstat(place).st_mode  # also refuses names that are too long
            if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode) and os.access(place, os.W_OK)):
                raise InputError(f"{path}: not a {'folder' if folder else 'file that can be written'}")
        near = place if folder else place.parent
        while folder and not near.exists():  # it will be made
            near = near.parent
        if not near.is_dir():
            raise InputError(f"{path}: {near} is {'no folder' if near.exists() else 'not there'}")
        with tempfile.NamedTemporaryFile(prefix=".new-", dir=near):
            pass
    except OSError as error:
        wrong = InputError if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) else DiskError
        raise wrong(f"{str(path)[:80]}: cannot be written ({error.strerror or error})") from None
    return place


def plain_name(name: str, what: str) -> str:
    """The name, if it is a plain file name; ``StoreError`` for paths and special characters."""
    if not _NAME.fullmatch(name):
        raise StoreError(f"{name[:200]!r} is no {what}")
    return name


def inside(path: Path, root: Path) -> Path:
    """The path, if it is inside ``root``; ``StoreError`` where it leaves the folder, by a link for instance."""
    below = path.relative_to(root)
    links = (place.is_symlink() for place in (path, *path.parents[: len(below.parts) - 1]))
    if (".." in below.parts or any(links)) and not path.resolve().is_relative_to(root.resolve()):
        raise StoreError(f"{path}: leads out of {root}")
    return path


def read_text(path: Path, limit: int = MAX_TEXT) -> bytes:
    """The bytes of a file; ``StoreError`` where it has more than ``limit`` or is no plain file."""
    try:
        plain = stat.S_ISREG(path.stat().st_mode)
    except NotADirectoryError:
        plain = False
    if not plain:
        raise StoreError(f"{path}: not a plain file")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise StoreError(f"{path}: more than {limit} bytes")
    return content


def sha256(content: bytes) -> str:
    """The digest, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sealed(record: BaseModel, **changes: Any) -> bytes:
    """The record as JSON, with the SHA-256 of that JSON in which the field ``sha256`` is empty."""
    plain = record.model_copy(update={**changes, "sha256": ""})
    digest = sha256(plain.model_dump_json(indent=1).encode())
    return plain.model_copy(update={"sha256": digest}).model_dump_json(indent=1).encode()


def checked_json(path: Path, content: bytes) -> dict[str, Any]:
    """The content of a sealed file; ``StoreError`` for one of another format, ``DamagedError`` where its SHA-256 is another."""
    try:
        found = from_json(content)  # refuses deep nesting and lone surrogates, which json.loads would pass on
    except ValueError as error:
        raise DamagedError(f"{path}: damaged ({error})") from None
    if not isinstance(found, dict):
        raise DamagedError(f"{path}: damaged (no JSON object)")
    digest, form = found.get("sha256", ""), found.get("format")
    if form == STORE_FORMAT:
        if digest and not _is_sealed(content, digest):
            raise DamagedError(f"{path}: damaged (not the file that was written)")
        return found
    ours = re.sub(rb'"format": [^,]*', b'"format": %d' % STORE_FORMAT, content, count=1)
    if not isinstance(form, int) or _is_sealed(ours, digest):
        raise DamagedError(f"{path}: damaged (its format is gone)")
    raise StoreError(
        f"{path}: store format {form}, and this version reads format {STORE_FORMAT}: run again into another "
        "folder (--out), or read it with the version of ParVIBench that wrote it"
    )


def _is_sealed(content: bytes, digest: Any) -> bool:
    return isinstance(digest, str) and sha256(content.replace(digest.encode(), b"", 1)) == digest


def parse_cell(path: Path, content: bytes) -> CellRecord:
    """The inverse of ``sealed``, for cells."""
    found = checked_json(path, content)
    try:
        record = CellRecord.model_validate(found)
    except ValueError:
        raise DamagedError(f"{path}: damaged (no cell record)") from None
    if not record.sha256:
        raise DamagedError(f"{path}: damaged (its SHA-256 is gone)")
    return record


@dataclass(frozen=True)
class SnapshotFile:
    """The latest snapshot of one chunk."""

    path: Path
    every: float = EVERY_S  #: seconds between two snapshots

    def load(self) -> bytes | None:
        """The snapshot, or None where there is none or it is damaged."""
        try:
            digest, content = (whole := read_text(self.path, MAX_SNAPSHOT))[:_DIGEST], whole[_DIGEST:]
        except (OSError, StoreError):
            return None
        return content if hashlib.sha256(content).digest() == digest else None

    def save(self, content: bytes) -> None:
        """Replace the snapshot; a full disk costs the snapshot, not the run."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, hashlib.sha256(content).digest() + content)
