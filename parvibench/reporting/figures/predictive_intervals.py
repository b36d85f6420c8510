"""Predictions of networks: calibration of the intervals of all methods."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.core.task import PredictiveData
from parvibench.reporting.text import captions

from .figure import GREY, Drawing, TaskCells, long_form, short, slug
from .plots import plotted
from .vector import INK

#: Label -> responses, means and noise sds of each split, as of ``_predict``.
Splits = Mapping[str, list[tuple[Tensor, Tensor, Tensor]]]
#: Replicates (data splits) drawn.
SPLITS = 5
_LEVELS = np.linspace(0.05, 0.95, 19)


def predictions(shown: TaskCells) -> list[Drawing]:
    """Calibration of the predictive intervals of all methods; empty without held-out data, or where their data set is missing."""
    levels = shown.points("calibration", lambda: _coverage(_splits(shown)))
    return [_calibration(shown, levels)] if levels else []


def _splits(shown: TaskCells) -> Splits:
    """Predictions of the methods drawn for the test rows of the first splits, best first; of methods with finite samples."""
    held_out, found = _held_out(shown.task), {}
    for cell in shown.cells if held_out else ():
        stored = shown.results.samples(cell)
        if stored is not None and np.isfinite(stored[:SPLITS]).all():
            found[cell.label] = [_predict(data, x) for data, x in zip(held_out, stored, strict=False)]
    return found


def _coverage(predicted: Splits) -> dict[str, pd.DataFrame]:
    """Share of test rows inside the central interval of every level."""
    found = {}
    for label, splits in predicted.items():
        pit = torch.cat([_distribution(*split) for split in splits])
        inside = [float(((2 * pit - 1).abs() <= level).double().mean()) for level in _LEVELS]
        found[label] = pd.DataFrame({"probability": _LEVELS, "inside": inside})
    return found


def _held_out(task: str) -> list[PredictiveData]:
    """Test data of the first splits."""
    try:
        known = registry.load_task(task) if task in registry.tasks() else None
        found = [known.predictive([r], "cpu", torch.float64) for r in range(SPLITS)] if known else []
    except ParVIBenchError:  # the data set is missing, or a plug-in is broken
        return []
    return [data for data in found if data is not None]


def _predict(data: PredictiveData, samples: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Responses (T,), means (n, T) and noise sds (n,) of one split."""
    means, sds = data.predict(torch.from_numpy(samples[None].astype(np.float64)))
    return data.y[0].double(), means[0].double(), sds[0].double()


def _distribution(y: Tensor, means: Tensor, sds: Tensor) -> Tensor:
    """The predictive mixture's distribution function at y, (T,)."""
    return torch.special.ndtr((y - means) / sds[:, None]).mean(0)


def _calibration(shown: TaskCells, levels: Mapping[str, pd.DataFrame]) -> Drawing:
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
    return plot.drawing(title, alt, long_form(levels), note + shown.without(levels))
