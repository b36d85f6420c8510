"""The two files of a reference: arrays and certificate."""

import datetime
import hashlib
import io
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parvibench.core.task import Task
from parvibench.data.atomic import write_atomically
from parvibench.metrics.floors import rounded

FORMAT = 2


def identity(task: Task) -> dict[str, Any]:
    """Format, task and version of a certificate."""
    return {"format": FORMAT, "task": task.name, "task_version": task.version}


def origin(seed: int) -> dict[str, Any]:
    """Seed, date and versions of a certificate."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    created = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"seed": seed, "created": created, "versions": versions}


def floor_summaries(floors: Mapping[str, Mapping[int, NDArray[np.float64]]]) -> dict[str, Any]:
    """Number of values and quantiles of each floor; the values themselves are in the arrays."""

    def summary(values: NDArray[np.float64]) -> dict[str, float]:
        quantiles = {f"q{100 * q:02.0f}": float(f"{np.quantile(values, q):.4g}") for q in (0.05, 0.5, 0.95)}
        return {"sets": len(values), **quantiles}

    return {m: {n: summary(values) for n, values in table.items()} for m, table in floors.items()}


def write(
    folder: Path,
    name: str,
    certificate: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    floors: Mapping[str, Mapping[int, NDArray[np.float64]]],
    pool: bytes | None = None,
) -> Path:
    """Write ``<name>.npz``, floors rounded in float32 as ``<metric>/<n>``, and ``<name>.json`` with its hash: its path.

    ``pool`` is the content of ``<name>.pool.npy``, the draws that further floors are simulated from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # What a process that was killed left, and the floors that were added to an earlier reference.
    for left in (*folder.glob(f".new-{name}.*"), *folder.glob(f"{name}.floors-*.npz")):
        left.unlink(missing_ok=True)
    arrays_file, certificate_file = folder / f"{name}.npz", folder / f"{name}.json"
    stored: dict[str, Any] = dict(arrays)
    stored |= {f"{m}/{n}": rounded(v) for m, table in floors.items() for n, v in table.items()}
    np.savez_compressed(buffer := io.BytesIO(), **stored)
    signed = {**certificate, "sha256": hashlib.sha256(content := buffer.getvalue()).hexdigest()}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in signed.items()]  # one per key
    if pool is not None:
        write_atomically(folder / f"{name}.pool.npy", pool)
    write_atomically(arrays_file, content)
    write_atomically(certificate_file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return certificate_file
