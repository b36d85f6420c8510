"""Writing files as a whole, and the snapshots of a cell that is not finished.

``<store>/unfinished/<cell key>/<chunk>.pt`` is a snapshot of a running chunk, ``<chunk>.done.pt`` the result of a
finished one of several: the SHA-256 of the content, then the content. The folder goes when the cell stands in the store.
"""

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

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
