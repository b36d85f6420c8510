"""The files beside a cell's record: curve, samples, trajectories and traceback."""

import io
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core.result import CellRecord


class Trajectories(NamedTuple):
    """Where some particles of a replicate went."""

    iterations: NDArray[np.integer]  #: (C,), of the start and of every checkpoint
    positions: NDArray[np.float32]  #: (C, k, D)


CURVE_COLUMNS = ("replicate", "checkpoint", "iteration", "score_evaluations", "seconds", "metric", "value")


def contents(
    record: CellRecord,
    curve: pd.DataFrame | None,
    samples: NDArray[np.floating] | None,
    trajectories: Trajectories | None,
) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files beside ``cell.json``."""
    if record.traceback:
        yield "traceback.txt", record.traceback.encode()
    if curve is not None:
        yield "curve.parquet", _packed(curve)
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


def _packed(curve: pd.DataFrame) -> bytes:
    """Parquet without what a small file has no use for: statistics, and the types of pandas."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    table = pa.Table.from_pandas(curve, preserve_index=False).replace_schema_metadata(None)
    pq.write_table(table, buffer, store_schema=False, **dense(table.column_names))
    return buffer.getvalue()


def dense(columns: Iterable[str]) -> dict[str, Any]:
    """Options of a Parquet file in which all but ``value`` repeats."""
    return {
        "compression": "zstd", "compression_level": 19, "use_dictionary": [c for c in columns if c != "value"],
        "column_encoding": {"value": "BYTE_STREAM_SPLIT"}, "write_statistics": False,
    }  # fmt: skip
