"""The files next to a cell's record: curve, samples, trajectories and traceback.

Strangers may have written what is read: no pickle, and claims of a file's header (shape, row count, unpacked size) are
checked before memory is given out for them.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core.errors import StoreError
from parvibench.core.result import CellRecord
from parvibench.data.draws.arrays import read_array

from .files import MAX_TEXT

if TYPE_CHECKING:
    import pyarrow as pa

CURVE_COLUMNS = ("replicate", "checkpoint", "iteration", "score_evaluations", "seconds", "metric", "value")
MAX_BYTES = 2 * 2**30  #: Unpacked, of one file.
_MAX_ROWS = 20_000_000  #: Of a curve; and most values of its grid.


class Trajectories(NamedTuple):
    """Where some particles of a replicate went."""

    iterations: NDArray[np.integer]  #: (C,), of the start and of every checkpoint
    positions: NDArray[np.float32]  #: (C, k, D)


def contents(
    record: CellRecord,
    curve: pd.DataFrame | None,
    samples: NDArray[np.floating] | None,
    trajectories: Trajectories | None,
) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files next to ``cell.json``."""
    if record.traceback:
        yield "traceback.txt", record.traceback.encode()
    if curve is not None:
        yield "curve.parquet", parquet(curve)
    if samples is not None:
        buffer = io.BytesIO()
        arrays: dict[str, NDArray[Any]] = {"samples": samples.astype(np.float32)}
        if trajectories is not None:
            arrays |= {"iterations": trajectories.iterations, "trajectories": trajectories.positions}
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        yield "samples.npz", buffer.getvalue()


def single_precision(curve: pd.DataFrame) -> pd.DataFrame:
    """A curve with values of half the size, unless one is too large or too small for that."""
    values = curve["value"].to_numpy()
    with np.errstate(over="ignore", under="ignore"):
        short = values.astype(np.float32)
    return curve.assign(value=short) if np.allclose(short, values, rtol=1e-6, atol=0, equal_nan=True) else curve


def parquet(table: pd.DataFrame) -> bytes:
    """Parquet without what a small file has no use for: statistics, and the types of pandas."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    table = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
    pq.write_table(table, buffer, store_schema=False, **dense(table.column_names))
    return buffer.getvalue()


def dense(columns: Iterable[str]) -> dict[str, Any]:
    """Options of a Parquet file in which all but ``value`` repeats."""
    return {
        "compression": "zstd", "compression_level": 9, "use_dictionary": [c for c in columns if c != "value"],
        "column_encoding": {"value": "BYTE_STREAM_SPLIT"}, "write_statistics": False,
    }  # fmt: skip


def read_npz(content: bytes, name: str) -> dict[str, NDArray[Any]]:
    """All arrays of an ``.npz`` file; ``StoreError`` where it is damaged, of more than ``MAX_BYTES`` or not of numbers."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > MAX_BYTES:
                raise StoreError(f"{name}: would unpack to {size} bytes, more than {MAX_BYTES}")
            arrays = {}
            for member in archive.infolist():
                with archive.open(member) as file:
                    arrays[member.filename.removesuffix(".npy")] = read_array(file, member.file_size)
            return arrays
    except StoreError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise StoreError(f"{name}: damaged ({error}); run its cell again with --fresh") from None


def read_curve(content: bytes, path: str, most: int = _MAX_ROWS) -> dict[str, NDArray[Any]]:
    """Columns ``CURVE_COLUMNS`` of a curve in long form, of at most so many rows; errors as of ``checked_table``."""
    table = checked_table(content, path, CURVE_COLUMNS, ("metric",), most)
    columns = {name: table[name].to_numpy() for name in CURVE_COLUMNS}  # a third of the time of ``to_pandas``
    return {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in columns.items()}


def checked_table(content: bytes, path: str, columns: Sequence[str], texts: Collection[str], most: int) -> pa.Table:
    """Columns of anybody's Parquet file, short ``texts`` or else numbers; ``StoreError`` for a damaged, other or larger one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Repeated text stays one entry of a dictionary until its size is known.
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[*texts], thrift_string_size_limit=MAX_TEXT)
        rows, size = file.metadata.num_rows, len(content)
        unpacked = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if rows > most or unpacked > MAX_BYTES:
            raise StoreError(f"{path}: {rows} rows from {size} bytes are too many")
        schema = file.schema_arrow
        if missing := [c for c in columns if c not in schema.names]:
            raise StoreError(f"{path}: lacks {', '.join(missing)}")
        for name in columns:
            kind = schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            if not (text if name in texts else number):
                raise StoreError(f"{path}: column {name} holds {kind}")
        # Small files: threads cost more than they save.
        table = file.read(columns=list(columns), use_threads=False)
        for name in texts:
            widest = max((len(str(v)) for c in table[name].chunks for v in c.dictionary), default=0)
            if widest > 1000:
                raise StoreError(f"{path}: column {name} holds texts of {widest} characters")
    except (pa.ArrowException, OSError) as error:
        first = str(error).split("\n")[0]
        raise StoreError(f"{path}: damaged ({first:.200}); run its cell again with --fresh") from None
    return table.replace_schema_metadata(None)


SPENT = ("iteration", "score_evaluations", "seconds")  #: What had been spent at a checkpoint.


@dataclass(frozen=True)
class MetricCurve:
    """One metric at the checkpoints that have it, C of them, for R replicates."""

    replicates: NDArray[np.int64]  #: (R,), ids
    rows: NDArray[np.intp]  #: (C,), positions of these checkpoints in the grid
    values: NDArray[np.float64]  #: (C, R); NaN where nothing was measured or the metric is undefined
    measured: NDArray[np.bool_]  #: (C, R); False where a replicate had stopped before
    spent: Mapping[str, NDArray[np.float64]]  #: axis of ``SPENT`` -> (C, R)

    def __len__(self) -> int:
        return len(self.values)

    def at(self, checkpoint: int, diverged: Collection[int]) -> list[float | None]:
        """Values of the replicates at the checkpoint of this position; None for each that diverged before it."""
        here = self.measured[checkpoint]
        stopped = len(set(diverged) - set(self.replicates[here].tolist()))
        return [*self.values[checkpoint, here].tolist(), *[None] * stopped]


@dataclass(frozen=True)
class CurveGrid:
    """All metrics of a cell."""

    replicates: NDArray[np.int64]  #: (R,), ids
    spent: Mapping[str, NDArray[np.float64]]  #: axis of ``SPENT`` -> (C, R)
    names: Mapping[str, int]  #: metric -> position in ``values`` and ``measured``
    values: NDArray[np.floating]  #: (M, C, R), float32 where that is exact, as stored: a report has thousands of grids
    measured: NDArray[np.bool_]  #: (M, C, R)

    @classmethod
    def of(cls, curve: Mapping[str, NDArray[Any]] | pd.DataFrame) -> Self:
        """From a curve in long form; ``StoreError`` where few rows make a grid that would fill the memory."""
        columns = {name: np.asarray(curve[name]) for name in CURVE_COLUMNS}
        replicates, r = np.unique(columns["replicate"].astype(np.int64), return_inverse=True)
        checkpoints, c = np.unique(columns["checkpoint"].astype(np.int64), return_inverse=True)
        metrics, names = pd.factorize(columns["metric"])
        shape = (len(checkpoints), len(replicates))
        if len(names) * math.prod(shape) > _MAX_ROWS:
            sizes = f"{len(names)} metrics, {len(checkpoints)} checkpoints and {len(replicates)} replicates"
            raise StoreError(f"a curve of {sizes} is too large")
        spent = {axis: np.full(shape, np.nan) for axis in SPENT}
        for axis in SPENT:
            spent[axis][c, r] = columns[axis]
        values = np.full((len(names), *shape), np.nan)
        measured = np.zeros(values.shape, dtype=bool)
        values[metrics, c, r] = columns["value"]
        measured[metrics, c, r] = True
        with np.errstate(over="ignore"):
            short = values.astype(np.float32)
        values = short if np.array_equal(short, values, equal_nan=True) else values
        return cls(replicates, spent, {name: i for i, name in enumerate(names)}, values, measured)

    def metric(self, name: str) -> MetricCurve:
        """The curve of a metric; of no checkpoints where it was not measured."""
        values, measured = self._of(name)
        rows = np.flatnonzero(measured.any(1))
        spent = {axis: costs[rows] for axis, costs in self.spent.items()}
        return MetricCurve(self.replicates, rows, values[rows], measured[rows], spent)

    def medians(self, name: str) -> NDArray[np.float64]:
        """Medians of a metric over replicates at every checkpoint of the grid; NaN where it was not measured."""
        values, measured = self._of(name)
        here = measured & ~np.isnan(values)
        ordered = np.sort(np.where(here, values, math.nan), axis=1)  # what was not measured comes last
        count = here.sum(1)
        middle = [np.take_along_axis(ordered, at[:, None], 1)[:, 0] for at in ((count - 1) // 2, count // 2)]
        return np.where(middle[0] == middle[1], middle[0], np.mean(middle, axis=0))

    def _of(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        at = self.names.get(name)
        if at is None:
            none = np.zeros(self.values.shape[1:], bool)
            return np.where(none, 0.0, math.nan), none
        return self.values[at].astype(np.float64), self.measured[at]
