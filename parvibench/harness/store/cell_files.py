"""The files beside a cell's record: curve, samples, trajectories and traceback."""

import io
from collections.abc import Iterator
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
        buffer = io.BytesIO()
        curve.to_parquet(buffer, index=False)
        yield "curve.parquet", buffer.getvalue()
    if samples is not None:
        buffer = io.BytesIO()
        arrays: dict[str, NDArray[Any]] = {"samples": samples.astype(np.float32)}
        if trajectories is not None:
            arrays |= {"iterations": trajectories.iterations, "trajectories": trajectories.positions}
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        yield "samples.npz", buffer.getvalue()
