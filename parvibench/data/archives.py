"""Reading one file out of a zip archive from an untrusted source."""

import zipfile
import zlib
from pathlib import Path

from parvibench.core.errors import InputError


def read_member(path: Path, max_bytes: int, ending: str = "") -> bytes:
    """The content of the only file in a zip archive whose name ends so; never more than the limit is unpacked.

    Raises:
        InputError: no readable archive, not exactly one such file, or a larger one.
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
