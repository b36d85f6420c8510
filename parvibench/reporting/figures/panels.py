"""Small pictures of points that share their axes and what lies below the points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .figure import GREY, GROUND, Picture
from .plots import theme
from .vector import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = NDArray[np.float64]


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
        limits: tuple[tuple[float, float], tuple[float, float]],
        ground: Callable[[Axes], object],
        size: float,
        opacity: float,
    ) -> None:
        import matplotlib.pyplot as plt

        self.pictures: list[Picture] = []
        self.limits, self._ground, self._size, self._opacity = limits, ground, size, opacity
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
        axes.tick_params(labelsize=6, length=2)
        axes.set(xlim=self.limits[0], ylim=self.limits[1])
        axes.spines[:].set(visible=True, color=GREY)
        self._ground(axes)

    def add(self, points: Points, colour: str, alt: str, caption: str, lines: Sequence[Points] = ()) -> None:
        """A picture of points (n, 2) over thin lines (m, 2), in tenths of a point of print; parts outside the axes are cut off."""
        x0, y0, width, height = self._box
        low, high = np.transpose(self.limits)

        def shares(places: Points) -> Points:
            return (np.clip(places, -1e6, 1e6) - low) / (high - low)

        def tenths(share: Points) -> Any:
            return np.rint(np.clip(share, -5, 6) * [width, -height] * 10 + [0, 10 * height]).astype(int).tolist()

        share = shares(points)
        near = np.array(sorted(tenths(share[((share > -0.1) & (share < 1.1)).all(1)]))).reshape(-1, 2)
        steps = np.diff(near, axis=0, prepend=0).tolist()  # from one to the next, in fewer digits
        dots = "".join(f"m{x}{y}z" if y < 0 else f"m{x} {y}z" for x, y in steps)
        line = f"fill:none;stroke:{colour};stroke-opacity:{self._opacity}"
        path = f'<path d="{dots}" style="{line};stroke-width:{10 * self._size:g};stroke-linecap:round"/>'
        if len(lines):
            through = "".join("M" + " ".join(f"{x} {y}" for x, y in tenths(shares(one))) for one in lines)
            path = f'<path d="{through}" style="{line};stroke-width:4"/>{path}'
        frame = f'x="{x0:.2f}" y="{y0:.2f}" width="{width:.2f}" height="{height:.2f}" viewBox="0 0 {10 * width:.0f} {10 * height:.0f}"'
        image = f"{self._opening}>{GROUND}<svg {frame}>{path}</svg></svg>"

        def paint(axes: Axes) -> None:
            self._frame(axes)
            look: dict[str, Any] = {"alpha": self._opacity, "color": colour}
            axes.plot(*points.T, "o", markersize=self._size, markeredgewidth=0, **look)
            for one in lines:
                axes.plot(*one.T, linewidth=0.4, **look)

        self.pictures.append(Picture(image, alt, caption, self._below, paint))
