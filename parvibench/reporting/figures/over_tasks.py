"""Figures over all tasks: performance profiles, aggregates, quality against cost, ranks."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.harness.marks.convergence import LOG_SCALE
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.formatting import number
from parvibench.reporting.tables.leaderboard import higher_is_better, is_anchor
from parvibench.reporting.text import captions
from parvibench.statistics import hitting_times, runtime_profile

from .curves import MAX_LINES
from .figure import AXES, GREY, Drawing, Styles, axis_label, budget_axes, long_form, short, slug
from .plots import SIZE, log_axes, plotted
from .vector import INK

#: Factor of the best method's final median within which a task counts as solved; of log likelihoods, nats above it.
FACTOR, NATS = 1.5, 0.1
_BUDGETS = 41


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
    with plotted(name, label, size=(SIZE[0], 0.75 + 0.24 * len(shown))) as plot:
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


def performance_profiles(results: StoredRun, board: pd.DataFrame, styles: Styles) -> list[Drawing]:
    """Share of tasks solved within a budget, with bands, for every budget axis; the best ``MAX_LINES`` methods.

    A replicate solves a task when its value comes within ``FACTOR`` of the lowest final median of all methods, or of the
    floor where that is higher; failures and methods that did not run solve nothing.
    """
    cells = [c for c in results.cells if not is_anchor(c) and c.values]
    limits, metrics = _solved_limits(board), dict(board[["task", "metric"]].drop_duplicates().to_numpy())
    nothing = {task: np.full((1, 1), math.inf) for task in limits}
    curves = [(c, results.curve_grid(c).metric(metrics[c.task])) for c in cells if c.task in limits]
    found = []
    for axis in budget_axes(results.timed):
        times: dict[str, dict[str, NDArray[np.float64]]] = {}
        for cell, curve in curves:
            sign = -1 if higher_is_better(metrics[cell.task]) else 1
            reached = hitting_times(sign * curve.values, curve.spent[axis], [limits[cell.task]], cell.n_replicates)
            times.setdefault(cell.label, dict(nothing))[cell.task] = reached
        spent = [s for _, c in curves for s in c.spent[axis][c.measured] if s > 0]
        if not spent:
            continue
        budgets = np.geomspace(min(spent), max(spent), _BUDGETS) * (1 + 1e-9)
        profiles = {k: runtime_profile(v, budgets, seed=0) for k, v in times.items()}
        best = sorted(profiles.items(), key=lambda of: (-of[1]["share"].iloc[-1], -of[1]["share"].mean()))
        found.append(_profile(axis, dict(best[:MAX_LINES]), styles))
    return found


def _solved_limits(board: pd.DataFrame) -> dict[str, float]:
    """Task -> the value, signed so that lower is better, at which it counts as solved; tasks without a result are left out."""
    rows = board[board["rank"].notna() & np.isfinite(board["median"].astype(float))].drop_duplicates("task")
    found = {}
    for row in rows.to_dict("records"):
        best = float(row["median"]) * (-1 if higher_is_better(row["metric"]) else 1)
        floor = row["median"] / row["floor_ratio"] if row["floor_ratio"] > 0 else -math.inf
        within = max(best, floor) * FACTOR if best > 0 else best / FACTOR
        found[row["task"]] = best + NATS if row["metric"] in LOG_SCALE else within
    return found


def _profile(axis: str, profiles: Mapping[str, pd.DataFrame], styles: Styles) -> Drawing:
    with plotted(slug("performance-profile", axis), axis_label(axis), "share of tasks solved") as plot:
        for label, profile in profiles.items():
            colour, marker, _ = styles[label]
            x, y, low, high = (profile[c] for c in ("budget", "share", "low", "high"))
            (drawn,) = plot.axes.step(
                x, y, where="post", color=colour, label=short(label), marker=marker, markersize=4,
                markevery=(len(profile) // 8, 10), linewidth=1.4,
            )  # fmt: skip
            band = plot.axes.fill_between(x, low, high, step="post", color=colour, alpha=0.1, linewidth=0)
            plot.mark(label, drawn, band)
        plot.axes.set_ylim(0, 1)
        log_axes(plot.axes, y=False)
    end = [(short(k), f"{v['share'].iloc[-1]:.0%}") for k, v in profiles.items()]
    title = f"share of tasks solved over {AXES[axis]}"
    alt = captions.listed(title, end, "; solved at the end: ")
    note = captions.PROFILE.format(factor=f"{FACTOR:g}", nats=f"{NATS:g}")
    return plot.drawing(title, alt, long_form(profiles), note, axis)


def quality_and_cost(
    board: pd.DataFrame, aggregates: pd.DataFrame, tasks: Sequence[str], styles: Styles, axes: Mapping[str, str]
) -> list[Drawing]:  # fmt: skip
    """Interquartile mean over the floor against cost, and the methods that no other beats in both."""
    finite = aggregates[np.isfinite(aggregates["value"].astype(float))]
    rows = board[board["task"].isin(tasks) & board["label"].isin(finite.index)]
    found = []
    for axis, title in axes.items():
        costs = rows[rows[axis] > 0].groupby("label")[axis]
        cost = costs.agg(lambda v: math.exp(np.log(v.astype(float)).mean()))
        data = finite.assign(cost=cost).dropna(subset=["cost"]).sort_values(["cost", "value"], kind="stable")
        # At equal costs the aggregates already say it all.
        if len(data) > 1 and data["cost"].max() > 1.05 * data["cost"].min():
            data["front"] = data["value"] < data["value"].cummin().shift(fill_value=math.inf)
            found.append(_pareto(axis, title, data, styles))
    return found


def _pareto(axis: str, of: str, data: pd.DataFrame, styles: Styles) -> Drawing:
    front = data[data["front"]]
    with plotted(slug("quality-cost", axis), axis_label(axis), "sliced 2-Wasserstein distance over its floor") as plot:
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
            plot.mark(str(label), drawn, *ends_of_bars)
        plot.axes.axhline(1, color=GREY, linewidth=1)
        plot.axes.margins(0.08)
        log_axes(plot.axes)
    title = f"quality against cost, {of}"
    best = ", ".join(short(str(k)) for k in front.index)
    frame = data.rename_axis("label").reset_index()[["label", "cost", "value", "low", "high", "front"]]
    return plot.drawing(title, f"{title}; best at their cost: {best}", frame, captions.PARETO, axis)
