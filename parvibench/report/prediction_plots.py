"""What networks predict: calibration of all methods, and intervals of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.core.task import PredictiveData
from parvibench.harness.store.results import Results

from .drawing import GREY, INK, SIZE, Drawing, Looks, Picture, legend, short, slug, style, svg
from .leaderboard import is_anchor

#: Replicates (data splits) that are drawn.
SPLITS = 5
_LEVELS = np.linspace(0.05, 0.95, 19)
_ROWS = 40


def predictions(results: Results, task: str, looks: Looks, labels: Sequence[str]) -> list[Drawing]:
    """Calibration of the predictive intervals of all methods, and the leader's intervals on some test rows.

    Args:
        results: of a run.
        task: its task.
        looks: of ``palette``.
        labels: methods, best first.

    Returns:
        None where the task predicts nothing or its data are not at hand.
    """
    held_out = _held_out(task)
    if held_out is None:
        return []
    levels, leader = {}, None
    for cell in results.of_task(task, labels):
        stored = results.samples(cell)
        if stored is None or not np.isfinite(stored[:SPLITS]).all():
            continue
        found = [_predict(data, stored[r]) for r, data in enumerate(held_out[: len(stored)])]
        pit = torch.cat([_distribution(y, means, sds) for y, means, sds in found])
        levels[cell.label] = [float(((2 * pit - 1).abs() <= level).double().mean()) for level in _LEVELS]
        if leader is None and not is_anchor(cell):
            leader = (cell.label, *found[0])
    drawings = [_calibration(task, levels, looks)] if levels else []
    return drawings if leader is None else [*drawings, _intervals(task, *leader, looks)]


def _held_out(task: str) -> list[PredictiveData] | None:
    """Test data of the first splits, or None."""
    if task not in registry.tasks():
        return None
    try:
        known = registry.load_task(task)
        found = [known.predictive([r], "cpu", torch.float64) for r in range(SPLITS)]
    except ParVIBenchError:  # the data are not at hand, or a plug-in is broken
        return None
    return [data for data in found if data is not None] or None


def _predict(data: PredictiveData, samples: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Responses (T,), means (n, T) and noise sds (n,) of one split."""
    means, sds = data.predict(torch.from_numpy(samples[None].astype(np.float64)))
    return data.y[0].double(), means[0].double(), sds[0].double()


def _distribution(y: Tensor, means: Tensor, sds: Tensor) -> Tensor:
    """The predictive mixture's distribution function at y, (T,)."""
    return torch.special.ndtr((y - means) / sds[:, None]).mean(0)


def _quantile(level: float, means: Tensor, sds: Tensor) -> Tensor:
    """Quantiles of the mixtures, (T,), by bisection."""
    low, high = (means - 10 * sds[:, None]).amin(0), (means + 10 * sds[:, None]).amax(0)
    for _ in range(60):
        middle = (low + high) / 2
        below = _distribution(middle, means, sds) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def _calibration(task: str, levels: Mapping[str, list[float]], looks: Looks) -> Drawing:
    with style(f"{task}/calibration"):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=SIZE)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="calibrated")
        for label, found in levels.items():
            colour, marker = looks[label]
            line = {"linestyle": marker} if marker in ("--", ":") else {"marker": marker, "markersize": 3}
            axes.plot(
                _LEVELS,
                found,
                color=INK if marker in ("--", ":") else colour,
                linewidth=1.3,
                label=short(label),
                **line,
            )
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.set_xlabel("probability of the central predictive interval")
        axes.set_ylabel("share of test rows inside")
        legend(figure, axes)
        text = svg(figure)
        plt.close(figure)
    middle = "; ".join(f"{short(k)} {v[len(v) // 2]:.2f}" for k, v in levels.items())
    title = "calibration of predictive intervals"
    note = f"Below the line: intervals too narrow; above: too wide. Test rows of the first {SPLITS} splits."
    data = pd.DataFrame(
        [(k, p, v) for k, found in levels.items() for p, v in zip(_LEVELS, found, strict=True)],
        columns=["label", "probability", "inside"],
    )
    return Drawing(
        slug("calibration", task),
        title,
        (Picture(text, f"{title} on {short(task)}; inside the 50% interval: {middle}"),),
        data,
        note,
    )


def _intervals(task: str, label: str, y: Tensor, means: Tensor, sds: Tensor, looks: Looks) -> Drawing:
    shown = torch.linspace(0, len(y) - 1, min(_ROWS, len(y))).long()
    order = shown[means.mean(0)[shown].argsort()]
    y, means = y[order], means[:, order]
    centre, low, high = means.mean(0), _quantile(0.025, means, sds), _quantile(0.975, means, sds)
    colour = looks[label][0]
    with style(f"{task}/intervals"):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=SIZE)
        at = np.arange(len(y))
        axes.vlines(at, low, high, color=colour, linewidth=2.5, alpha=0.5, label="95% predictive interval")
        axes.plot(at, centre, "_", color=colour, markersize=6, label="predictive mean")
        axes.plot(at, y, "o", color=INK, markersize=3, label="observed")
        axes.set_xlabel("test rows, by predicted mean")
        axes.set_ylabel("response")
        legend(figure, axes)
        text = svg(figure)
        plt.close(figure)
    inside = int(((y >= low) & (y <= high)).sum())
    title = f"predictions of {short(label)}"
    alt = f"{title} on {len(y)} test rows of {short(task)}; {inside} lie in their 95% interval"
    data = pd.DataFrame({"observed": y, "mean": centre, "low": low, "high": high})
    return Drawing(
        slug("predictions", task),
        title,
        (Picture(text, alt),),
        data,
        f"{inside} of {len(y)} rows of the first split lie in their interval.",
    )
