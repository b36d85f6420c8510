"""Samples over the density of a two-dimensional target, in small pictures that share their axes and the density."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.reporting.text import captions

from .figure import GREY, GROUND, Drawing, Picture, TaskCells, long_form, short, slug
from .plots import theme
from .vector import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 300
#: Probability within the contours, from the inside out.
CONTOURS = (0.5, 0.9, 0.99)
_GRID = 120
Points = NDArray[np.float64]


def particles(shown: TaskCells) -> list[Drawing]:
    """Samples of one replicate of every method over the contours of a 2-D density.

    Contours hold 50, 90 and 99% of the probability. The first finite replicate is drawn, at most
    ``MAX_POINTS`` points. All panels share their axes. Empty without 2-D samples, or where the density cannot be loaded.
    """

    def measure() -> dict[str, pd.DataFrame]:
        first = {label: runs[0][:MAX_POINTS] for label, runs in shown.samples(shown.in_run_order, 2).items()}
        return {label: pd.DataFrame(points, columns=["x1", "x2"]) for label, points in first.items()}

    drawn = shown.points("samples", measure)
    panels = _panels(shown.task, 0.85, filled=True) if drawn else None
    if panels is None:
        return []
    chains = False
    low, high = np.transpose(panels.limits)
    for cell in (c for c in shown.cells if c.label in drawn):
        points = drawn[cell.label].to_numpy()
        single = cell.kind == "chains" and cell.particles == 1  # successive states of one chain
        chains |= single
        inside = ((points >= low) & (points <= high)).all(1)
        lost = "" if inside.all() else captions.OUTSIDE.format(n=(~inside).sum(), of=len(points))
        alt = captions.SAMPLES.format(n=len(points), label=short(cell.label), task=short(shown.task)) + lost
        places = points.astype(float)
        panels.add(places, shown.styles[cell.label].colour, alt, cell.label + lost, [places] if single else ())
    note = (captions.SCATTER_CHAINS if chains else captions.SCATTER) + shown.without(drawn)
    return [Drawing(slug("samples", shown.task), "samples over the target", panels.pictures, long_form(drawn), note)]


def trajectories(shown: TaskCells) -> list[Drawing]:
    """Trajectories of a replicate's particles from the start to the end, over the same contours; none where none are recorded."""

    def measure() -> dict[str, pd.DataFrame]:
        frames = {}
        for cell in shown.cells:
            found = shown.results.trajectories(cell)
            if found is None or found.positions.shape[2] != 2 or not np.isfinite(found.positions).all():
                continue
            paths = found.positions.transpose(1, 0, 2)
            particle, at = np.indices(paths.shape[:2]).reshape(2, -1)
            x1, x2 = paths.reshape(-1, 2).T
            columns = {"particle": particle, "iteration": found.iterations[at], "x1": x1, "x2": x2}
            frames[cell.label] = pd.DataFrame(columns)
        return frames

    drawn = shown.points("trajectories", measure)
    panels = _panels(shown.task, 0.7, filled=False) if drawn else None
    if panels is None:
        return []
    for label, table in drawn.items():
        paths = [path[["x1", "x2"]].to_numpy(float) for _, path in table.groupby("particle")]
        alt = captions.PATHS.format(n=len(paths), label=short(label), task=short(shown.task))
        ends = np.stack([path[-1] for path in paths])
        panels.add(ends, shown.styles[label].colour, alt, label, paths)
    title, name = "trajectories of particles", slug("trajectories", shown.task)
    return [Drawing(name, title, panels.pictures, long_form(drawn), captions.PATHS_NOTE)]


def _panels(task: str, opacity: float, *, filled: bool) -> Panels | None:
    """Small pictures over the contours of a task's density, between them grey if ``filled``; None where it cannot be loaded."""
    if (density := _density(task)) is None:
        return None
    x, y, mass = density

    def ground(axes: Axes) -> None:
        if filled:
            axes.contourf(x, y, mass, levels=[0, *CONTOURS], colors=GREY, alpha=0.16)
        axes.contour(x, y, mass, levels=CONTOURS, colors=GREY, linewidths=0.7)

    return Panels(((x[0], x[-1]), (y[0], y[-1])), ground, size=2.6, opacity=opacity)


def _density(task: str) -> tuple[Points, Points, Points] | None:
    """Grid and, at every point, the probability of all denser points: (G,), (G,), (G, G)."""
    try:
        known = registry.load_task(task)
        target = known.target([0], "cpu", torch.float64)
        if known.dim != 2:
            return None
        reference, g = known.reference(), torch.Generator().manual_seed(0)
        draws = (known.exact(4000, g) if reference is None else reference.draws).numpy()
        low, high = np.quantile(draws, 0.001, axis=0), np.quantile(draws, 0.999, axis=0)
        margin = 0.15 * (high - low)  # around nearly all of the probability
        x, y = np.linspace(low - margin, high + margin, _GRID).T
        points = np.stack(np.meshgrid(x, y), axis=-1).reshape(1, -1, 2)
        with torch.no_grad():
            log_density = target.log_density(torch.from_numpy(points)).numpy().reshape(_GRID, _GRID)
    except Exception:  # an unknown or broken plug-in: no scatter
        return None
    p = np.exp(log_density - np.nanmax(log_density))
    p = np.nan_to_num(p / np.nansum(p)).ravel()
    order = np.argsort(-p, kind="stable")
    mass = np.empty_like(p)
    mass[order] = np.cumsum(p[order])
    return x, y, mass.reshape(log_density.shape)


class Panels:
    """Small pictures of points on the same square axes, whose ground is drawn once.

    ``limits`` are the ends of x and of y; ``ground`` draws what lies below the points, whose diameter is their ``size``, in
    points of print.
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
