"""Anytime curves: a metric against what was spent, with the floor drawn in."""

import math
import statistics
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core.reference import Floor
from parvibench.core.result import CellRecord
from parvibench.harness.store.results import StoredRun, metric_values
from parvibench.reporting.text import captions

from . import figure
from .figure import AXES, GREY, Drawing, LabelStyle, TaskCells, axis_label, long_form, short, slug
from .plots import Plot, log_axes
from .vector import INK

#: Label -> columns of ``_line``.
Lines = Mapping[str, pd.DataFrame]
#: Ends of the y axis, and whether it is logarithmic.
Limits = tuple[float, float, bool]
_FLOOR_BAND = (0.05, 0.95)
#: Metric of sequential tasks that also serves as an axis.
CONTEXTS = "contexts"
#: Most methods in one figure; the best ranked ones are drawn.
MAX_LINES = 8


def anytime(
    shown: TaskCells, metric: str, floor: Floor | None = None, source: str = "", most: int | None = None
) -> list[Drawing]:
    """Anytime curves of one metric against every budget axis, or ``most`` of them: medians over replicates, interquartile range.

    Sequential tasks are also drawn against the contexts decided on, whichever budget the page shows. The y axis is
    logarithmic where all values are positive, ``nll`` excepted; the floor is drawn as a band (5 to 95%) with its
    median; ``source`` is a published figure that this one repeats. No drawing when there is nothing to draw.
    """
    lines = {c.label: _line(shown.results, c, metric) for c in shown.in_run_order}
    lines = {k: v for k, v in lines.items() if len(v) and (k in shown.anchors or (v["iteration"] > 0).any())}
    limits = _limits(lines, shown.anchors, floor, metric)
    if limits is None or not lines:
        return []
    data = long_form(lines)
    last = {short(k): v["median"].iloc[-1] for k, v in lines.items() if k not in shown.anchors}
    end = [(label, f"{value:.3g}") for label, value in last.items()]
    note = captions.CURVES if floor is None else captions.CURVES_FLOOR
    found = []
    decided = all(line[CONTEXTS].notna().all() for line in lines.values())
    places = [CONTEXTS] * decided + figure.budget_axes(shown.results.timed)
    for axis in places[:most]:
        plot = Plot(slug("curve", shown.task, metric, axis), axis_label(axis), figure.axis_name(metric))
        with plot:
            _draw(plot, axis, lines, shown, limits, floor)
        title = captions.as_in(f"{metric} against {AXES.get(axis, axis)}", source)
        alt = captions.listed(f"{title} on {short(shown.task)}, one line per method", end, "; at the end: ")
        columns = data[["label", axis, "median", "low", "high"]]
        found.append(plot.drawing(title, alt, columns, note, axis if axis in AXES else ""))
    return found


def _draw(plot: Plot, axis: str, lines: Lines, shown: TaskCells, limits: Limits, floor: Floor | None) -> None:
    axes = plot.axes
    for label, line in lines.items():
        style = shown.styles[label]
        if label not in shown.anchors:
            _draw_line(plot, label, line[[axis, "median", "low", "high"]].to_numpy(float).T, style, top=limits[1])
        elif np.isfinite(level := line["median"].iloc[-1]):
            axes.axhline(level, color=INK, linestyle=style.line, linewidth=1.2, label=short(label))
    if floor is not None:
        axes.axhspan(*(floor.quantile(q) for q in _FLOOR_BAND), color=GREY, alpha=0.3, linewidth=0)
        axes.axhline(floor.median, color=GREY, linewidth=1, label="floor")
    axes.set_ylim(limits[:2])
    log_axes(axes, y=limits[2])


def _line(results: StoredRun, cell: CellRecord, metric: str) -> pd.DataFrame:
    """Median and quartiles at every checkpoint; replicates that stopped earlier by diverging count as worst.

    Columns of ``AXES`` and ``contexts`` (medians; NaN where nothing is decided), median, low, high, by checkpoint.
    """
    grid = results.curve_grid(cell)
    curve, decided = grid.metric(metric), grid.medians(CONTEXTS)
    points = []
    for i, checkpoint in enumerate(curve.rows):
        found = sorted(metric_values(metric, curve.at(i, cell.diverged)))
        quartiles = (found[round(q * (len(found) - 1))] for q in (0.25, 0.75))
        spent = (float(np.median(curve.spent[a][i, curve.measured[i]])) for a in AXES)
        points.append((*spent, decided[checkpoint], statistics.median(found), *quartiles))
    return pd.DataFrame(points, columns=[*AXES, CONTEXTS, "median", "low", "high"]).sort_values("iteration")


def _draw_line(plot: Plot, label: str, line: NDArray[np.float64], style: LabelStyle, *, top: float) -> None:
    """``line``: places, medians, lower and upper quartiles."""
    colour, marker, _ = style
    x, median, low, high = line[:, np.isfinite(line[1]) & (line[0] > 0)]
    (drawn,) = plot.axes.plot(
        x, median, color=colour, marker=marker, markersize=4, linewidth=1.4, label=short(label)
    )  # fmt: skip
    high = np.where(np.isfinite(high), high, 10 * abs(top))
    low = np.where(np.isfinite(low), low, np.nan)
    band = plot.axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    plot.mark(label, drawn, band, shown=short(label))


def _limits(lines: Lines, anchors: set[str], floor: Floor | None, metric: str) -> Limits | None:
    """Limits of the y axis and whether it is logarithmic; None without a finite value.

    The axis ends a little above where three quarters of the methods end (and, when logarithmic, above the
    anchors): one diverging method must not flatten all others.
    """
    found = [v for line in lines.values() for v in line[["median", "low", "high"]].to_numpy(float).ravel()]
    found += [] if floor is None else [floor.quantile(q) for q in _FLOOR_BAND]
    seen = np.asarray(found)[np.isfinite(found)]
    if not len(seen):
        return None
    low, high = float(seen.min()), float(seen.max())
    last = {k: float(line["median"].iloc[-1]) for k, line in lines.items() if len(line)}
    final = [v for k, v in last.items() if k not in anchors and math.isfinite(v)]
    enough = float(np.quantile(final, 0.75)) if final else high
    if low > 0 and metric != "nll":
        levels = [v for k, v in last.items() if k in anchors and math.isfinite(v)]
        return low / 1.25, min(1.25 * high, 2 * max(enough, *levels, low)), True
    high = min(high, enough + 3 * (enough - low)) if enough > low else high
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin, False
