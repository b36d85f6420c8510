"""Autocorrelation of the judged samples of methods that run a single chain."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.metrics.chains import array_stats
from parvibench.reporting.text import captions

from .figure import GREY, Drawing, TaskCells, long_form, short, slug
from .plots import WIDE, Plot

_LAGS = 25


def autocorrelations(shown: TaskCells) -> list[Drawing]:
    """Autocorrelation against the lag, mean over coordinates and replicates; none without single chains."""
    lines = {}
    for cell in shown.cells:
        samples = shown.results.samples(cell) if cell.kind == "chains" and cell.particles == 1 else None
        found = None if samples is None else mean_autocorrelation(samples)
        if found is not None:
            lines[cell.label] = found
    if not lines:
        return []
    with Plot(slug("autocorrelation", shown.task), "lag, in samples judged", "autocorrelation", WIDE) as plot:
        plot.axes.axhline(0, color=GREY, linewidth=0.8)
        for label, line in lines.items():
            style = shown.styles[label]
            plot.axes.plot(
                line, color=style.colour, marker=style.marker, markersize=3, linewidth=1.4, label=short(label)
            )
    frames = {k: pd.DataFrame({"lag": np.arange(len(v)), "autocorrelation": v}) for k, v in lines.items()}
    title = captions.as_in("autocorrelation of single chains", "SRLD, Figure 2" if "srld" in shown.tags else "")
    alt = captions.of_methods(title, map(short, lines), short(shown.task))
    return [plot.drawing(title, alt, long_form(frames), captions.AUTOCORRELATION)]


def mean_autocorrelation(samples: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """Autocorrelation at lags 0, 1, ... of samples (R, n, D), mean over coordinates and finite replicates.

    At most 26 values; None for chains that never moved or are too short.
    """
    kept = samples[np.isfinite(samples).all((1, 2))].astype(np.float64)
    moved = kept[(kept.std(1) > 0).all(1)]
    if not len(moved) or moved.shape[1] < 4:
        return None
    lags = min(_LAGS, moved.shape[1] // 2)
    return np.asarray(array_stats().autocorr(moved, axis=1)).mean((0, 2))[: lags + 1]
