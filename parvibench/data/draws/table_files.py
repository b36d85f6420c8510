"""Files of tables: CSV and Parquet."""

import contextlib
import csv
import io
import mmap
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Choice, choose
from .found import Found, refuse_many, refuse_repeats
from .naming import listed
from .stan_csv import uncommented
from .tables import arranged, wanted

_MAX_LINE = 2**24
_NAME = re.compile(r"[^\W\d][\w .,:\[\](){}*^/'-]*|\.(chain|iteration|draw|variable|value)|\(['\"].*\)|#.*")


def read_csv(path: Path, choice: Choice) -> Found:
    """Numbers between commas, under one row of names or none; a byte order mark and quotes are allowed.

    Comments are left out, of Stan's files also rows that are no draws and columns of the sampler, of R's names of rows.
    """
    source: Any = path
    skipped, said = 0, list[str]()
    if _has_comments(path):
        lines, skipped, said = uncommented(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines(), _is_number)
        source = io.BytesIO(b"\n".join(lines) + b"\n")
    else:
        with path.open("rb") as file:
            lines = [file.readline(_MAX_LINE) for _ in range(2)]
    texts = [line.decode("utf-8-sig") for line in lines[:2]]
    first, second = (next(csv.reader([t], strict=True), []) for t in [*texts, "", ""][:2])
    if len(second) == len(first) + 1 and not any(map(_is_number, first)):  # R names rows, and not their column
        first = ["", *first]
    named = len(first) > 1 and first[0] == "" and all(map(_NAME.fullmatch, first[1:]))
    header = _is_header(first[1:] if named else first)
    names = _bracketed(first) if header else [f"column {i + 1}" for i in range(len(first))]
    try:
        found = _table(
            lambda kept: _csv_batches(source, names, kept, skip=int(header)),
            names,
            choice,
            skipped,
            numbered=not header,
        )
    except ValueError as error:
        told = re.search(r"column #(\d+): Row #(\d+): .* invalid value '(.*)'", str(error))
        if not told or int(told[1]) >= len(names):
            raise
        column = f"column {names[int(told[1])]!r:.40}, row {told[2]}: {told[3][:40]!r} is not a number"
        raise ValueError(f"{column}; choose columns of draws with --columns") from None
    return found._replace(said=[*said, *found.said])


def _has_comments(path: Path) -> bool:
    """Whether a line begins with ``#``."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content[:4].lstrip(b"\xef\xbb\xbf").startswith(b"#") or content.find(b"\n#") >= 0


def _bracketed(names: Sequence[str]) -> list[str]:
    """Stan's ``theta.1.2`` as ``theta[1,2]``, also of tuples (``pair:2.1``)."""
    return [
        re.sub(r"^([^\W\d][\w:]*)\.(\d+(?:\.\d+)*)$", lambda m: f"{m[1]}[{m[2].replace('.', ',')}]", n.strip())
        for n in names
    ]


def _csv_batches(source: Any, names: Sequence[str], kept: Sequence[str], skip: int) -> Iterable[Any]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    unique = [name or "(names of rows)" for name in names]
    return arrow.open_csv(
        source,
        arrow.ReadOptions(use_threads=False, column_names=unique, skip_rows=skip),
        arrow.ParseOptions(ignore_empty_lines=False),
        arrow.ConvertOptions(
            column_types=dict.fromkeys(kept, pa.float64()), null_values=[], include_columns=list(kept)
        ),
    )


def _table(
    read: Callable[[Sequence[str]], Iterable[Any]],
    names: Sequence[str],
    choice: Choice,
    skipped: int = 0,
    *,
    numbered: bool = False,
) -> Found:
    """The chosen columns of a table of draws, without its first rows, cut into chains where a column numbers them."""
    if numbered:
        chosen = choose([str(i + 1) for i in range(len(names))], choice)
        return Found(_stacked(read([names[i] for i in chosen]), len(chosen))[skipped:])
    if (lower := {name.lower().lstrip(".") for name in names}) & {"parameter", "variable"} and "value" in lower:
        raise ValueError(
            "draws in long form, a row for each parameter: give a row to each draw (R: posterior::as_draws_df)"
        )
    kept, counts = wanted(names, choice)
    columns = list(dict.fromkeys([*kept, *counts]))
    if not columns:
        raise ValueError(f"no column of draws; it has {listed(names)}")
    array = _stacked(read(columns), len(columns))[skipped:]
    return Found(*arranged(dict(zip(columns, array.T, strict=True)), kept, counts, choice))


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
    refuse_repeats(fields)
    return True


def _is_number(text: str) -> bool:
    with contextlib.suppress(ValueError):
        float(text)
        return "_" not in text
    return False


def read_parquet(path: Path, choice: Choice) -> Found:
    """All columns but the index that pandas may have stored, unless it numbers chains or draws."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, thrift_string_size_limit=2**26, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        index = [name for name in index if not isinstance(name, str) or name.lower() not in ("chain", "draw")]
        fields = {f.name: f.type for f in schema if f.name not in index}
        refuse_repeats([f.name for f in schema if f.name not in index])

        def read(kept: Sequence[str]) -> Iterable[Any]:
            for name in kept:
                if not (pa.types.is_integer(fields[name]) or pa.types.is_floating(fields[name])):
                    raise ValueError(f"column {name[:40]!r} holds {fields[name]}, not real numbers")
            refuse_many(file.metadata.num_rows * len(kept))
            return file.iter_batches(columns=list(kept), use_threads=False)

        return _table(read, list(fields), choice)


def _stacked(batches: Iterable[Any], columns: int) -> NDArray[np.float64]:
    """Record batches of numbers as one array, (rows, columns)."""
    parts, rows = [np.empty((0, columns))], 0
    for batch in batches:
        rows += batch.num_rows
        refuse_many(rows * columns)
        parts.append(np.column_stack([c.to_numpy(zero_copy_only=False).astype(np.float64) for c in batch.columns]))
    return np.concatenate(parts)
