"""Axes to draw on: theme, scales, legend, and the finished figure as SVG, PNG or PDF."""

from __future__ import annotations

import base64
import io
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from .figure import GREY, Drawing, LabelStyle, Picture, short
from .vector import ENTRY, INK, LINE, svg

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width and height of a figure, inches.
SIZE = (5.3, 3.3)


@contextmanager
def theme(salt: str = "", ink: str = INK) -> Iterator[None]:
    """seaborn's theme for the page: no display, text in the colour ``ink``, ids that depend on the content only."""
    import matplotlib as mpl
    import seaborn as sns

    settings: dict[Any, Any] = {
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink),
        **dict.fromkeys(("axes.edgecolor", "grid.color"), GREY),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "text.parse_math"), False),
        **dict.fromkeys(("font.size", "axes.labelsize"), 9),
        "svg.hashsalt": f"parvibench/{salt}",
        "svg.fonttype": "none",
        "axes.facecolor": "none",
        "grid.alpha": 0.25,
        "axes.linewidth": 0.8,
    }
    mpl.use("Agg", force=False)
    with sns.axes_style("whitegrid"), mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def bitmap(figure: Figure) -> str:
    """The figure as a data URI, lossless in 16 colours: a quarter of the bytes, and no visible difference."""
    drawn, packed = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=84, transparent=True)
    with Image.open(drawn) as image:
        few = image.quantize(16, method=Image.Quantize.FASTOCTREE).convert("RGBA")
    few.save(packed, format="webp", lossless=True, quality=100, method=6)
    return "data:image/webp;base64," + base64.b64encode(packed.getvalue()).decode()


def log_axes(axes: Axes, *, y: bool = True) -> None:
    """Set logarithmic scales, of y if wanted, with plain numbers at few ticks; the limits must be set before."""
    from matplotlib import ticker

    for axis, set_scale, logarithmic in ((axes.xaxis, axes.set_xscale, True), (axes.yaxis, axes.set_yscale, y)):
        if logarithmic:
            set_scale("log")
            low, high = axis.get_view_interval()
            decades = math.log10(high / low)
            if decades < 0.8:
                axis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
            else:
                axis.set_major_locator(ticker.LogLocator(subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)))
        axis.set_minor_locator(ticker.NullLocator())
        axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: tick(v)))


def tick(value: float) -> str:
    """A tick label; thousands and millions as k and M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if unit <= abs(value) < 1e9:
            return f"{value / unit:g}{letter}"
    return f"{value:g}".replace("e+", "e")


class Plot:
    """Axes to draw a figure on, inside the block of ``plotted``."""

    def __init__(self, name: str, figure: Figure, axes: Axes) -> None:
        self.axes = axes
        self.image = ""  #: the SVG, after the block
        self._name, self._figure = name, figure
        self._marked: dict[str, int] = {}
        self._ends: list[tuple[float, str, LabelStyle]] = []

    def mark(self, label: str, *artists: Artist) -> None:
        """Say that lines, markers and bands draw a method, so that a reader of the page can switch and point at them."""
        number = self._marked.setdefault(label, len(self._marked))
        for artist in artists:
            artist.set_gid(f"{LINE}{number}")

    def name(self, label: str, level: float, style: LabelStyle) -> None:
        """Name a line at its right end, at this height of the data."""
        self._ends.append((level, label, style))

    def finish(self) -> None:
        """Write the names of lines to the right of the axes, none over another; without any, a legend below where there is one."""
        figure, axes = self._figure, self.axes
        width, height = figure.get_size_inches()
        names = max((len(short(label)) for _, label, _ in self._ends), default=0)
        figure.subplots_adjust(
            left=0.62 / width, right=min(0.99, 1 - (0.25 + 0.075 * names) / width), top=0.98, bottom=0.5 / height
        )
        if not self._ends:
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=8)
                figure.subplots_adjust(top=1 - 0.3 / height)
            return
        low = axes.get_xlim()[0]
        places = axes.transAxes.inverted().transform(
            [axes.transData.transform((low, level)) for level, *_ in self._ends]
        )
        gap = 0.155 / (height * axes.get_position().height)
        across: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        for i, y in _apart(places[:, 1], gap):
            _, label, (colour, marker, line) = self._ends[i]
            said = axes.text(1.07, y, short(label), va="center", fontsize=8, **across)
            drawn = axes.plot(
                [1.015, 1.035, 1.055], [y] * 3, line, color=colour, marker=marker, markevery=[1], markersize=4, **across
            )
            if (number := self._marked.get(label)) is not None:
                for artist in (said, *drawn):
                    artist.set_gid(f"{ENTRY}{number}")

    def scales(self) -> str:
        """For the page's script: names of the methods, and what turns places in the picture into numbers."""
        if not self._marked:
            return ""
        axes, box = self.axes, self.axes.get_position()
        width, height = (72 * v for v in self._figure.get_size_inches())
        x = *axes.get_xlim(), box.x0 * width, box.x1 * width
        y = *axes.get_ylim(), (1 - box.y0) * height, (1 - box.y1) * height
        places = {
            side: [*(float(f"{v:.6g}") for v in ends), scale == "log"]
            for side, ends, scale in (("x", x, axes.get_xscale()), ("y", y, axes.get_yscale()))
        }
        of = [axes.get_xlabel(), " ".join(axes.get_ylabel().split())]
        said = json.dumps({"names": list(self._marked), **places, "of": of}, separators=(",", ":"))
        content = escape(said, quote=False).replace("'", "&#x27;")
        return f" data-plot='{content}'"

    def drawing(self, title: str, alt: str, data: pd.DataFrame, note: str, axis: str = "") -> Drawing:
        """The finished figure with its data."""
        return Drawing(self._name, title, (Picture(self.image, alt),), data, note, axis, self._figure)


def _apart(places: NDArray[np.float64], gap: float) -> list[tuple[int, float]]:
    """Positions and heights (shares of the axes), lowest first, moved until neighbours are a gap apart and all are inside."""
    order = [int(i) for i in np.argsort(places, kind="stable")]
    heights = np.clip(places[order], 0.0, 1.0)
    for i in range(1, len(order)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    highest = 1.0
    for i in reversed(range(len(order))):
        heights[i] = highest = min(heights[i], highest)
        highest -= gap
    return list(zip(order, map(float, heights), strict=True))


@contextmanager
def plotted(name: str, x: str, y: str = "", size: tuple[float, float] = SIZE) -> Iterator[Plot]:
    """Axes to draw on; at the end of the block they are labelled and the figure is rendered as SVG.

    ``size`` in inches; names at the ends of lines are inside it.
    """
    import matplotlib.pyplot as plt

    with theme(name):
        figure, axes = plt.subplots(figsize=size)
        plot = Plot(name, figure, axes)
        try:
            yield plot
            axes.set(xlabel=x, ylabel=y)
            if y:
                plot.finish()
            else:
                figure.tight_layout(pad=0.4)
            plot.image = svg(figure, plot.scales())
        finally:
            plt.close(figure)


def as_figure(drawing: Drawing) -> Figure:
    """The Matplotlib figure of a drawing: the one it was drawn on, or its pictures side by side."""
    if drawing.figure is not None:
        return drawing.figure
    from matplotlib.figure import Figure as Empty

    columns = min(4, len(drawing.pictures))
    rows = math.ceil(len(drawing.pictures) / columns)
    with theme(drawing.name, ink="black"):
        made = Empty(figsize=(1.9 * columns, 2.1 * rows))
        for i, picture in enumerate(drawing.pictures):
            axes = made.add_subplot(rows, columns, i + 1)
            if picture.paint is not None:
                picture.paint(axes)
            else:
                with Image.open(io.BytesIO(picture.content)) as image:
                    axes.imshow(image.convert("RGBA"), interpolation="none")
                axes.set_axis_off()
            axes.set_title(picture.caption, fontsize=7)
        made.tight_layout(pad=0.3)
    return made


def write_pdf(figure: Figure, path: Path) -> None:
    """Write a figure as PDF with embedded fonts, without a date: the same figure gives the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"pdf.fonttype": 42}):
        figure.savefig(path, format="pdf", transparent=True, bbox_inches="tight", metadata={"CreationDate": None})
