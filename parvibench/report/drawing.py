"""What all figures share: how they look, how they become text, and what goes with them.

SVG for lines (drawn in the page's own text colour, so that they suit light and dark), PNG as data URIs for clouds of
points. The same results give the same bytes. With every figure go its data and a name, by which
``parvibench report --figure NAME`` draws it again.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
from PIL import Image

from parvibench.core import registry
from parvibench.core.result import CellRecord

from .leaderboard import is_anchor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Stands for the colour of the page's text in an SVG.
INK = "#010203"
GREY = "#888888"
_MARKERS = "osD^vP*X<>"
#: Of seaborn's colour-blind palette: the pale colours and grey last.
_ORDER = (0, 1, 2, 3, 4, 9, 5, 6, 8, 7)
#: Axes with their margins, inches.
SIZE = (4.7, 3.1)
#: What a budget may be counted in: a column of the curves, and how it reads.
AXES = {
    "score_evaluations": "score evaluations",
    "iteration": "iterations",
    "seconds": "seconds",
}
#: Colour and marker of every label.
Looks = Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Picture:
    """One image of a figure.

    Attributes:
        image: an SVG element, or a PNG as a data URI.
        alt: what it shows, for those who cannot see it.
        caption: below it.
    """

    image: str
    alt: str
    caption: str = ""

    @property
    def is_svg(self) -> bool:
        """Whether the image is an element rather than a URI."""
        return self.image.startswith("<svg")

    @property
    def content(self) -> bytes:
        """A file of its own: ink is black there."""
        if not self.is_svg:
            return base64.b64decode(self.image.partition(",")[2])
        names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        return self.image.replace("<svg", f"<svg {names}", 1).replace("currentColor", "#000000").encode()


@dataclass(frozen=True)
class Drawing:
    """A figure of the page: one image, or a grid of small ones.

    Attributes:
        name: unique in the report; also the name of its files.
        title: what is drawn.
        pictures: its images.
        data: the numbers drawn, long form.
        note: how to read it.
        axis: key of ``AXES`` where the figure belongs to one budget axis, else empty.
    """

    name: str
    title: str
    pictures: tuple[Picture, ...]
    data: pd.DataFrame = field(compare=False)
    note: str = ""
    axis: str = ""


def slug(*parts: str) -> str:
    """A file name that tells what it is; names with anything but letters, digits, ``-`` and ``_`` get a digest."""
    text = "-".join(parts)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:60]
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def budget_axes(timed: bool) -> list[str]:
    """The budget axes that can be drawn."""
    return [a for a in AXES if timed or a != "seconds"]


def axis_label(axis: str) -> str:
    """The x axis of a figure over the budget, or over another column of the curves."""
    return f"{AXES.get(axis, axis)} per replicate{' (s)' if axis == 'seconds' else ''}"


def palette(cells: Sequence[CellRecord]) -> dict[str, tuple[str, str]]:
    """Colour (hex) and marker of every label: the same in all figures, told apart by colour-blind readers.

    Anchors are grey, and have a line style in place of a marker.
    """
    import seaborn as sns

    colours = [sns.color_palette("colorblind", 10).as_hex()[i] for i in _ORDER]
    anchors = dict.fromkeys(c.label for c in cells if is_anchor(c))
    methods = dict.fromkeys(c.label for c in cells if c.label not in anchors)
    looks = {m: (colours[i % 10], _MARKERS[(i + i // 10) % 10]) for i, m in enumerate(methods)}
    return looks | {a: (GREY, ("--", ":")[i % 2]) for i, a in enumerate(anchors)}


def short(label: str, most: int = 16) -> str:
    """A name for a figure: few printable characters; Matplotlib hides names that start with ``_``."""
    name = "".join(c for c in label if c.isprintable())
    name = name if len(name) <= most else f"{name[: most - 1]}…"
    return f" {name}" if name.startswith("_") else name


def axis_name(metric: str) -> str:
    """A metric with its unit."""
    row = registry.metrics().get(metric)
    unit = f" ({row.unit})" if row is not None and row.unit not in ("", "1") else ""
    return f"{metric.replace('_', ' ')}{unit}"


def log_axes(axes: Axes, *, x: bool = True, y: bool = True) -> None:
    """Logarithmic axes with plain numbers at few ticks; limits must be set before."""
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
    """A round number, thousands and millions by letter."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if unit <= abs(value) < 1e9:
            return f"{value / unit:g}{letter}"
    return f"{value:g}".replace("e+", "e")


def legend(figure: Figure, axes: Axes) -> None:
    """All methods below the axes, in four columns; the figure grows with them."""
    handles, names = axes.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    below = 0.55 + 0.19 * math.ceil(len(names) / 4)
    figure.set_size_inches(width, height + below)
    figure.subplots_adjust(left=0.62 / width, right=0.99, top=0.98, bottom=below / (height + below))
    figure.legend(handles, names, loc="lower center", ncols=4, frameon=False, fontsize=8, borderpad=0)


@contextmanager
def style(salt: str = "") -> Iterator[None]:
    """Matplotlib set for a page: no display, the page's ink, ids that depend on the content only."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "svg.hashsalt": f"parvibench/{salt}",
        "svg.fonttype": "none",
        "text.parse_math": False,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": GREY,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.grid": True,
        "grid.color": GREY,
        "grid.alpha": 0.25,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
    }
    mpl.use("Agg", force=False)
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def png(figure: Figure) -> str:
    """The figure as a data URI, in 128 colours: less than half the bytes of all of them, and no visible difference."""
    drawn, packed = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=160, transparent=True)
    with Image.open(drawn) as image:
        image.quantize(128, method=Image.Quantize.FASTOCTREE).save(packed, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(packed.getvalue()).decode()


def svg(figure: Figure) -> str:
    """The SVG element alone: no header, no metadata, no names shared between figures."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", buffer.getvalue(), flags=re.DOTALL)
    text = re.sub(r' id="[\w.]+_[0-9]+"', "", text).replace(INK, "currentColor")
    head, _, rest = text[text.index("<svg") :].partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    return f"<svg {view[0] if view else ''}>{rest}"
