"""Curves of a task's methods: a metric against what was spent, with the floor drawn in."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from parvibench.core.reference import Floor
from parvibench.reporting.facts.courses import CONTEXTS
from parvibench.reporting.facts.courses import line as curve
from parvibench.reporting.facts.run import AXES
from parvibench.reporting.text import captions

from . import figure
from .figure import GREY, Drawing, LabelStyle, TaskCells, axis_label, long_form, short, slug
from .plots import Plot, log_axes, plotted
from .vector import INK

#: Label -> columns of ``curves.line``.
Lines = Mapping[str, pd.DataFrame]
#: Ends of the y axis, and whether it is logarithmic.
Limits = tuple[float, float, bool]
_FLOOR_BAND = (0.05, 0.95)
#: Most methods in one figure; the best ranked ones are drawn.
MAX_LINES = 8


def anytime(shown: TaskCells, metric: str, floor: Floor | None = None, *, alone: bool = False) -> list[Drawing]:
    """Anytime curves of one metric against every budget axis: medians over replicates, interquartile range.

    Sequential tasks are also drawn against the contexts decided on, whichever budget the page shows. The y axis is
    logarithmic where all values are positive, ``nll`` excepted; the floor is drawn as a band (5 to 95%) with its
    median; ``alone``: against the first axis only. No drawing when there is nothing to draw.
    """
    lines = {c.label: curve(shown.results, c, metric) for c in shown.in_run_order}
    lines = {k: v for k, v in lines.items() if len(v) and (k in shown.anchors or (v["iteration"] > 0).any())}
    limits = _limits(lines, shown.anchors, floor, metric)
    if limits is None or not lines:
        return []
    data = long_form(lines)
    end = {short(k): f"{v['median'].iloc[-1]:.3g}" for k, v in lines.items() if k not in shown.anchors}
    note = captions.CURVES if floor is None else captions.CURVES_FLOOR
    decided = all(line[CONTEXTS].notna().all() for line in lines.values())
    places = [*[CONTEXTS] * decided, *shown.results.axes]
    found = []
    for axis in places[:1] if alone else places:
        with plotted(slug("curve", shown.task, metric, axis), axis_label(axis), figure.axis_name(metric)) as plot:
            _draw(plot, axis, lines, shown, limits, floor)
        title = f"{metric} against {AXES.get(axis, axis)}"
        alt = captions.listed(f"{title} on {short(shown.task)}, one line per method", end.items(), "; at the end: ")
        columns = data[["label", axis, "median", "low", "high"]]
        found.append(plot.drawing(title, alt, columns, note, axis if axis in AXES and not alone else ""))
    return found


def _draw(plot: Plot, axis: str, lines: Lines, shown: TaskCells, limits: Limits, floor: Floor | None) -> None:
    axes, top = plot.axes, limits[1]
    for label, line in lines.items():
        colour, marker, dashes = shown.styles[label]
        if label in shown.anchors:
            if np.isfinite(level := line["median"].iloc[-1]):
                axes.axhline(level, color=INK, linestyle=dashes, linewidth=1.2)
                plot.name(label, level, LabelStyle(INK, "", dashes))
            continue
        drawable = line[np.isfinite(line["median"]) & (line[axis] > 0)]
        x, median, low, high = drawable[[axis, "median", "low", "high"]].to_numpy(float).T
        (drawn,) = axes.plot(x, median, color=colour, marker=marker, markersize=4, linewidth=1.4)
        high = np.where(np.isfinite(high), high, 10 * abs(top))
        low = np.where(np.isfinite(low), low, np.nan)
        if len(median):
            plot.name(label, median[-1], shown.styles[label])
        plot.mark(label, drawn, axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0))
    if floor is not None:
        axes.axhspan(*(floor.quantile(q) for q in _FLOOR_BAND), color=GREY, alpha=0.3, linewidth=0)
        axes.axhline(floor.median, color=GREY, linewidth=1)
        plot.name("floor", floor.median, LabelStyle(GREY, ""))
    axes.set_ylim(limits[:2])
    log_axes(axes, y=limits[2])


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
    last = {k: v for k, line in lines.items() if math.isfinite(v := float(line["median"].iloc[-1]))}
    final = [v for k, v in last.items() if k not in anchors]
    enough = float(np.quantile(final, 0.75)) if final else high
    if low > 0 and metric != "nll":
        levels = [v for k, v in last.items() if k in anchors]
        return low / 1.25, min(1.25 * high, 2 * max(enough, *levels, low)), True
    high = min(high, enough + 3 * (enough - low)) if enough > low else high
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin, False
