"""Formats of sample files, and the process in which they are read.

``python -m parvibench.data.sample_formats FILE`` writes the array's shape and numbers (float64) to standard output, or
one line about what is wrong to standard error and exits 3. Its memory is limited, and a parser that crashes takes
nothing with it. A further format is a function here, from a path to an array of real numbers, and its ending in
``FORMATS``.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import REAL, read_array

#: Numbers in one file; as float64 they take 256 MiB.
MAX_NUMBERS = 2**25
#: Address space of the reading process, bytes: a parser's own needs, and a few copies of that many numbers.
MAX_MEMORY = 2 * 2**30
#: Exit code for a file that cannot be read.
REFUSED = 3
_MAX_LINE = 2**24
_NAME = re.compile(r"[^\W\d][\w .:\[\](){}*^/-]*|#.*")

Reader = Callable[[Path], NDArray[Any]]


def _npy(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        return read_array(file, path.stat().st_size)


def _npz(path: Path) -> NDArray[Any]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        found = [m for m in members if m.filename in ("samples.npy", "samples")]
        if len(found) != 1:
            names = ", ".join(repr(m.filename[:40]) for m in members[:5]) or "nothing"
            raise ValueError(f"{len(found) or 'no'} arrays named 'samples' inside, expected one; it holds {names}")
        _refuse_many(found[0].file_size // 2)
        with archive.open(found[0]) as file:
            return read_array(file, found[0].file_size)


def _csv(path: Path) -> NDArray[Any]:
    """Numbers between commas, under one row of names or none; a byte order mark and quotes are allowed."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    with path.open("rb") as file:
        line = file.readline(_MAX_LINE).decode("utf-8-sig")
    first = next(csv.reader([line], strict=True), [])
    names = [f"column {i + 1}" for i in range(len(first))]
    batches = arrow.open_csv(
        path,
        arrow.ReadOptions(use_threads=False, column_names=names, skip_rows=int(_is_header(first))),
        arrow.ParseOptions(ignore_empty_lines=False),
        arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.float64()), null_values=[]),
    )
    return _stacked(batches, len(names))


def _is_header(fields: Sequence[str]) -> bool:
    """Whether the first row names the columns.

    Raises:
        ValueError: it can be read in two ways, or in none.
    """
    fields = [f.strip() for f in fields]
    numbers = sum(map(_is_number, fields))
    if numbers == len(fields) > 0:
        if any(fields == [str(i + start) for i in range(len(fields))] for start in (0, 1)):
            row = ",".join(fields[:4])
            raise ValueError(
                f"its first row, {row}, may be a draw or count the columns: name them, or write {float(fields[0])},..."
            )
        return False
    if numbers or not fields or not all(map(_NAME.fullmatch, fields)):
        raise ValueError(f"its first row holds neither numbers nor names only: {','.join(fields[:4])!r:.80}")
    _refuse_repeats(fields)
    return True


def _is_number(text: str) -> bool:
    with contextlib.suppress(ValueError):
        float(text)
        return "_" not in text
    return False


def _parquet(path: Path) -> NDArray[Any]:
    """All columns but the index that pandas may have stored."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, thrift_string_size_limit=2**26, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        fields = [f for f in schema if f.name not in index]
        _refuse_repeats([f.name for f in fields])
        for field in fields:
            if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                raise ValueError(f"column {field.name[:40]!r} holds {field.type}, not real numbers")
        _refuse_many(file.metadata.num_rows * len(fields))
        return _stacked(file.iter_batches(columns=[f.name for f in fields], use_threads=False), len(fields))


def _stacked(batches: Iterable[Any], columns: int) -> NDArray[np.float64]:
    """Record batches of numbers as one array, (rows, columns)."""
    parts, rows = [np.empty((0, columns))], 0
    for batch in batches:
        rows += batch.num_rows
        _refuse_many(rows * columns)
        parts.append(np.column_stack([c.to_numpy(zero_copy_only=False).astype(np.float64) for c in batch.columns]))
    return np.concatenate(parts)


def _refuse_many(numbers: int) -> None:
    if numbers > MAX_NUMBERS:
        raise ValueError(f"holds {numbers} numbers, more than {MAX_NUMBERS}; thin them")


def _refuse_repeats(names: Sequence[str]) -> None:
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise ValueError(f"two columns named {repeated[0][:40]!r}")


FORMATS: dict[str, Reader] = {".npy": _npy, ".npz": _npz, ".csv": _csv, ".parquet": _parquet}


def main(path: Path) -> int:
    """Read a file and write what it holds to standard output; the exit code."""
    _limit()
    try:
        array = FORMATS[path.suffix.lower()](path)
        _refuse_many(array.size)
        if array.dtype.kind not in REAL:
            raise ValueError(f"holds {array.dtype}, not real numbers")
        numbers = np.ascontiguousarray(array, dtype=np.float64)
    except Exception as error:  # whatever a parser makes of bytes that anybody may have written
        reason = (str(error) or type(error).__name__).split("\n")[0]
        reason = "more memory than a file may take" if isinstance(error, MemoryError) else reason
        sys.stderr.buffer.write(reason[:300].encode(errors="replace"))
        return REFUSED
    sys.stdout.buffer.write(json.dumps(numbers.shape).encode() + b"\n")
    sys.stdout.buffer.write(numbers.data)
    return 0


def _limit() -> None:
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
