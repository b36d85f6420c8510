"""Figures over all tasks: performance profiles, aggregates, quality against cost, ranks."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from parvibench.reporting.facts.board import Group
from parvibench.reporting.facts.courses import profiles
from parvibench.reporting.facts.recommended import FACTOR, NATS
from parvibench.reporting.facts.run import AXES, Facts
from parvibench.reporting.formatting import number
from parvibench.reporting.text import captions

from .curves import MAX_LINES
from .figure import GREY, Drawing, Styles, axis_label, axis_name, distinct, long_form, short, slug
from .plots import SIZE, log_axes, plotted
from .vector import INK


def forest(name: str, title: str, table: pd.DataFrame, label: str, note: str, styles: Styles) -> list[Drawing]:
    """Points with intervals, one row per method, best first.

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
        plot.axes.set_yticks(range(len(shown)), [short(str(m), 40) for m in shown.index])
        plot.axes.invert_yaxis()
    values = [(short(str(m)), number(v)) for m, v in shown["value"].items()]
    return [plot.drawing(title, captions.listed(title, values), table.reset_index(), note)]


def performance_profiles(facts: Facts, styles: Styles) -> list[Drawing]:
    """Share of tasks solved within a budget, with bands, for every budget axis: of the methods that are recommended, then of the best."""
    named = (m.label for i in range(3) for kind in facts.recommended[""] for m in kind.methods[i : i + 1])
    first, found = list(dict.fromkeys(named)), []
    for axis in facts.axes:
        if drawn := profiles(facts, facts.board, axis, first, MAX_LINES):
            found.append(_profile(axis, drawn, distinct(styles, drawn)))
    return found


def _profile(axis: str, profiles: Mapping[str, pd.DataFrame], styles: Styles) -> Drawing:
    with plotted(slug("performance-profile", axis), axis_label(axis), "share of tasks solved") as plot:
        for label, profile in profiles.items():
            colour, marker, _ = styles[label]
            x, y, low, high = (profile[c] for c in ("budget", "share", "low", "high"))
            (drawn,) = plot.axes.step(
                x, y, where="post", color=colour, marker=marker, markersize=4, markevery=(len(profile) // 8, 10), linewidth=1.4
            )  # fmt: skip
            band = plot.axes.fill_between(x, low, high, step="post", color=colour, alpha=0.1, linewidth=0)
            plot.mark(label, drawn, band)
            plot.name(label, y.iloc[-1], styles[label])
        plot.axes.set_ylim(0, 1.02)
        log_axes(plot.axes, y=False)
    end = [(short(k), f"{v['share'].iloc[-1]:.0%}") for k, v in profiles.items()]
    title = f"share of tasks solved over {AXES[axis]}"
    alt = captions.listed(title, end, "; solved at the end: ")
    note = captions.PROFILE.format(factor=f"{FACTOR:g}", nats=f"{NATS:g}")
    return plot.drawing(title, alt, long_form(profiles), note, axis)


def over_floor(metric: str) -> str:
    """The axis of a metric over its floor, which has no unit."""
    return f"{axis_name(metric).partition(' (')[0]} over its floor"


def quality_and_cost(
    facts: Facts, aggregates: pd.DataFrame, group: Group, styles: Styles, own: Sequence[str]
) -> list[Drawing]:
    """Interquartile mean over the floor against cost, and the methods that no other beats in both; ``own``: added to the names."""
    finite = aggregates[np.isfinite(aggregates["value"].astype(float))]
    rows = facts.board[facts.board["task"].isin(group.tasks) & facts.board["label"].isin(finite.index)]
    found = []
    for axis, title in facts.cost_axes.items():
        costs = rows[rows[axis] > 0].groupby("label")[axis]
        cost = costs.agg(lambda v: math.exp(np.log(v.astype(float)).mean()))
        data = finite.assign(cost=cost).dropna(subset=["cost"]).sort_values(["cost", "value"], kind="stable")
        # At equal costs the aggregates already say it all.
        if len(data) > 1 and data["cost"].max() > 1.05 * data["cost"].min():
            data["front"] = data["value"] < data["value"].cummin().shift(fill_value=math.inf)
            found.append(_pareto(slug("quality-cost", axis, *own), axis, title, group.metric, data, styles))
    return found


def _pareto(name: str, axis: str, of: str, metric: str, data: pd.DataFrame, styles: Styles) -> Drawing:
    front = data[data["front"]]
    styles = distinct(styles, map(str, front.index))
    with plotted(name, axis_label(axis), over_floor(metric)) as plot:
        plot.axes.step(front["cost"], front["value"], where="post", color=INK, linewidth=1, linestyle="--")
        for label, row in data.sort_values("front", kind="stable").iterrows():
            colour, marker, _ = styles[str(label)]
            colour = colour if row["front"] else GREY
            (drawn,) = plot.axes.plot(
                row["cost"], row["value"], marker, color=colour, markersize=7 if row["front"] else 4
            )
            plot.mark(str(label), drawn)
            if row["front"]:
                if math.isfinite(row["high"]):
                    plot.mark(str(label), *plot.axes.plot([row["cost"]] * 2, [row["low"], row["high"]], color=colour))
                plot.axes.annotate(
                    short(str(label)), (row["cost"], row["value"]), (5, 4), textcoords="offset points", fontsize=8
                )
        plot.axes.axhline(1, color=GREY, linewidth=1)
        plot.axes.margins(0.08)
        log_axes(plot.axes)
    title = f"quality against cost, {of}"
    best = ", ".join(short(str(k)) for k in front.index)
    frame = data.rename_axis("label").reset_index()[["label", "cost", "value", "low", "high", "front"]]
    return plot.drawing(title, f"{title}; best at their cost: {best}", frame, captions.PARETO, axis)
