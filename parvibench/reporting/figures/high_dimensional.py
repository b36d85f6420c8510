"""Samples of targets with three or more dimensions against the reference: worst coordinates."""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core.reference import Reference
from parvibench.reporting.facts.floor_comparison import floored_of
from parvibench.reporting.text import captions

from .figure import GREY, REFERENCE, Drawing, Picture, TaskCells, long_form, short, slug
from .plots import bitmap, theme

Points = NDArray[np.float64]
_COORDINATES = 4
_CLOUD = 300
#: Coordinates and draws of a corner plot of the reference alone, evenly spaced where there are more coordinates.
COORDINATES, _POINTS = 6, 4000


def corner(shown: TaskCells) -> list[Drawing]:
    """Corner plot of the leader's worst coordinates; none without a reference, in one or two dimensions, or without samples."""
    reference = floored_of(shown.task)
    if not isinstance(reference, Reference) or reference.draws.shape[1] < 3:
        return []
    points = shown.points("corner", lambda: _leader(shown, reference.draws.numpy()))
    label = next((k for k in points if k != REFERENCE), None)
    if label is None:
        return []
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
    return [Drawing(slug("corner", shown.task), title, (Picture(image, f"{title}: {names}"),), data, note)]


def _leader(shown: TaskCells, exact: Points) -> dict[str, pd.DataFrame]:
    """Some points of the reference and, replicates pooled, of the best method in its worst coordinates; anchors excepted."""
    dim = exact.shape[1]
    for label, samples in shown.samples(shown.cells, dim).items():
        points = samples.reshape(-1, dim).astype(np.float64)
        if len(points) > 2 and label not in shown.anchors:
            chosen = worst_coordinates(points, exact)
            columns = [f"x{c + 1}" for c in chosen]
            both = {REFERENCE: exact, label: points}
            return {k: pd.DataFrame(v[_evenly(len(v), _CLOUD)][:, chosen], columns=columns) for k, v in both.items()}
    return {}


def worst_coordinates(points: Points, exact: Points) -> NDArray[np.int64]:
    """Coordinates whose mean (in reference sd) or log sd is furthest from the reference's, worst first."""
    sd = exact.std(0)
    spread = np.maximum(points.std(0), 1e-12 * sd)
    error = np.maximum(np.abs(points.mean(0) - exact.mean(0)) / sd, np.abs(np.log(spread / sd)))
    return np.argsort(-error, kind="stable")[:_COORDINATES]


def _evenly(n: int, most: int) -> NDArray[np.int64]:
    """At most so many of the first n numbers, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).astype(int)


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
