"""Predictions of networks: calibration of the intervals of all methods."""

import numpy as np
import pandas as pd
import torch

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.core.task import PredictiveData
from parvibench.reporting.text import captions

from .figure import GREY, Drawing, TaskCells, long_form, short, slug
from .plots import plotted
from .vector import INK

#: Replicates (data splits) drawn.
SPLITS = 5
_LEVELS = np.linspace(0.05, 0.95, 19)


def predictions(shown: TaskCells) -> list[Drawing]:
    """Calibration of the predictive intervals of all methods; empty without held-out data, or where their data set is missing."""
    levels = shown.points("calibration", lambda: _coverage(shown))
    if not levels:
        return []
    x, y = "probability of the central predictive interval", "share of test rows inside"
    with plotted(slug("calibration", shown.task), x, y) as plot:
        plot.axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
        for label, table in levels.items():
            style = shown.styles[label]
            style = style._replace(colour=INK) if label in shown.anchors else style
            colour, marker, line = style
            levels_at, inside = table.to_numpy(float).T
            plot.axes.plot(levels_at, inside, color=colour, marker=marker, linestyle=line, markersize=3, linewidth=1.3)
            plot.name(label, inside[-1], style)
        plot.axes.set(xlim=(0, 1), ylim=(0, 1))
    middle = [(short(k), f"{v['inside'].iloc[len(v) // 2]:.2f}") for k, v in levels.items()]
    title, note = "calibration of predictive intervals", captions.CALIBRATION.format(splits=SPLITS)
    alt = captions.listed(f"{title} on {short(shown.task)}", middle, "; inside the 50% interval: ")
    return [plot.drawing(title, alt, long_form(levels), note + shown.without(levels))]


def _coverage(shown: TaskCells) -> dict[str, pd.DataFrame]:
    """Share of test rows of the first splits inside the central interval of every level; of methods with finite samples."""
    # A board's archive has no samples, and needs no data set then.
    sampled = [c for c in shown.cells if "samples.npz" in c.files]
    held_out, found = _held_out(shown.task) if sampled else [], {}
    for cell in sampled if held_out else ():
        stored = shown.results.samples(cell)
        if stored is None or not np.isfinite(stored[:SPLITS]).all():
            continue
        below = []  # the predictive mixture's distribution function at the responses of each split
        for data, samples in zip(held_out, stored, strict=False):
            means, sds = data.predict(torch.from_numpy(samples[None].astype(np.float64)))
            z = (data.y[0].double() - means[0].double()) / sds[0].double()[:, None]
            below.append(torch.special.ndtr(z).mean(0))
        pit = torch.cat(below)
        inside = [float(((2 * pit - 1).abs() <= level).double().mean()) for level in _LEVELS]
        found[cell.label] = pd.DataFrame({"probability": _LEVELS, "inside": inside})
    return found


def _held_out(task: str) -> list[PredictiveData]:
    """Test data of the first splits."""
    try:
        known = registry.load_task(task) if task in registry.tasks() else None
        found = [known.predictive([r], "cpu", torch.float64) for r in range(SPLITS)] if known else []
    except ParVIBenchError:  # the data set is missing, or a plug-in is broken
        return []
    return [data for data in found if data is not None]
