"""Sealed records: JSON files that hold the SHA-256 of themselves, and what is wrong with damaged ones."""

import hashlib
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from parvibench.core.errors import DamagedError, StoreError
from parvibench.core.result import STORE_FORMAT, CellRecord


def sha256(content: bytes) -> str:
    """The digest, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sealed(record: BaseModel, **changes: Any) -> bytes:
    """The record as JSON, with the SHA-256 of that JSON in which the field ``sha256`` is empty."""
    plain = record.model_copy(update={**changes, "sha256": ""})
    digest = sha256(plain.model_dump_json(indent=1).encode())
    return plain.model_copy(update={"sha256": digest}).model_dump_json(indent=1).encode()


def checked_json(path: Path, content: bytes) -> dict[str, Any]:
    """What a sealed file holds.

    Raises:
        DamagedError: no JSON object, or its SHA-256 is not the one it names.
        StoreError: a whole file of another format.
    """
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
