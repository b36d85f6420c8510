"""Samples of targets with three or more dimensions against the reference: worst coordinates, paths."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.core.reference import Reference
from parvibench.reporting.facts.floor_comparison import floored_of
from parvibench.reporting.text import captions

from .figure import GREY, REFERENCE, Drawing, LabelStyle, Picture, TaskCells, long_form, short, slug
from .panels import Points
from .plots import WIDE, bitmap, plotted, theme
from .vector import INK

_COORDINATES = 4
_CLOUD = 300
_PATHS = 4
#: Coordinates and draws of a corner plot of the reference alone, evenly spaced where there are more coordinates.
COORDINATES, _POINTS = 6, 4000


def marginals(shown: TaskCells) -> list[Drawing]:
    """Corner plot of the leader's worst coordinates, and for paths the bands of the best methods.

    Empty without a reference, in one or two dimensions, or without samples.
    """
    reference = floored_of(shown.task)
    if not isinstance(reference, Reference) or reference.draws.shape[1] < 3:
        return []
    exact = reference.draws.numpy()
    methods = cache(partial(_pooled, shown, exact.shape[1]))
    found = [_corner(shown, shown.points("corner", lambda: _leader(methods(), exact)))]
    if "path" in getattr(registry.tasks().get(shown.task), "tags", ()):
        found.append(_paths(shown, shown.points("paths", lambda: _bands(methods(), exact))))
    return [drawing for drawing in found if drawing is not None]


def _pooled(shown: TaskCells, dim: int) -> dict[str, Points]:
    """Label -> samples of all replicates of the methods drawn, best first; anchors excepted."""
    pooled = {k: v.reshape(-1, dim).astype(np.float64) for k, v in shown.samples(shown.cells, dim).items()}
    return {k: v for k, v in pooled.items() if len(v) > 2 and k not in shown.anchors}


def _leader(methods: Mapping[str, Points], exact: Points) -> dict[str, pd.DataFrame]:
    """Some points of the reference and of the leader in its worst coordinates."""
    for label, points in methods.items():
        chosen = worst_coordinates(points, exact)
        columns = [f"x{c + 1}" for c in chosen]
        both = {REFERENCE: exact, label: points}
        return {k: pd.DataFrame(v[_evenly(len(v), _CLOUD)][:, chosen], columns=columns) for k, v in both.items()}
    return {}


def _bands(methods: Mapping[str, Points], exact: Points) -> dict[str, pd.DataFrame]:
    """Mean and central 95% band at every step."""
    frames = {}
    for label, points in [(REFERENCE, exact), *list(methods.items())[:_PATHS]]:
        low, high = np.quantile(points, [0.025, 0.975], axis=0)
        step = np.arange(1, points.shape[1] + 1)
        frames[label] = pd.DataFrame({"step": step, "mean": points.mean(0), "low": low, "high": high})
    return frames if len(frames) > 1 else {}


def worst_coordinates(points: Points, exact: Points) -> NDArray[np.int64]:
    """Coordinates whose mean (in reference sd) or log sd is furthest from the reference's, worst first."""
    sd = exact.std(0)
    spread = np.maximum(points.std(0), 1e-12 * sd)
    error = np.maximum(np.abs(points.mean(0) - exact.mean(0)) / sd, np.abs(np.log(spread / sd)))
    return np.argsort(-error, kind="stable")[:_COORDINATES]


def _corner(shown: TaskCells, points: Mapping[str, pd.DataFrame]) -> Drawing | None:
    label = next((k for k in points if k != REFERENCE), None)
    if label is None:
        return None
    data, columns = long_form(points), [*points[label]]
    with theme(ink=GREY):
        import matplotlib.pyplot as plt
        import seaborn as sns

        palette = {REFERENCE: GREY, label: shown.styles[label].colour}
        grid = sns.PairGrid(central(data), hue="label", palette=palette, corner=True, height=1.3, despine=False)
        grid.map_lower(sns.scatterplot, s=4, linewidth=0, alpha=0.7)
        grid.map_diag(sns.histplot, bins=30, stat="density", common_norm=False, element="step", alpha=0.3)
        grid.tick_params(labelsize=5, length=2)
        image = bitmap(grid.figure)
        plt.close(grid.figure)
    names = ", ".join(columns)
    title = captions.CORNER_TITLE.format(label=short(label), n=len(columns))
    note = captions.CORNER.format(names=names, points=_CLOUD)
    return Drawing(slug("corner", shown.task), title, (Picture(image, f"{title}: {names}"),), data, note)


def _evenly(n: int, most: int) -> NDArray[np.int64]:
    """At most so many of the first n numbers, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).astype(int)


def _paths(shown: TaskCells, frames: Mapping[str, pd.DataFrame]) -> Drawing | None:
    """Mean path and central 95% band of the best methods against the reference's."""
    methods = [label for label in frames if label != REFERENCE]
    if not methods:
        return None
    with plotted(slug("paths", shown.task), "step of the path", "x", WIDE) as plot:
        for label, table in frames.items():
            time, mean, low, high = table.to_numpy(float).T
            colour = shown.styles[label].colour if label in methods else INK
            plot.axes.plot(time, mean, color=colour, linewidth=1.4)
            plot.name(label, mean[-1], LabelStyle(colour, ""))
            if label in methods:
                plot.axes.plot(time, np.stack([low, high], 1), color=colour, linewidth=0.8, linestyle="--")
            else:
                plot.axes.fill_between(time, low, high, color=GREY, alpha=0.3, linewidth=0)
    title = "mean path and 95% band"
    alt = captions.of_methods(title, map(short, methods), short(shown.task))
    return plot.drawing(title, alt, long_form(frames), captions.BANDS.format(n=len(methods)))


def write_corner(reference: Reference, path: Path) -> Path:
    """Write histograms of single coordinates and of pairs of the reference draws to an image, .png or .svg; its path."""
    draws = reference.draws.numpy()
    chosen = _evenly(draws.shape[1], COORDINATES)
    table = central(pd.DataFrame(draws[:_POINTS, chosen], columns=[f"x{i + 1}" for i in chosen]))
    with theme(path.stem):
        import matplotlib.pyplot as plt
        import seaborn as sns

        grid = sns.pairplot(table, corner=True, kind="hist", diag_kind="hist", height=1.6)
        path.parent.mkdir(parents=True, exist_ok=True)
        grid.figure.savefig(path, dpi=120)
        plt.close(grid.figure)
    return path


def central(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with every number between its column's 0.2% and 99.8% quantiles: heavy tails would leave the bulk one bin."""
    numbers = table.select_dtypes("number")
    low, high = numbers.quantile(0.002), numbers.quantile(0.998)
    return table[((numbers >= low) & (numbers <= high)).all(axis=1)]
