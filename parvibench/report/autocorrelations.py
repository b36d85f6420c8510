"""How much single chains repeat themselves: autocorrelation of the samples judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.harness.store.results import Results
from parvibench.metrics.chains import array_stats

from .drawing import GREY, Drawing, Looks, Picture, legend, short, slug, style, svg

_LAGS = 25


def autocorrelations(results: Results, task: str, looks: Looks, labels: Sequence[str]) -> list[Drawing]:
    """Autocorrelation against the lag, mean over coordinates and replicates, of every method with one chain.

    Args:
        results: of a run.
        task: its task.
        looks: of ``palette``.
        labels: methods, best first.

    Returns:
        One drawing; none without single chains.
    """
    lines = {}
    for cell in results.of_task(task, labels):
        samples = results.samples(cell) if cell.kind == "chains" and cell.particles == 1 else None
        found = None if samples is None else mean_autocorrelation(samples)
        if found is not None:
            lines[cell.label] = found
    if not lines:
        return []
    with style(f"{task}/autocorrelation"):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6.4, 3.1))
        axes.axhline(0, color=GREY, linewidth=0.8)
        for label, line in lines.items():
            colour, marker = looks[label]
            axes.plot(line, color=colour, marker=marker, markersize=3, linewidth=1.4, label=short(label))
        axes.set_xlabel("lag, in samples judged")
        axes.set_ylabel("autocorrelation")
        legend(figure, axes)
        text = svg(figure)
        plt.close(figure)
    data = pd.concat(
        [
            pd.DataFrame({"label": k, "lag": np.arange(len(v)), "autocorrelation": v})
            for k, v in lines.items()
        ],
        ignore_index=True,
    )
    repeats = " (as in SRLD, Figure 2)" if "srld" in getattr(registry.tasks().get(task), "tags", ()) else ""
    title = f"autocorrelation of single chains{repeats}"
    note = "Of the samples judged, evenly thinned from the second half of the chain; mean over coordinates and replicates."
    alt = f"{title} of {', '.join(map(short, lines))} on {short(task)}"
    return [Drawing(slug("autocorrelation", task), title, (Picture(text, alt),), data, note)]


def mean_autocorrelation(samples: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """Autocorrelation at lags 0, 1, ... of consecutive samples, mean over coordinates and finite replicates.

    Args:
        samples: (R, n, D).

    Returns:
        At most 26 values, none for chains that never moved or are too short.
    """
    kept = samples[np.isfinite(samples).all((1, 2))].astype(np.float64)
    moved = kept[(kept.std(1) > 0).all(1)]
    if not len(moved) or moved.shape[1] < 4:
        return None
    lags = min(_LAGS, moved.shape[1] // 2)
    return np.asarray(array_stats().autocorr(moved, axis=1)).mean((0, 2))[: lags + 1]
