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

from .figure import GREY, Drawing, TaskCells, long_form, short, slug
from .panels import Dots, Panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 300
#: Probability within the contours, from the inside out.
CONTOURS = (0.5, 0.9, 0.99)
_GRID = 120
Density = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
#: Tag of a paper's tasks -> its own figure of two-dimensional targets.
_PAPER_FIGURES = {"sifg": "SIFG, Figure 1", "ksivi": "KSIVI, Figure 1", "srld": "SRLD, Figure 3"}


def particles(shown: TaskCells) -> list[Drawing]:
    """Samples of one replicate of every method over the contours of a 2-D density.

    Contours hold 50, 90 and 99% of the probability. The first finite replicate is drawn, at most
    ``MAX_POINTS`` points. All panels share their axes. Empty without 2-D samples, or where the density cannot be loaded.
    """
    found = {c.label: _first_finite(shown.results.samples(c)) for c in shown.in_run_order}
    drawn = {label: points for label, points in found.items() if points is not None}
    density = _density(shown.task) if drawn else None
    if density is None:
        return []
    x, y, _ = density
    panels, chains = _panels(density, opacity=0.85, filled=True), False
    for cell in (c for c in shown.cells if c.label in drawn):
        points, single = drawn[cell.label], cell.kind == "chains" and cell.particles == 1
        chains |= single
        inside = ((points >= [x[0], y[0]]) & (points <= [x[-1], y[-1]])).all(1)
        lost = "" if inside.all() else captions.OUTSIDE.format(n=(~inside).sum(), of=len(points))
        alt = captions.SAMPLES.format(n=len(points), label=short(cell.label), task=short(shown.task)) + lost
        places = points.astype(float)
        dots = Dots(places, shown.styles[cell.label].colour, places[None] if single else None)
        panels.add(dots, alt, cell.label + lost)
    data = long_form({k: pd.DataFrame(v, columns=["x1", "x2"]) for k, v in drawn.items()})
    source = next((figure for tag, figure in _PAPER_FIGURES.items() if tag in shown.tags), "")
    title = captions.as_in("samples over the target", source)
    note = captions.SCATTER_CHAINS if chains else captions.SCATTER
    return [panels.drawing(slug("samples", shown.task), title, data, note)]


def trajectories(shown: TaskCells) -> list[Drawing]:
    """Trajectories of a replicate's particles from the start to the end, over the same contours; none where none are recorded."""
    found = {c.label: shown.results.trajectories(c) for c in shown.in_run_order}
    kept = {k: t for k, t in found.items() if t is not None and t.positions.shape[2] == 2}
    drawn = {k: t for k, t in kept.items() if np.isfinite(t.positions).all()}
    density = _density(shown.task) if drawn else None
    if density is None:
        return []
    panels, frames = _panels(density, opacity=0.7, filled=False), {}
    for cell in (c for c in shown.cells if c.label in drawn):
        iterations, positions = drawn[cell.label]
        paths = positions.astype(float).transpose(1, 0, 2)
        alt = captions.PATHS.format(n=len(paths), label=short(cell.label), task=short(shown.task))
        panels.add(Dots(paths[:, -1], shown.styles[cell.label].colour, paths), alt, cell.label)
        index = {
            "particle": np.repeat(np.arange(len(paths)), len(iterations)),
            "iteration": np.tile(iterations, len(paths)),
        }
        frames[cell.label] = pd.DataFrame(index | {"x1": paths[..., 0].ravel(), "x2": paths[..., 1].ravel()})
    title = captions.as_in("trajectories of particles", "SIFG, Figure 2" if "sifg" in shown.tags else "")
    return [panels.drawing(slug("trajectories", shown.task), title, long_form(frames), captions.PATHS_NOTE)]


def _first_finite(samples: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
    """At most ``MAX_POINTS`` samples of the first finite replicate, (n, 2), or None."""
    if samples is None or samples.ndim != 3 or samples.shape[2] != 2:
        return None
    finite = np.isfinite(samples).all((1, 2))
    return samples[finite.argmax()][:MAX_POINTS] if finite.any() else None


def _panels(density: Density, opacity: float, *, filled: bool) -> Panels:
    """Small pictures over the contours of a density, between them grey if ``filled``."""
    x, y, mass = density

    def ground(axes: Axes) -> None:
        if filled:
            axes.contourf(x, y, mass, levels=[0, *CONTOURS], colors=GREY, alpha=0.16)
        axes.contour(x, y, mass, levels=CONTOURS, colors=GREY, linewidths=0.7)

    return Panels((x.tolist(), y.tolist()), ground, size=2.6, opacity=opacity)


def _density(task: str) -> Density | None:
    """Grid and, at every point, the probability of all denser points: (G,), (G,), (G, G)."""
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
    except Exception:  # an unknown or broken plug-in: no scatter
        return None
    return x, y, _mass_above(log_density)


def _extent(task: Task) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of a box around nearly all of a 2-D task's probability, from its reference or exact draws."""
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
