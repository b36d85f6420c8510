"""Samples over the density of a two-dimensional target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.core.task import Task
from parvibench.reporting.text import captions

from .figure import GREY, Drawing, TaskCells, is_single_chain, long_form, short, slug
from .panels import Panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 300
#: Probability within the contours, from the inside out.
CONTOURS = (0.5, 0.9, 0.99)
_GRID = 120
Density = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


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
        points, single = drawn[cell.label].to_numpy(), is_single_chain(cell)
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


def _density(task: str) -> Density | None:
    """Grid and, at every point, the probability of all denser points: (G,), (G,), (G, G)."""
    try:
        known = registry.load_task(task)
        target = known.target([0], "cpu", torch.float64)
        if known.dim != 2:
            return None
        x, y = np.linspace(*_extent(known), _GRID).T
        points = np.stack(np.meshgrid(x, y), axis=-1).reshape(1, -1, 2)
        with torch.no_grad():
            log_density = target.log_density(torch.from_numpy(points)).numpy().reshape(_GRID, _GRID)
    except Exception:  # an unknown or broken plug-in: no scatter
        return None
    return x, y, _mass_above(log_density)


def _extent(task: Task) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of a box around nearly all of a 2-D task's probability, from its reference or exact draws."""
    reference = task.reference()
    draws = (task.exact(4000, torch.Generator().manual_seed(0)) if reference is None else reference.draws).numpy()
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
