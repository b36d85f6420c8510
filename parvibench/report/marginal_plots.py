"""Samples of targets beyond two dimensions against the reference: worst coordinates, correlations, paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.harness.store.results import Results

from .drawing import GREY, INK, Drawing, Looks, Picture, legend, png, short, slug, style, svg
from .judgement import reference_of
from .leaderboard import is_anchor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = NDArray[np.float64]
_COORDINATES = 4
_CLOUD = 600
#: Coordinates whose pairwise correlations are drawn, evenly spaced where there are more.
_CORRELATED = 32
_PATHS = 4


def marginals(results: Results, task: str, looks: Looks, labels: Sequence[str]) -> list[Drawing]:
    """Corner plot of the leader's worst coordinates, correlations of all methods, and for paths their bands.

    Args:
        results: of a run.
        task: its task.
        looks: of ``palette``.
        labels: methods, best first.

    Returns:
        None without a reference, in two dimensions, or without samples.
    """
    reference = reference_of(task)
    if reference is None or reference.draws.shape[1] < 3:
        return []
    exact = reference.draws.numpy()
    anchors = {c.label for c in results.cells if c.task == task and is_anchor(c)}
    clouds = {
        c.label: points
        for c in results.of_task(task, labels)
        if (points := _pooled(results.samples(c), exact.shape[1])) is not None
    }
    leader = next((k for k in clouds if k not in anchors), None)
    tags = getattr(registry.tasks().get(task), "tags", ())
    found = []
    if leader is not None:
        found.append(_corner(task, leader, clouds[leader], exact, looks[leader][0]))
    if clouds:
        found.append(_correlations(task, clouds, exact, looks, "path" not in tags))
    if leader is not None and "path" in tags:
        methods = {k: v for k, v in clouds.items() if k not in anchors}
        found.append(_paths(task, dict(list(methods.items())[:_PATHS]), exact, looks))
    return found


def _pooled(samples: NDArray[np.float32] | None, dim: int) -> Points | None:
    """Samples of all finite replicates, (R n, D)."""
    if samples is None or samples.ndim != 3 or samples.shape[2] != dim:
        return None
    kept = samples[np.isfinite(samples).all((1, 2))].reshape(-1, dim).astype(np.float64)
    return kept if len(kept) > 2 else None


def worst_coordinates(points: Points, exact: Points) -> NDArray[np.int64]:
    """Coordinates whose mean (in reference sd) or log sd is furthest from the reference's, worst first."""
    sd = exact.std(0)
    spread = np.maximum(points.std(0), 1e-12 * sd)
    error = np.maximum(np.abs(points.mean(0) - exact.mean(0)) / sd, np.abs(np.log(spread / sd)))
    return np.argsort(-error, kind="stable")[:_COORDINATES]


def _corner(task: str, label: str, points: Points, exact: Points, colour: str) -> Drawing:
    chosen = worst_coordinates(points, exact)
    a, b = _thinned(exact)[:, chosen], _thinned(points)[:, chosen]
    with style():
        import matplotlib.pyplot as plt

        k = len(chosen)
        figure, grid = plt.subplots(k, k, figsize=(5.2, 5.2), sharex="col")
        for i in range(k):
            for j in range(k):
                _corner_panel(grid[i][j], i, j, a, b, colour)
                if i == k - 1:
                    grid[i][j].set_xlabel(f"x{chosen[j] + 1}", color=GREY)
        figure.subplots_adjust(0.06, 0.09, 0.99, 0.99, 0.08, 0.08)
        image = png(figure)
        plt.close(figure)
    names = ", ".join(f"x{c + 1}" for c in chosen)
    title = f"{short(label)} against the reference on its {k} worst coordinates"
    note = (
        f"Worst by mean or spread: {names}. Grey: the reference; colour: samples of the leader, replicates pooled; at most "
        f"{_CLOUD} points of either. The diagonal shows densities."
    )
    columns = [f"x{c + 1}" for c in chosen]
    data = pd.concat(
        [
            pd.DataFrame(a, columns=columns).assign(label="reference"),
            pd.DataFrame(b, columns=columns).assign(label=label),
        ],
        ignore_index=True,
    )
    return Drawing(slug("corner", task), title, (Picture(image, f"{title}: {names}"),), data, note)


def _corner_panel(axes: Axes, i: int, j: int, exact: Points, points: Points, colour: str) -> None:
    axes.tick_params(colors=GREY, labelsize=5, length=2, labelleft=False)
    axes.spines[:].set_color(GREY)
    if j > i:
        axes.set_visible(False)
    elif i == j:
        both = np.concatenate([exact[:, i], points[:, i]])
        low, high = np.quantile(both, [0.002, 0.998]).tolist()
        bins = np.linspace(low, high, 30).tolist()
        axes.hist(exact[:, i], bins, density=True, color=GREY, alpha=0.4)
        axes.hist(points[:, i], bins, density=True, color=colour, histtype="step", linewidth=1.4)
    else:
        axes.plot(exact[:, j], exact[:, i], "o", color=GREY, markersize=1.6, markeredgewidth=0, alpha=0.5)
        axes.plot(points[:, j], points[:, i], "o", color=colour, markersize=1.8, markeredgewidth=0, alpha=0.8)


def _thinned(points: Points) -> Points:
    """At most ``_CLOUD`` rows, evenly spaced."""
    return points[np.linspace(0, len(points) - 1, min(_CLOUD, len(points))).astype(int)]


def _correlations(
    task: str, clouds: Mapping[str, Points], exact: Points, looks: Looks, regression: bool
) -> Drawing:
    """Correlation of every pair of coordinates, method against reference."""
    dim = exact.shape[1]
    columns = np.unique(np.linspace(0, dim - 1, min(dim, _CORRELATED)).astype(int))
    pairs = np.triu_indices(len(columns), 1)
    known = np.asarray(np.corrcoef(exact[:, columns], rowvar=False))[pairs]
    pictures, frames = [], []
    with style(), np.errstate(invalid="ignore", divide="ignore"):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(2.2, 2.2))
        axes.set_position((0.16, 0.12, 0.82, 0.86))
        axes.plot([-1, 1], [-1, 1], color=GREY, linewidth=0.8)
        axes.tick_params(colors=GREY, labelsize=6, length=2)
        axes.set(xlim=(-1, 1), ylim=(-1, 1))
        axes.spines[:].set_color(GREY)
        (dots,) = axes.plot([], [], "o", markersize=2, markeredgewidth=0, alpha=0.6)
        for label, points in clouds.items():
            found = np.asarray(np.corrcoef(points[:, columns], rowvar=False))[pairs]
            error = (
                float(np.sqrt(np.nanmean((found - known) ** 2))) if np.isfinite(found).any() else float("nan")
            )
            dots.set_data(known, found)
            dots.set_color(looks[label][0])
            alt = f"{len(known)} correlations of {short(label)} against the reference's on {short(task)}, root mean square error {error:.3f}"
            pictures.append(Picture(png(figure), alt, f"{label} (error {error:.3f})"))
            frames.append(pd.DataFrame({"label": label, "reference": known, "samples": found}))
        plt.close(figure)
    note = "Horizontal: the reference's; vertical: the samples', replicates pooled. On the line they agree."
    if len(columns) < dim:
        note += f" {len(columns)} of {dim} coordinates, evenly spaced."
    title = "correlations of pairs of coordinates" + (
        " (as in KSIVI, Figure 4)"
        if regression and "ksivi" in getattr(registry.tasks().get(task), "tags", ())
        else ""
    )
    return Drawing(
        slug("correlations", task), title, tuple(pictures), pd.concat(frames, ignore_index=True), note
    )


def _paths(task: str, clouds: Mapping[str, Points], exact: Points, looks: Looks) -> Drawing:
    """Mean path and central 95% band of the best methods against the reference's."""
    time = np.arange(1, exact.shape[1] + 1)
    frames = []
    with style(f"{task}/paths"):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6.4, 3.1))
        for label, points in {"reference": exact, **clouds}.items():
            low, high = np.quantile(points, [0.025, 0.975], axis=0)
            colour = looks[label][0] if label in clouds else GREY
            if label == "reference":
                axes.fill_between(time, low, high, color=colour, alpha=0.3, linewidth=0)
            else:
                axes.plot(time, low, color=colour, linewidth=0.8, linestyle="--")
                axes.plot(time, high, color=colour, linewidth=0.8, linestyle="--")
            axes.plot(
                time,
                points.mean(0),
                color=INK if label == "reference" else colour,
                linewidth=1.4,
                label=short(label),
            )
            frames.append(
                pd.DataFrame({"label": label, "step": time, "mean": points.mean(0), "low": low, "high": high})
            )
        axes.set_xlabel("step of the path")
        axes.set_ylabel("x")
        legend(figure, axes)
        text = svg(figure)
        plt.close(figure)
    title = "mean path and 95% band (as in KSIVI, Figure 5)"
    note = f"Grey band and black line: the reference; dashed: limits of the {len(clouds)} best methods' bands, replicates pooled."
    alt = f"{title} of {', '.join(map(short, clouds))} on {short(task)}"
    return Drawing(
        slug("paths", task), title, (Picture(text, alt),), pd.concat(frames, ignore_index=True), note
    )
