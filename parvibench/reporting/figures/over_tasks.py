"""Figures over all tasks: the methods to use, aggregates, runtime-to-target profiles, quality against cost, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.harness.store.results import StoredRun
from parvibench.reporting.formatting import number
from parvibench.reporting.tables.leaderboard import floor
from parvibench.reporting.tables.winners import Findings
from parvibench.reporting.text import captions
from parvibench.statistics import hitting_times, runtime_profile

from .anytime_curves import MAX_LINES
from .figure import AXES, GREY, Drawing, Styles, axis_label, budget_axes, long_form, short, slug
from .plots import SIZE, Plot, log_axes
from .vector import INK

#: Targets of the profile, in floors: as good as exact draws, and multiples.
TARGETS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
_BUDGETS = 41
#: Methods of a target beside the one to use.
_OTHERS = 4
#: How a name stands over its mark.
_ABOVE: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 8}


def methods_to_use(findings: Findings, styles: Styles) -> list[Drawing]:
    """Of every target with ratios to the floor the method to use with its interval, and the lowest others."""
    shown = [w for w in findings.answered if "floor" in w.quantity and w.field]
    if not shown:
        return []
    label = "sliced 2-Wasserstein distance over its floor"
    rows: list[tuple[str, str, float, bool]] = []
    with Plot("advice", label, size=(SIZE[0], 0.75 + 0.3 * len(shown))) as plot:
        plot.axes.axvline(1, color=GREY, linewidth=1)
        for i, winner in enumerate(shown):
            others = [(name, value) for name, value in winner.field if name != winner.label][:_OTHERS]
            rows += [(winner.where, name, value, False) for name, value in others]
            for name, median in reversed(others):
                colour, marker, _ = styles[name]
                plot.mark(name, *plot.axes.plot(median, i, marker, color=colour, markersize=4, alpha=0.6))
            if not winner.label:
                lowest = min(value for _, value in others)
                plot.axes.annotate("none has converged", (lowest, i), **_ABOVE, color=GREY)
                continue
            value = winner.value
            rows.append((winner.where, winner.label, value.value, True))
            colour, marker, _ = styles[winner.label]
            line = plot.axes.plot([value.low, value.high], [i, i], color=colour, linewidth=1.5)
            plot.mark(winner.label, *line, *plot.axes.plot(value.value, i, marker, color=colour, markersize=8))
            plot.axes.annotate(short(winner.label), (value.value, i), **_ABOVE)
        plot.axes.set_ylim(len(shown) - 0.5, -0.8)
        plot.axes.margins(x=0.12)
        log_axes(plot.axes, y=False)
        plot.axes.set_yticks(range(len(shown)), [short(w.where, 24) for w in shown])
    data = pd.DataFrame(rows, columns=["target", "label", "floor_ratio", "named"])
    named = [(f"{w.where}:", f"{w.label or 'none'} {number(w.value.value) if w.label else ''}") for w in shown]
    title = "recommended methods by target"
    return [plot.drawing(title, captions.listed(title, named), data, captions.ADVICE.format(others=_OTHERS))]


def forest(
    name: str, title: str, table: pd.DataFrame, label: str, note: str, styles: Styles, *, zero: bool = False
) -> list[Drawing]:
    """Points with intervals, one row per method, best first, and a line at ``zero`` if wanted.

    ``table`` has the index label and columns ``value`` and, where there are intervals, ``low`` and ``high``; ``label``
    is of the x axis.
    """
    shown = table[np.isfinite(table["value"].astype(float))].head(2 * MAX_LINES)
    if not len(shown):
        return []
    with Plot(name, label, size=(SIZE[0], 0.75 + 0.24 * len(shown))) as plot:
        for i, (method, row) in enumerate(shown.iterrows()):
            colour, marker, _ = styles[str(method)]
            drawn = plot.axes.plot(row["value"], i, marker, color=colour, markersize=6)
            if "low" in row and math.isfinite(row["high"] - row["low"]):
                drawn += plot.axes.plot([row["low"], row["high"]], [i, i], color=colour, linewidth=2)
            plot.mark(str(method), *drawn)
        if zero:
            plot.axes.axvline(0, color=GREY, linewidth=1)
        plot.axes.set_yticks(range(len(shown)), [short(str(m), 40) for m in shown.index])
        plot.axes.invert_yaxis()
    values = [(short(str(m)), number(v)) for m, v in shown["value"].items()]
    return [plot.drawing(title, captions.listed(title, values), table.reset_index(), note)]


def runtime_profiles(results: StoredRun, tasks: Sequence[str], labels: Sequence[str], styles: Styles) -> list[Drawing]:
    """Share of (task, replicate, target) reached within a budget, with bands, for every budget axis.

    Of ``tasks``, those with floors; of ``labels``, best first, the first ``MAX_LINES``.
    """
    cells = [c for c in results.cells if c.task in tasks and c.label in labels[:MAX_LINES] and c.values]
    floors = {c.task: known.median for c in cells if (known := floor(c.task, "sliced_w2", c.samples))}
    curves = {c.key: results.curve(c) for c in cells}
    found = []
    for axis in budget_axes(results.timed):
        times: dict[str, dict[str, NDArray[np.float64]]] = {}
        for cell in (c for c in cells if c.task in floors):
            task, curve = cell.task, curves[cell.key].assign(task=cell.task)
            reached = hitting_times(
                curve, {task: floors[task]}, {task: cell.n_replicates}, metric="sliced_w2", multiples=TARGETS, axis=axis
            )  # fmt: skip
            times.setdefault(cell.label, {}).update(reached)
        rows = [c.loc[c["metric"] == "sliced_w2", axis].to_numpy(float) for c in curves.values()]
        spent = np.concatenate([*rows, np.empty(0)])
        spent = spent[spent > 0]
        if not times or not len(spent):
            continue
        budgets = np.geomspace(spent.min(), spent.max(), _BUDGETS) * (1 + 1e-9)
        shown = {label: times[label] for label in labels if label in times}
        profiles = {k: runtime_profile(v, budgets, np.random.default_rng(0)) for k, v in shown.items()}
        found.append(_profile(axis, profiles, styles))
    return found


def _profile(axis: str, profiles: Mapping[str, pd.DataFrame], styles: Styles) -> Drawing:
    with Plot(slug("runtime-profile", axis), axis_label(axis), "share of targets reached") as plot:
        for label, profile in profiles.items():
            colour, marker, _ = styles[label]
            x, y, low, high = (profile[c] for c in ("budget", "share", "low", "high"))
            (drawn,) = plot.axes.step(
                x, y, where="post", color=colour, label=short(label), marker=marker, markersize=4,
                markevery=(len(profile) // 8, 10), linewidth=1.4,
            )  # fmt: skip
            band = plot.axes.fill_between(x, low, high, step="post", color=colour, alpha=0.1, linewidth=0)
            plot.mark(label, drawn, band, shown=short(label))
        plot.axes.set_ylim(0, 1)
        log_axes(plot.axes, y=False)
    end = [(short(k), f"{v['share'].iloc[-1]:.0%}") for k, v in profiles.items()]
    title = f"share of targets reached over {AXES[axis]}"
    alt = captions.listed(title, end, "; reached at the end: ")
    return plot.drawing(
        title, alt, long_form(profiles), captions.PROFILE.format(targets=", ".join(f"{t:g}" for t in TARGETS)), axis
    )


def quality_and_cost(
    board: pd.DataFrame, aggregates: pd.DataFrame, tasks: Sequence[str], styles: Styles, axes_shown: Sequence[str]
) -> list[Drawing]:  # fmt: skip
    """Interquartile mean over the floor against cost, and the methods that no other beats in both."""
    finite = aggregates[np.isfinite(aggregates["value"].astype(float))]
    rows = board[board["task"].isin(tasks) & board["label"].isin(finite.index)]
    found = []
    for axis in axes_shown:
        costs = rows[rows[axis] > 0].groupby("label")[axis]
        cost = costs.agg(lambda v: math.exp(np.log(v.astype(float)).mean()))
        data = finite.assign(cost=cost).dropna(subset=["cost"]).sort_values(["cost", "value"], kind="stable")
        # At equal costs the aggregates already say it all.
        if len(data) > 1 and data["cost"].max() > 1.05 * data["cost"].min():
            data["front"] = data["value"] < data["value"].cummin().shift(fill_value=math.inf)
            found.append(_pareto(axis, data, styles))
    return found


def _pareto(axis: str, data: pd.DataFrame, styles: Styles) -> Drawing:
    front = data[data["front"]]
    with Plot(slug("quality-cost", axis), axis_label(axis), "sliced 2-Wasserstein distance over its floor") as plot:
        plot.axes.step(
            front["cost"], front["value"], where="post", color=INK, linewidth=1, linestyle="--", label="best at its cost"
        )  # fmt: skip
        for label, row in data.iterrows():
            colour, marker, _ = styles[str(label)]
            ends = [[row["value"] - row["low"]], [max(0.0, row["high"] - row["value"])]]
            bars = ends if math.isfinite(row["high"]) else None
            drawn, _, ends_of_bars = plot.axes.errorbar(
                row["cost"], row["value"], yerr=bars, fmt=marker, color=colour, markersize=7, label=short(str(label))
            )  # fmt: skip
            plot.mark(str(label), drawn, *ends_of_bars, shown=short(str(label)))
        plot.axes.axhline(1, color=GREY, linewidth=1)
        plot.axes.margins(0.08)
        log_axes(plot.axes)
    title = f"quality against cost, {AXES[axis]}"
    best = ", ".join(short(str(k)) for k in front.index)
    frame = data.rename_axis("label").reset_index()[["label", "cost", "value", "low", "high", "front"]]
    return plot.drawing(title, f"{title}; best at their cost: {best}", frame, captions.PARETO, axis)
