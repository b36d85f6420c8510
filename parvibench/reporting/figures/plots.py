"""Axes to draw on: theme, scales, legend, and the finished figure as SVG, PNG or PDF."""

from __future__ import annotations

import base64
import io
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
from PIL import Image

from .figure import GREY, Drawing, Picture
from .vector import ENTRY, INK, LINE, svg

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

#: Width and height of a figure without its legend, inches.
SIZE = (4.7, 3.1)
WIDE = (6.4, 3.1)


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


def log_axes(axes: Axes, *, x: bool = True, y: bool = True) -> None:
    """Set logarithmic scales, with plain numbers at few ticks; the limits must be set before."""
    from matplotlib import ticker

    for axis, logarithmic in ((axes.xaxis, x), (axes.yaxis, y)):
        if logarithmic:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
        axis.set_minor_locator(ticker.NullLocator())
        axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: tick(v)))
        if not logarithmic:
            continue
        low, high = axes.get_xlim() if axis is axes.xaxis else axes.get_ylim()
        decades = math.log10(high / low)
        if decades < 0.8:
            axis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
        else:
            axis.set_major_locator(ticker.LogLocator(subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)))


def tick(value: float) -> str:
    """A tick label; thousands and millions as k and M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if unit <= abs(value) < 1e9:
            return f"{value / unit:g}{letter}"
    return f"{value:g}".replace("e+", "e")


def add_legend(figure: Figure, axes: Axes) -> Legend:
    """All methods below the axes, in as many columns as fit, at most four; the figure grows with them."""
    handles, names = axes.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    style: dict[str, Any] = {"frameon": False, "fontsize": 8, "borderpad": 0}
    for columns in (4, 3, 2, 1):
        legend = figure.legend(handles, names, loc="lower center", ncols=columns, **style)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    below = 0.55 + 0.19 * math.ceil(len(names) / columns)
    figure.set_size_inches(width, height + below)
    figure.subplots_adjust(left=0.62 / width, right=0.99, top=0.98, bottom=below / (height + below))
    return legend


#: Figures of the drawings being made, by name, where somebody wants them; else None.
_kept: ContextVar[dict[str, Figure] | None] = ContextVar("kept", default=None)


@contextmanager
def keeping() -> Iterator[dict[str, Figure]]:
    """Within the block, keep the Matplotlib figures behind all drawings, by name."""
    kept: dict[str, Figure] = {}
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)


class Plot:
    """Axes to draw on inside a ``with`` block, which ends by labelling them and rendering the figure as SVG.

    Without a label of the y axis there is no legend either; ``size`` is without the legend, inches.
    """

    axes: Axes

    def __init__(self, name: str, x: str, y: str = "", size: tuple[float, float] = SIZE) -> None:
        self._name, self._x, self._y, self._size = name, x, y, size
        self._marked: dict[str, str] = {}

    def mark(self, label: str, *artists: Artist, shown: str = "") -> None:
        """Say that these artists draw a method, so that a reader of the page can switch and point at them.

        Args:
            label: the method.
            artists: lines, markers and bands.
            shown: how the legend writes the label, where there is one.
        """
        number = list(self._marked).index(label) if label in self._marked else len(self._marked)
        self._marked[label] = shown or self._marked.get(label, "")
        for artist in artists:
            artist.set_gid(f"{LINE}{number}")

    def __enter__(self) -> Self:
        self._theme = theme(self._name)
        self._theme.__enter__()
        import matplotlib.pyplot as plt

        self._figure, self.axes = plt.subplots(figsize=self._size)
        return self

    def __exit__(self, *error: Any) -> None:
        import matplotlib.pyplot as plt

        if error[0] is None:
            self.axes.set(xlabel=self._x, ylabel=self._y)
            if self._y:
                legend = add_legend(self._figure, self.axes)
                for number, shown in enumerate(self._marked.values()):
                    for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
                        if text.get_text() == shown and handle is not None:
                            text.set_gid(f"{ENTRY}{number}")
                            handle.set_gid(f"{ENTRY}{number}")
            else:
                self._figure.tight_layout(pad=0.4)
            self._image = svg(self._figure, self._scales() if self._marked else "")
            if (kept := _kept.get()) is not None:
                kept[self._name] = self._figure
        plt.close(self._figure)
        self._theme.__exit__(*error)

    def _scales(self) -> str:
        """For the page's script: names of the methods, and what turns places in the picture into numbers."""
        width, height = (72 * v for v in self._figure.get_size_inches())
        box = self.axes.get_position()
        ends = {"x": (*self.axes.get_xlim(), box.x0 * width, box.x1 * width)}
        ends["y"] = (*self.axes.get_ylim(), (1 - box.y0) * height, (1 - box.y1) * height)
        logarithmic = {"x": self.axes.get_xscale() == "log", "y": self.axes.get_yscale() == "log"}
        places = {side: [*(float(f"{v:.6g}") for v in ends[side]), logarithmic[side]] for side in ends}
        scales = {"names": list(self._marked), **places, "of": [self._x, " ".join(self._y.split())]}
        content = escape(json.dumps(scales, separators=(",", ":")), quote=False).replace("'", "&#x27;")
        return f" data-plot='{content}'"

    def drawing(self, title: str, alt: str, data: pd.DataFrame, note: str, axis: str = "") -> Drawing:
        """The finished figure with its data."""
        return Drawing(self._name, title, (Picture(self._image, alt),), data, note, axis)


def as_figure(drawing: Drawing, figures: Mapping[str, Figure]) -> Figure:
    """The Matplotlib figure of a drawing: the one it was drawn on, or its pictures side by side."""
    if drawing.name in figures:
        return figures[drawing.name]
    from matplotlib.figure import Figure as Empty

    columns = min(4, len(drawing.pictures))
    rows = math.ceil(len(drawing.pictures) / columns)
    with theme(drawing.name, ink="black"):
        made = Empty(figsize=(1.9 * columns, 2.1 * rows))
        for i, picture in enumerate(drawing.pictures):
            axes = made.add_subplot(rows, columns, i + 1)
            if drawing.paint is not None:
                drawing.paint(i, axes)
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
