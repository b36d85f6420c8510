"""Figures over all tasks: aggregates, runtime-to-target profiles, quality against cost, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.harness.store.results import Results
from parvibench.statistics import hitting_times, runtime_profile

from .curves import MAX_LINES
from .drawing import (
    AXES,
    GREY,
    INK,
    SIZE,
    Drawing,
    Looks,
    Picture,
    axis_label,
    budget_axes,
    legend,
    log_axes,
    short,
    slug,
    style,
    svg,
)
from .leaderboard import floor
from .numbers import number

#: Targets of the profile, in floors: as good as exact draws, and multiples.
TARGETS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
_BUDGETS = 41


def forest(
    name: str, title: str, table: pd.DataFrame, label: str, note: str, looks: Looks, *, zero: bool = False
) -> list[Drawing]:
    """Points with intervals, one row per method.

    Args:
        name: of the drawing.
        title: what is drawn.
        table: index label; columns ``value`` and, where there are intervals, ``low`` and ``high``; best first.
        label: of the x axis.
        note: how to read it.
        looks: of ``palette``.
        zero: whether to draw a line at zero.
    """
    shown = table[np.isfinite(table["value"].astype(float))].head(2 * MAX_LINES)
    if not len(shown):
        return []
    with style(name):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(SIZE[0], 0.75 + 0.24 * len(shown)))
        for i, (method, row) in enumerate(shown.iterrows()):
            colour, marker = looks[str(method)]
            if "low" in row and math.isfinite(row["high"] - row["low"]):
                axes.plot([row["low"], row["high"]], [i, i], color=colour, linewidth=2)
            axes.plot(row["value"], i, marker, color=colour, markersize=6)
        if zero:
            axes.axvline(0, color=GREY, linewidth=1)
        axes.set_yticks(range(len(shown)), [short(str(m), 40) for m in shown.index])
        axes.invert_yaxis()
        axes.set_xlabel(label)
        figure.tight_layout(pad=0.4)
        text = svg(figure)
        plt.close(figure)
    values = "; ".join(f"{short(str(m))} {number(v)}" for m, v in shown["value"].items())
    return [Drawing(name, title, (Picture(text, f"{title}: {values}"),), table.reset_index(), note)]


def runtime_profiles(
    results: Results, tasks: Sequence[str], labels: Sequence[str], looks: Looks
) -> list[Drawing]:
    """Share of (task, replicate, target) reached within a budget, with bands, for every budget axis.

    Args:
        results: of a run.
        tasks: those with floors.
        labels: methods, best first; the first ``MAX_LINES`` are drawn.
        looks: of ``palette``.
    """
    cells = [c for c in results.cells if c.task in tasks and c.label in labels[:MAX_LINES] and c.values]
    floors = {c.task: known.median for c in cells if (known := floor(c.task, "sliced_w2", c.samples))}
    curves = {c.key: results.store.curve(c.key) for c in cells}
    found = []
    for axis in budget_axes(results.timed):
        times: dict[str, dict[str, NDArray[np.float64]]] = {}
        for cell in cells:
            if cell.task in floors:
                times.setdefault(cell.label, {}).update(
                    hitting_times(
                        curves[cell.key].assign(task=cell.task),
                        {cell.task: floors[cell.task]},
                        {cell.task: cell.n_replicates},
                        metric="sliced_w2",
                        multiples=TARGETS,
                        axis=axis,
                    )
                )
        rows = [c.loc[c["metric"] == "sliced_w2", axis].to_numpy(float) for c in curves.values()]
        spent = np.concatenate([*rows, np.empty(0)])
        spent = spent[spent > 0]
        if not times or not len(spent):
            continue
        budgets = np.geomspace(spent.min(), spent.max(), _BUDGETS) * (1 + 1e-9)
        profiles = {
            k: runtime_profile(times[k], budgets, np.random.default_rng(0)) for k in labels if k in times
        }
        found.append(_profile(axis, profiles, looks))
    return found


def _profile(axis: str, profiles: Mapping[str, pd.DataFrame], looks: Looks) -> Drawing:
    name = slug("runtime-profile", axis)
    with style(name):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=SIZE)
        for label, profile in profiles.items():
            colour, marker = looks[label]
            axes.step(
                profile["budget"], profile["share"], where="post", color=colour, label=short(label), marker=marker,
                markersize=4, markevery=(len(profile) // 8, 10), linewidth=1.4,
            )  # fmt: skip
            axes.fill_between(
                profile["budget"],
                profile["low"],
                profile["high"],
                step="post",
                color=colour,
                alpha=0.1,
                linewidth=0,
            )
        axes.set_ylim(0, 1)
        log_axes(axes, y=False)
        axes.set_xlabel(axis_label(axis))
        axes.set_ylabel("share of targets reached")
        legend(figure, axes)
        text = svg(figure)
        plt.close(figure)
    end = "; ".join(f"{short(k)} {v['share'].iloc[-1]:.0%}" for k, v in profiles.items())
    title = f"how fast targets are reached, {AXES[axis]}"
    note = (
        f"Targets: sliced W2 of {', '.join(f'{t:g}' for t in TARGETS)} floors, on every task in every replicate; times are as "
        "coarse as checkpoints. Higher and further left is better. Bands: 95%, over replicates."
    )
    data = pd.concat([v.assign(label=k) for k, v in profiles.items()], ignore_index=True)
    return Drawing(name, title, (Picture(text, f"{title}; reached at the end: {end}"),), data, note, axis)


def quality_and_cost(
    board: pd.DataFrame,
    aggregates: pd.DataFrame,
    tasks: Sequence[str],
    looks: Looks,
    axes_shown: Sequence[str],
) -> list[Drawing]:
    """Interquartile mean over the floor against cost, with the methods that no other beats in both.

    Args:
        board: of ``leaderboard.table``.
        aggregates: of ``verdicts.aggregates`` over these tasks.
        tasks: the tasks.
        looks: of ``palette``.
        axes_shown: keys of ``AXES``.
    """
    finite = aggregates[np.isfinite(aggregates["value"].astype(float))]
    rows = board[board["task"].isin(tasks) & board["label"].isin(finite.index)]
    found = []
    for axis in axes_shown:
        cost = (
            rows[rows[axis] > 0]
            .groupby("label")[axis]
            .agg(lambda v: math.exp(np.log(v.astype(float)).mean()))
        )
        data = finite.assign(cost=cost).dropna(subset=["cost"]).sort_values(["cost", "value"], kind="stable")
        if (
            len(data) > 1 and data["cost"].max() > 1.05 * data["cost"].min()
        ):  # at one cost the aggregates say all
            data["front"] = data["value"] < data["value"].cummin().shift(fill_value=math.inf)
            found.append(_pareto(axis, data, looks))
    return found


def _pareto(axis: str, data: pd.DataFrame, looks: Looks) -> Drawing:
    name = slug("quality-cost", axis)
    with style(name):
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=SIZE)
        front = data[data["front"]]
        axes.step(
            front["cost"],
            front["value"],
            where="post",
            color=INK,
            linewidth=1,
            linestyle="--",
            label="best at its cost",
        )
        for label, row in data.iterrows():
            colour, marker = looks[str(label)]
            low, high = ([row["value"] - row["low"]], [max(0.0, row["high"] - row["value"])])
            bars = [low, high] if math.isfinite(row["high"]) else None
            axes.errorbar(
                row["cost"],
                row["value"],
                yerr=bars,
                fmt=marker,
                color=colour,
                markersize=7,
                label=short(str(label)),
            )
        axes.axhline(1, color=GREY, linewidth=1)
        axes.margins(0.08)
        log_axes(axes)
        axes.set_xlabel(axis_label(axis))
        axes.set_ylabel("sliced W2 over its floor")
        legend(figure, axes)
        text = svg(figure)
        plt.close(figure)
    title = f"quality against cost, {AXES[axis]}"
    best = ", ".join(short(str(k)) for k in front.index)
    note = (
        "Interquartile mean over the floor [95%] at the end of the run against the geometric mean of the cost over tasks; lower "
        "and further left is better. Grey: as good as exact draws. Dashed: no method is better at this cost."
    )
    columns = ["label", "cost", "value", "low", "high", "front"]
    frame = data.rename_axis("label").reset_index()[columns]
    return Drawing(name, title, (Picture(text, f"{title}; best at their cost: {best}"),), frame, note, axis)
