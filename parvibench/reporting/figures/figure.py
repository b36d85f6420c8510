"""The frame of every figure: theme, axes, legend, deterministic SVG or PNG, and the data beside it.

seaborn provides the theme, the palette, histograms and pair grids. Curves, bands and intervals are computed before they
are drawn, so Matplotlib draws them directly. Line figures are SVG in the page's own text colour, which suits light and
dark pages; clouds of points are PNG data URIs. The same results give the same bytes. A figure's name is also what
``parvibench report --figure NAME`` takes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from parvibench.core import registry
from parvibench.core.result import CellRecord
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.tables.leaderboard import is_anchor

from .vector import ENTRY, INK, LINE, svg

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

GREY = "#888888"
#: Where a picture's SVG has its ``ground``.
GROUND = "<!--ground-->"
_MARKERS = "osD^vP*X<>"
#: Shades of every kind of method, distinguishable by colour-blind readers, on light and on dark pages; markers differ besides.
_SHADES = {
    "particles": ("#0072b2", "#56b4e9", "#3f51d5", "#1a9ca8", "#8fa8ff"),
    "chains": ("#d55e00", "#e69f00", "#a6611a", "#ff8a5c", "#c9a227"),
    "generator": ("#b0459a", "#7a4fbf", "#e07fc0", "#8e6c8a", "#cc5580"),
}
#: Width and height of a figure without its legend, inches.
SIZE = (4.7, 3.1)
WIDE = (6.4, 3.1)
#: Budget axes: column of the curves -> title.
AXES = {"score_evaluations": "score evaluations", "iteration": "iterations", "seconds": "seconds"}


class LabelStyle(NamedTuple):
    """How a method is drawn in every figure: colour (hex), marker (empty for anchors), line style."""

    colour: str
    marker: str = "o"
    line: str = "-"


#: Style of every label.
Styles = Mapping[str, LabelStyle]


@dataclass(frozen=True)
class Picture:
    """One image of a figure."""

    image: str  #: an SVG element, or a PNG as a data URI
    alt: str  #: text for readers who cannot see the image
    caption: str = ""  #: shown below it
    ground: str = ""  #: SVG elements that stand for ``GROUND`` in the image: what the pictures of a drawing share

    @property
    def is_svg(self) -> bool:
        """Whether the image is an element rather than a URI."""
        return self.image.startswith("<svg")

    @property
    def content(self) -> bytes:
        """Bytes of a separate file, with black text."""
        if not self.is_svg:
            return base64.b64decode(self.image.partition(",")[2])
        names = 'xmlns="http://www.w3.org/2000/svg" font-family="DejaVu Sans, sans-serif"'
        whole = self.image.replace(GROUND, self.ground).replace("<svg", f"<svg {names}", 1)
        return whole.replace("currentColor", "#000000").encode()


@dataclass(frozen=True)
class Drawing:
    """A figure of the page: one image, or a grid of small ones."""

    name: str  #: unique in the report; also the name of its files
    title: str  #: heading
    pictures: tuple[Picture, ...]  #: its images
    data: pd.DataFrame = field(compare=False)  #: the numbers drawn, long form
    note: str = ""  #: how to read it
    axis: str = ""  #: key of ``AXES`` where the figure belongs to one budget axis, else empty
    #: draws the picture of that number on axes, for a drawing of several
    paint: Callable[[int, Axes], None] | None = field(default=None, compare=False, repr=False)


def long_form(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables of several methods as one, with the method in the column ``label``."""
    return pd.concat([frame.assign(label=label) for label, frame in frames.items()], ignore_index=True)


def slug(*parts: str) -> str:
    """Parts joined to a file name; other characters than letters, digits, ``-`` and ``_`` become ``-``, with a digest."""
    text = "-".join(parts)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:60]
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def budget_axes(timed: bool) -> list[str]:
    """The budget axes that can be drawn."""
    return [a for a in AXES if timed or a != "seconds"]


def axis_label(axis: str) -> str:
    """The x axis of a figure over the budget, or over another column of the curves."""
    words = {"seconds": "compute time per replicate (s)"}
    return words.get(axis, f"{AXES.get(axis, axis)} per replicate")


def label_styles(cells: Sequence[CellRecord]) -> dict[str, LabelStyle]:
    """The style of every label: shades by kind of method, one marker each; anchors are grey and dashed or dotted."""
    anchors = dict.fromkeys(c.label for c in cells if is_anchor(c))
    kinds = {c.label: str(c.kind) for c in cells if c.label not in anchors}
    styles = {}
    for kind in dict.fromkeys(kinds.values()):
        shades = _SHADES.get(kind, _SHADES["generator"])
        for i, label in enumerate(k for k, of in kinds.items() if of == kind):
            styles[label] = LabelStyle(shades[i % 5], _MARKERS[(i + i // 5) % 10])
    return styles | {a: LabelStyle(GREY, "", ("--", ":")[i % 2]) for i, a in enumerate(anchors)}


@dataclass(frozen=True)
class TaskCells:
    """The cells of one task that its figures draw."""

    results: StoredRun  #: of a run
    task: str  #: name of the task
    styles: Styles  #: of ``label_styles``
    labels: Sequence[str]  #: methods drawn, best first

    @cached_property
    def cells(self) -> list[CellRecord]:
        """Their records, best first."""
        return self.results.of_task(self.task, self.labels)

    @cached_property
    def in_run_order(self) -> list[CellRecord]:
        """The same in the order of the run."""
        return [c for c in self.results.cells if c.task == self.task and c.label in self.labels]

    @cached_property
    def anchors(self) -> set[str]:
        """Labels of the anchors among them."""
        return {c.label for c in self.cells if is_anchor(c)}

    @cached_property
    def tags(self) -> frozenset[str]:
        """The task's tags; none for an unknown task."""
        return frozenset(getattr(registry.tasks().get(self.task), "tags", ()))


def short(label: str, most: int = 16) -> str:
    """A label for a figure: printable, at most ``most`` characters; Matplotlib hides labels that start with ``_``."""
    name = "".join(c for c in label if c.isprintable())
    name = name if len(name) <= most else f"{name[: most - 1]}…"
    return f" {name}" if name.startswith("_") else name


def axis_name(metric: str) -> str:
    """Name of a metric, with its unit."""
    row = registry.metrics().get(metric)
    if row is None:
        return metric.replace("_", " ")
    unit = {"": "", "1": "", "x": " (in units of x)", "x^2": " (in units of x, squared)"}.get(
        row.unit, f" ({row.unit})"
    )
    words = re.split(r"[,;:(]", row.summary)[0].strip()
    return textwrap.fill(f"{words}{unit}", 46)


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
    """Within the block, the Matplotlib figures behind all drawings of axes are kept, by their names."""
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
        return f" data-plot='{escape(json.dumps(scales), quote=True)}'"

    def drawing(self, title: str, alt: str, data: pd.DataFrame, note: str, axis: str = "") -> Drawing:
        """The finished figure with its data."""
        return Drawing(self._name, title, (Picture(self._image, alt),), data, note, axis)


class Dots(NamedTuple):
    """Points of one method."""

    places: NDArray[np.float64]  #: (n, 2)
    colour: str  #: hex
    lines: NDArray[np.float64] | None = None  #: (L, m, 2), thin lines below them


class Panels:
    """Small pictures of points on the same square axes, whose ground is drawn once.

    Args:
        limits: ends of x and of y.
        ground: draws what lies below the points.
        size: diameter of a point, in points of print.
        opacity: of a point.
    """

    def __init__(
        self,
        limits: tuple[Sequence[float], Sequence[float]],
        ground: Callable[[Axes], object],
        size: float,
        opacity: float,
    ) -> None:
        import matplotlib.pyplot as plt

        self.pictures: list[Picture] = []
        self._limits, self._ground, self._size, self._opacity = limits, ground, size, opacity
        self._dots: list[Dots] = []
        with theme(ink=GREY):
            figure = plt.figure(figsize=(2.2, 2.2))
            axes = figure.add_axes((0.16, 0.12, 0.82, 0.86))
            self._frame(axes)
            whole = svg(figure)
            plt.close(figure)
        self._opening, _, rest = whole.partition(">")
        self._below = rest.removesuffix("</svg>")
        box = axes.get_position()
        side = 72 * 2.2
        self._box = box.x0 * side, (1 - box.y1) * side, box.width * side, box.height * side

    def _frame(self, axes: Axes) -> None:
        (left, *_, right), (low, *_, high) = self._limits
        axes.tick_params(labelsize=6, length=2)
        axes.set(xlim=(left, right), ylim=(low, high))
        axes.spines[:].set(visible=True, color=GREY)
        self._ground(axes)

    def add(self, dots: Dots, alt: str, caption: str) -> None:
        """A picture of these points, in tenths of a point of print; parts outside the axes are cut off."""
        (left, *_, right), (low, *_, high) = self._limits
        x0, y0, width, height = self._box
        scale = np.array([right - left, high - low])
        share = (np.clip(dots.places, -1e6, 1e6) - [left, low]) / scale

        def tenths(shares: NDArray[np.float64]) -> Any:
            return np.rint(np.clip(shares, -5, 6) * [width, -height] * 10 + [0, 10 * height]).astype(int).tolist()

        near = np.array(sorted(tenths(share[((share > -0.1) & (share < 1.1)).all(1)]))).reshape(-1, 2)
        steps = np.diff(near, axis=0, prepend=0).tolist()  # from one to the next, in fewer digits
        points = "".join(f"m{x}{y}h0" if y < 0 else f"m{x} {y}h0" for x, y in steps)
        line = f"fill:none;stroke:{dots.colour};stroke-opacity:{self._opacity}"
        path = f'<path d="{points}" style="{line};stroke-width:{10 * self._size:g};stroke-linecap:round"/>'
        if dots.lines is not None:
            lines = tenths((np.clip(dots.lines, -1e6, 1e6) - [left, low]) / scale)
            through = "".join("M" + " ".join(f"{x} {y}" for x, y in line) for line in lines)
            path = f'<path d="{through}" style="{line};stroke-width:4"/>{path}'
        frame = f'x="{x0:.2f}" y="{y0:.2f}" width="{width:.2f}" height="{height:.2f}" viewBox="0 0 {10 * width:.0f} {10 * height:.0f}"'
        image = f"{self._opening}>{GROUND}<svg {frame}>{path}</svg></svg>"
        self.pictures.append(Picture(image, alt, caption, self._below))
        self._dots.append(dots)

    def drawing(self, name: str, title: str, data: pd.DataFrame, note: str) -> Drawing:
        """The finished figure with its data."""
        return Drawing(name, title, tuple(self.pictures), data, note, paint=self.paint)

    def paint(self, number: int, axes: Axes) -> None:
        """Draw a picture on axes."""
        self._frame(axes)
        dots = self._dots[number]
        look: dict[str, Any] = {
            "markersize": self._size,
            "markeredgewidth": 0,
            "alpha": self._opacity,
            "color": dots.colour,
        }
        axes.plot(*dots.places.T, "o", **look)
        for line in () if dots.lines is None else dots.lines:
            axes.plot(*line.T, linewidth=0.4, alpha=self._opacity, color=dots.colour)


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


def png(figure: Figure) -> str:
    """The figure as a data URI, in 128 colours: less than half the bytes, and no visible difference."""
    drawn, packed = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=160, transparent=True)
    with Image.open(drawn) as image:
        image.quantize(128, method=Image.Quantize.FASTOCTREE).save(packed, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(packed.getvalue()).decode()
