"""Figures of a report: samples against the density, and anytime curves.

Figures come as text to put into a page: SVG for curves (drawn in the page's own text colour, so that they
suit light and dark), PNG as data URIs for scatters. The same results give the same bytes.
"""

from __future__ import annotations

import base64
import io
import math
import re
import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.core.reference import Floor
from parvibench.core.result import CellRecord
from parvibench.harness.results import Results

from .leaderboard import higher_is_better, is_anchor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 500
#: Probability within the contours, from the inside out.
CONTOURS = (0.5, 0.9, 0.99)
_GRID = 120
#: Stands for the colour of the page's text in an SVG.
_INK = "#010203"
_GREY = "#888888"
_MARKERS = "osD^vP*X<>"
#: Of seaborn's colour-blind palette: the pale colours and grey last.
_ORDER = (0, 1, 2, 3, 4, 9, 5, 6, 8, 7)
_FLOOR_BAND = (0.05, 0.95)
_SIZE = (4.7, 3.1)  # of the axes with their margins, inches


@dataclass(frozen=True)
class Panel:
    """One method's samples over the density.

    Attributes:
        label: of the method.
        image: PNG as a data URI.
        points: how many samples are drawn.
        outside: how many of them lie beyond the edges.
    """

    label: str
    image: str
    points: int
    outside: int


def palette(cells: Sequence[CellRecord]) -> dict[str, tuple[str, str]]:
    """Colour (hex) and marker of every label: the same in all figures, told apart by colour-blind readers.

    Anchors are grey, and have a line style in place of a marker.
    """
    import seaborn as sns

    colours = [sns.color_palette("colorblind", 10).as_hex()[i] for i in _ORDER]
    anchors = dict.fromkeys(c.label for c in cells if is_anchor(c))
    methods = dict.fromkeys(c.label for c in cells if c.label not in anchors)
    looks = {m: (colours[i % 10], _MARKERS[(i + i // 10) % 10]) for i, m in enumerate(methods)}
    return looks | {a: (_GREY, ("--", ":")[i % 2]) for i, a in enumerate(anchors)}


def scatter(results: Results, task: str, colours: Mapping[str, tuple[str, str]]) -> list[Panel]:
    """Samples of one replicate of every method over the contours of a 2-D density.

    Contours hold 50, 90 and 99% of the probability. The first finite replicate is drawn, at most
    ``MAX_POINTS`` points. All panels of a task share their axes.

    Returns:
        One panel per cell with 2-D samples; none where the density cannot be loaded.
    """
    drawn = {}
    for cell in results.cells:
        points = _first_finite(results.samples(cell)) if cell.task == task else None
        if points is not None:
            drawn[cell.label] = points[:MAX_POINTS]
    density = _density(task) if drawn else None
    if density is None:
        return []
    x, y, mass = density
    with _style():
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(2.2, 2.2))
        axes.set_position((0.13, 0.1, 0.85, 0.88))
        axes.contourf(x, y, mass, levels=[0, *CONTOURS], colors=_GREY, alpha=0.16)
        axes.contour(x, y, mass, levels=CONTOURS, colors=_GREY, linewidths=0.7)
        axes.tick_params(colors=_GREY, labelsize=6, length=2)
        axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        axes.spines[:].set_color(_GREY)
        (dots,) = axes.plot([], [], "o", markersize=2.6, markeredgewidth=0, alpha=0.85)
        panels = []
        for label, points in drawn.items():
            dots.set_data(points[:, 0], points[:, 1])
            dots.set_color(colours[label][0])
            inside = ((points >= [x[0], y[0]]) & (points <= [x[-1], y[-1]])).all(1)
            panels.append(Panel(label, _png(figure), len(points), int((~inside).sum())))
        plt.close(figure)
    return panels


def _first_finite(samples: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
    """The first replicate without NaN or infinity, (n, 2), or None."""
    if samples is None or samples.ndim != 3 or samples.shape[2] != 2:
        return None
    finite = np.isfinite(samples).all((1, 2))
    return samples[finite.argmax()] if finite.any() else None


def _density(task: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """Grid and, at every point, the probability of all points that are denser: (G,), (G,), (G, G)."""
    import torch

    try:
        known = registry.load_task(task)
        target = known.target([0], "cpu", torch.float64)
        if known.dim != 2:
            return None
        (x0, y0), (x1, y1) = _extent(known)
        x, y = np.linspace(x0, x1, _GRID), np.linspace(y0, y1, _GRID)
        points = np.stack(np.meshgrid(x, y), axis=-1).reshape(1, -1, 2)
        with torch.no_grad():
            log_density = target.log_density(torch.from_numpy(points)).numpy().reshape(_GRID, _GRID)
    except Exception:  # an unknown or broken plug-in: the page goes without its scatter
        return None
    return x, y, _mass_above(log_density)


def _extent(task: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of a box around nearly all of a 2-D task's probability, from its reference or exact draws."""
    import torch

    reference = task.reference()
    if reference is not None:
        draws = reference.draws.numpy()
    else:
        draws = task.exact(4000, torch.Generator().manual_seed(0)).numpy()
    low, high = np.quantile(draws, 0.001, axis=0), np.quantile(draws, 0.999, axis=0)
    margin = 0.15 * (high - low)
    return low - margin, high + margin


def _mass_above(log_density: NDArray[np.float64]) -> NDArray[np.float64]:
    """For every grid point the probability, over the grid, of the points at least as dense."""
    p = np.exp(log_density - np.nanmax(log_density))
    p = np.nan_to_num(p / np.nansum(p)).ravel()
    order = np.argsort(-p, kind="stable")
    mass = np.empty_like(p)
    mass[order] = np.cumsum(p[order])
    return mass.reshape(log_density.shape)


def curves(
    results: Results,
    task: str,
    metric: str,
    against: str,
    colours: Mapping[str, tuple[str, str]],
    floor: Floor | None = None,
) -> str:
    """Anytime curves: medians over replicates with the interquartile range.

    Args:
        results: of a run.
        task: its task.
        metric: y axis; logarithmic where all values are positive, ``nll`` excepted.
        against: x axis, ``score_evaluations`` or ``seconds`` (per replicate), logarithmic.
        colours: of ``palette``.
        floor: drawn as a band (5 to 95%) with its median.

    Returns:
        An SVG element, or an empty string when there is nothing to draw.
    """
    lines = {c.label: _line(results, c, metric, against) for c in results.cells if c.task == task}
    anchors = {c.label for c in results.cells if c.task == task and is_anchor(c)}
    lines = {k: v for k, v in lines.items() if len(v) and (k in anchors or (v["x"] > 0).any())}
    limits = _limits(lines, anchors, floor, metric)
    if limits is None:
        return ""
    with _style(f"{task}/{metric}/{against}"):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=_SIZE)
        for label, line in lines.items():
            _draw_line(axes, label, line, colours[label], anchor=label in anchors, top=limits[1])
        if floor is not None:
            axes.axhspan(*(floor.quantile(q) for q in _FLOOR_BAND), color=_GREY, alpha=0.3, linewidth=0)
            axes.axhline(floor.median, color=_GREY, linewidth=1, label="floor")
        _scale(axes, limits)
        axes.set_xlabel(f"{against.replace('_', ' ')} per replicate{' (s)' if against == 'seconds' else ''}")
        axes.set_ylabel(_axis_name(metric))
        _legend(figure, axes)
        text = _svg(figure)
        plt.close(figure)
    return text


def _scale(axes: Axes, limits: tuple[float, float, bool]) -> None:
    """Logarithmic axes with plain numbers at few ticks."""
    from matplotlib import ticker

    axes.set_xscale("log")
    axes.set_yscale("log" if limits[2] else "linear")
    axes.set_ylim(limits[:2])
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, limits[:2])):
        axis.set_minor_locator(ticker.NullLocator())
        axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: _tick(v)))
        if axis is axes.yaxis and not limits[2]:
            continue
        decades = math.log10(high / low)
        if decades < 0.8:
            axis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
        else:
            axis.set_major_locator(ticker.LogLocator(subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)))


def _tick(value: float) -> str:
    """A round number, thousands and millions by letter."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if unit <= abs(value) < 1e9:
            return f"{value / unit:g}{letter}"
    return f"{value:g}".replace("e+", "e")


def _legend(figure: Figure, axes: Axes) -> None:
    """All methods below the axes, in four columns; the figure grows with them."""
    handles, names = axes.get_legend_handles_labels()
    width, height = _SIZE
    below = 0.55 + 0.19 * math.ceil(len(names) / 4)
    figure.set_size_inches(width, height + below)
    figure.subplots_adjust(left=0.62 / width, right=0.99, top=0.98, bottom=below / (height + below))
    figure.legend(handles, names, loc="lower center", ncols=4, frameon=False, fontsize=8, borderpad=0)


def _line(results: Results, cell: CellRecord, metric: str, against: str) -> pd.DataFrame:
    """Median and quartiles at every checkpoint; replicates that stopped earlier by diverging count as worst.

    Returns:
        Columns x, median, low, high, by checkpoint.
    """
    curve = results.store.curve(cell.key)
    rows = curve[curve["metric"] == metric]
    worst = -math.inf if higher_is_better(metric) else math.inf
    points = []
    for _, at in rows.groupby("checkpoint"):
        stopped = len(set(cell.diverged) - set(at["replicate"]))
        found = sorted([*at["value"].fillna(worst), *[worst] * stopped])
        quartiles = (found[round(q * (len(found) - 1))] for q in (0.25, 0.75))
        points.append((float(at[against].median()), statistics.median(found), *quartiles))
    return pd.DataFrame(points, columns=["x", "median", "low", "high"]).sort_values("x")


def _draw_line(
    axes: Axes, label: str, line: pd.DataFrame, look: tuple[str, str], *, anchor: bool, top: float
) -> None:
    colour, marker = look
    name = _short(label)
    if anchor:
        level = line["median"].iloc[-1]
        if np.isfinite(level):
            axes.axhline(level, color=_INK, linestyle=marker, linewidth=1.2, label=name)
        return
    finite = line[np.isfinite(line["median"]) & (line["x"] > 0)]
    axes.plot(
        finite["x"], finite["median"], color=colour, marker=marker, markersize=4, linewidth=1.4, label=name
    )
    high = np.where(np.isfinite(finite["high"]), finite["high"], 10 * abs(top))
    low = np.where(np.isfinite(finite["low"]), finite["low"], np.nan)
    axes.fill_between(finite["x"], low, high, color=colour, alpha=0.15, linewidth=0)


def _short(label: str) -> str:
    """A name for the legend: at most 16 printable characters; Matplotlib hides names that start with ``_``."""
    name = "".join(c for c in label if c.isprintable())
    name = name if len(name) <= 16 else f"{name[:15]}…"
    return f" {name}" if name.startswith("_") else name


def _limits(
    lines: Mapping[str, pd.DataFrame], anchors: set[str], floor: Floor | None, metric: str
) -> tuple[float, float, bool] | None:
    """Limits of the y axis and whether it is logarithmic; None without a finite value.

    The axis ends a little above where three quarters of the methods end (and, when logarithmic, above the
    anchors): a method that goes astray must not flatten all others.
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


def _axis_name(metric: str) -> str:
    row = registry.metrics().get(metric)
    unit = f" ({row.unit})" if row is not None and row.unit not in ("", "1") else ""
    return f"{metric.replace('_', ' ')}{unit}"


@contextmanager
def _style(salt: str = "") -> Iterator[None]:
    """Matplotlib set for a page: no display, the page's ink, ids that depend on the content only."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "svg.hashsalt": f"parvibench/{salt}",
        "svg.fonttype": "none",
        "text.parse_math": False,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _GREY,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "axes.grid": True,
        "grid.color": _GREY,
        "grid.alpha": 0.25,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
    }
    mpl.use("Agg", force=False)
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def _png(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, transparent=True, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _svg(figure: Figure) -> str:
    """The SVG element alone: no header, no metadata, no names shared between figures."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", buffer.getvalue(), flags=re.DOTALL)
    text = re.sub(r' id="[\w.]+_[0-9]+"', "", text).replace(_INK, "currentColor")
    head, _, rest = text[text.index("<svg") :].partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    return f"<svg {view[0] if view else ''}>{rest}"
