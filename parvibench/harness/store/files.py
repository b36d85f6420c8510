"""Files written as a whole, read safely where strangers may have written them, and the snapshots of an unfinished cell.

``<store>/unfinished/<cell key>/<chunk>.pt`` is a snapshot of a running chunk, ``<chunk>.done.pt`` the result of a
finished one of several: the SHA-256 of the content, then the content. The folder goes when the cell stands in the store.
"""

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from parvibench.core.errors import StoreError

#: Most bytes of a text file.
MAX_TEXT = 64 * 2**20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
#: Seconds between two snapshots of a chunk.
EVERY_S = 60.0
_DIGEST = hashlib.sha256().digest_size


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file aside, flush it and rename it into place: it is there as a whole or not at all."""
    handle, aside = tempfile.mkstemp(prefix=f".new-{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).chmod(0o644)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


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
    """The bytes of a file of at most ``limit``.

    Raises:
        FileNotFoundError: no such file.
        StoreError: it is larger, or no plain file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise StoreError(f"{path}: not a plain file")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise StoreError(f"{path}: more than {limit} bytes")
    return content


@dataclass(frozen=True)
class SnapshotFile:
    """The latest snapshot of one chunk."""

    path: Path
    every: float = EVERY_S  #: seconds between two snapshots

    def load(self) -> bytes | None:
        """The snapshot, or None where there is none or it is damaged."""
        try:
            digest, content = (whole := self.path.read_bytes())[:_DIGEST], whole[_DIGEST:]
        except OSError:
            return None
        return content if hashlib.sha256(content).digest() == digest else None

    def save(self, content: bytes) -> None:
        """Replace the snapshot; a full disk costs the snapshot, not the run."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, hashlib.sha256(content).digest() + content)
