"""Small pictures of points that share their axes and what lies below the points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .figure import GREY, GROUND, Drawing, Picture
from .plots import theme
from .vector import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        points = "".join(f"m{x}{y}z" if y < 0 else f"m{x} {y}z" for x, y in steps)
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
