"""A picture of a cell's samples for its page in MLflow."""

import io
from pathlib import Path

import numpy as np

from parvibench.core.reference import Reference
from parvibench.core.result import CellRecord
from parvibench.harness.store.cell_files import read_npz

from .content import floored

_POINTS = 1000
MOST = 100  #: Suites with more cells have no pictures: one takes about 0.1 s.


def draw(record: CellRecord, folder: Path) -> bytes | None:
    """PNG of the first two coordinates of the first finite replicate over reference samples; None without one."""
    from matplotlib.figure import Figure

    file = folder / "samples.npz"
    samples = read_npz(file.read_bytes(), str(file))["samples"]
    finite = [x for x in samples if np.isfinite(x).all()] if samples.shape[2] > 1 else []
    if not finite:
        return None
    figure = Figure(figsize=(4, 4), dpi=80, layout="constrained")
    axes = figure.add_subplot(xlabel="coordinate 1", ylabel="coordinate 2")
    axes.set_title(f"{record.task} / {record.label}"[:60], fontsize=9, parse_math=False)
    reference = floored(record.task)
    if isinstance(reference, Reference):
        axes.plot(*reference.draws[:_POINTS, :2].numpy().T, ".", color="0.8", markersize=3)
    axes.plot(*finite[0][:_POINTS, :2].T, ".", color="C0", markersize=4)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()
