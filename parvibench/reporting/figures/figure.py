"""Figures as data: pictures, captions, numbers, and how methods and axes look in all of them.

seaborn provides the theme, the palette, histograms and pair grids. Curves, bands and intervals are computed before they
are drawn, so Matplotlib draws them directly. Line figures are SVG in the page's own text colour, which suits light and
dark pages; clouds of points are PNG data URIs. The same results give the same bytes. A figure's name is also what
``parvibench report --figure NAME`` takes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.reporting.facts.board import is_anchor
from parvibench.reporting.facts.run import AXES, Facts
from parvibench.reporting.formatting import name
from parvibench.reporting.text import captions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#888888"
#: Label of the reference among the points of a figure.
REFERENCE = "reference"
#: Where a picture's SVG has its ``ground``.
GROUND = "<!--ground-->"
#: Okabe and Ito's, with violet and brown: distinct in pairs for colour-blind readers, on light and on dark pages.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#7a44e5", "#724a22")
_MARKERS = {"particles": "o", "chains": "^", "generator": "s"}
_UNITS = {"": "", "1": "", "x": " (in units of x)", "x^2": " (in units of x, squared)"}


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
    paint: Callable[[Axes], None] | None = field(default=None, compare=False, repr=False)  #: draws it on axes

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
    pictures: Sequence[Picture]  #: its images
    data: pd.DataFrame = field(compare=False)  #: the numbers drawn, long form
    note: str = ""  #: how to read it
    axis: str = ""  #: key of ``AXES`` where the figure belongs to one budget axis, else empty
    figure: Figure | None = field(default=None, compare=False, repr=False)  #: the Matplotlib figure, where there is one


def long_form(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables of several methods as one, with the method in the column ``label``."""
    return pd.concat([frame.assign(label=label) for label, frame in frames.items()], ignore_index=True)


def slug(*parts: str) -> str:
    """Parts joined to a file name; other characters than letters, digits, ``-`` and ``_`` become ``-``, with a digest."""
    text = "-".join(parts)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:60]
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def axis_label(axis: str) -> str:
    """The x axis of a figure over the budget, or over another column of the curves."""
    if axis == "seconds":
        return "compute time per replicate (s)"
    if axis == "with_tuning":
        return "score evaluations of a replicate and of tuning"
    return f"{AXES.get(axis, axis)} per replicate"


def label_styles(facts: Facts) -> dict[str, LabelStyle]:
    """The style of every label: markers by kind of method, colours in turn; anchors are grey and dashed or dotted."""
    anchors = dict.fromkeys(c.label for c in facts.cells if is_anchor(c))
    kinds = {c.label: str(c.kind) for c in facts.cells if c.label not in anchors}
    styles = {
        label: LabelStyle(PALETTE[i % len(PALETTE)], _MARKERS.get(kind, "D"))
        for i, (label, kind) in enumerate(kinds.items())
    }
    return styles | {a: LabelStyle(GREY, "", ("--", ":")[i % 2]) for i, a in enumerate(anchors)}


def distinct(styles: Styles, labels: Iterable[str]) -> dict[str, LabelStyle]:
    """The styles of some labels, in which no two of eight methods have one colour."""
    found, free = dict(styles), list(PALETTE)
    taken = []
    for label in labels:
        if styles[label].colour in free:
            free.remove(styles[label].colour)
        elif styles[label].marker:
            taken.append(label)
    return found | {k: styles[k]._replace(colour=c) for k, c in zip(taken, free, strict=False)}


@dataclass(frozen=True)
class TaskCells:
    """The cells of one task that its figures draw."""

    results: Facts  #: of a run
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
        return [c for c in self.results.by_task[self.task] if c.label in self.labels]

    @cached_property
    def anchors(self) -> set[str]:
        """Labels of the anchors among them."""
        return {c.label for c in self.cells if is_anchor(c)}

    def points(self, figure: str, measure: Callable[[], Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
        """Numbers of a figure of samples by label, single precision: from a board's archive, else measured and remembered.

        ``measure`` computes them from samples. Labels are methods drawn, or ``REFERENCE``.
        """
        name, points = slug(figure, self.task), self.results.points
        if name not in points and (measured := measure()):
            points[name] = long_form({k: v.astype(dict.fromkeys(v, np.float32)) for k, v in measured.items()})
        known = dict(list(points[name].groupby("label", sort=False))) if name in points else {}
        shown = {k: v for k, v in known.items() if k == REFERENCE or k in self.labels}
        return {str(k): v.drop(columns="label") for k, v in shown.items()}

    def without(self, points: Mapping[str, object]) -> str:
        """A sentence on methods that ran and of which a figure has no points, or empty."""
        missing = [name(c.label) for c in self.cells if c.label not in points and c.status is Status.OK]
        return captions.WITHOUT.format(names=", ".join(missing)) if missing else ""

    def samples(self, cells: Sequence[CellRecord], dim: int) -> dict[str, NDArray[np.float32]]:
        """Label -> finite replicates of the samples, (R, n, dim); without cells that have none of this dimension."""
        stored = {c.label: self.results.samples(c) for c in cells}
        fitting = {k: x for k, x in stored.items() if x is not None and x.ndim == 3 and x.shape[2] == dim}
        finite = {k: x[np.isfinite(x).all((1, 2))] for k, x in fitting.items()}
        return {k: x for k, x in finite.items() if len(x)}


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
    words = re.split(r"[,;:(]", row.summary)[0].strip()
    return textwrap.fill(f"{words}{_UNITS.get(row.unit, f' ({row.unit})')}", 46)
