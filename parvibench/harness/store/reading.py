"""Reading files that strangers may have written: without pickle, within a size, inside the folder.

Claims of a file's header (shape, row count, unpacked size) are checked before memory is given out for them.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray

from parvibench.core.errors import StoreError
from parvibench.data.draws.arrays import read_array

if TYPE_CHECKING:
    import pyarrow as pa

#: Unpacked, of one file.
MAX_BYTES = 2 * 2**30
MAX_TEXT = 64 * 2**20
_MAX_ROWS = 20_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


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


def read_npz(content: bytes, name: str = "an npz file", limit: int | None = None) -> dict[str, NDArray[Any]]:
    """All arrays of an ``.npz`` file of numbers, ``name`` in messages.

    Raises:
        StoreError: damaged, more than ``limit`` bytes (default ``MAX_BYTES``), or arrays of anything but numbers.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > (limit or MAX_BYTES):
                raise StoreError(f"{name}: would unpack to {size} bytes, more than {limit or MAX_BYTES}")
            arrays = {}
            for member in archive.infolist():
                with archive.open(member) as file:
                    arrays[member.filename.removesuffix(".npy")] = read_array(file, member.file_size)
            return arrays
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{name}: damaged ({error}); run its cell again with --fresh") from None


def read_table(content: bytes, path: str, columns: tuple[str, ...], text: tuple[str, ...] = ()) -> pd.DataFrame:
    """The ``columns`` of a Parquet file, ``path`` in messages: short text those of ``text``, numbers the others.

    Raises:
        StoreError: damaged, too large, other columns or types.
    """
    table = _checked(content, path, columns, text).to_pandas()
    short = table.select_dtypes("float32").columns
    return table.astype(dict.fromkeys(text, "str") | dict.fromkeys(short, "float64"))


def read_columns(
    content: bytes, path: str, columns: tuple[str, ...], text: str
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """As ``read_table``, by arrays: the column ``text`` as positions in the list of its texts, which comes second."""
    table = _checked(content, path, columns, (text,))
    coded = table[text].unify_dictionaries().combine_chunks()
    arrays = {name: table[name].to_numpy() for name in columns if name != text}
    return arrays | {text: coded.indices.to_numpy(zero_copy_only=False)}, coded.dictionary.to_pylist()


def _checked(content: bytes, path: str, columns: tuple[str, ...], text: tuple[str, ...]) -> pa.Table:
    """The columns, those of ``text`` as dictionaries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Repeated text stays one entry of a dictionary until its size is known.
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=list(text), thrift_string_size_limit=MAX_TEXT)
        rows, size = file.metadata.num_rows, len(content)
        unpacked = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if rows > _MAX_ROWS or unpacked > MAX_BYTES:
            raise StoreError(f"{path}: {rows} rows from {size} bytes are too many")
        schema = file.schema_arrow
        missing = [c for c in columns if c not in schema.names]
        if missing:
            raise StoreError(f"{path}: lacks {', '.join(missing)}")
        for name in columns:
            kind = schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            good = (
                pa.types.is_string(kind) or pa.types.is_large_string(kind)
                if name in text
                else pa.types.is_integer(kind) or pa.types.is_floating(kind)
            )
            if not good:
                raise StoreError(f"{path}: column {name} holds {kind}")
        table = file.read(columns=list(columns), use_threads=False)  # small files: threads cost more than they save
        for name in text:
            widest = max((len(str(v)) for c in table[name].chunks for v in c.dictionary), default=0)
            if widest > 1000:
                raise StoreError(f"{path}: column {name} holds texts of {widest} characters")
    except (pa.ArrowException, OSError) as error:
        first = str(error).split("\n")[0]
        raise StoreError(f"{path}: damaged ({first:.200}); run its cell again with --fresh") from None
    return table.replace_schema_metadata(None)
