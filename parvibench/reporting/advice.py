"""The page's first answer: for every kind of target, the method to use, with its margin and cost, and one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from parvibench.core import registry

from . import leaderboard as lb
from .figures.figure import GREY, SIZE, Drawing, Plot, Styles, log_axes, short
from .formatting import interval, number
from .winners import Findings, Winner

#: Methods of a target in the picture beside the one to use.
_OTHERS = 4
#: How a name stands over its mark.
_ABOVE: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 8}


@dataclass(frozen=True)
class Advice:
    """What to use for one kind of target."""

    target: str  #: a group of tasks
    tasks: str  #: those it rests on
    method: str  #: label, or empty where none can be recommended
    full_name: str  #: of the method
    link: str  #: fragment of the method's section
    result: str  #: with interval and unit
    verb: str  #: how far it is recommended
    caution: str  #: what speaks against it, or empty
    sure: str  #: the outcome of the tests
    cost: str  #: per replicate


def answers(findings: Findings, links: Mapping[str, str]) -> list[Advice]:
    """One answer for every group of tasks; of groups that nothing aggregates, one for every task.

    Args:
        findings: of the run.
        links: label -> fragment of its section.
    """
    names = full_names(findings)
    return [_of(winner, names, links) for winner in _asked(findings)]


def _asked(findings: Findings) -> list[Winner]:
    """The groups and tasks that are answered for."""
    groups = {w.where: w for w in findings.groups}
    asked = (groups.get(lb.task_group(w.where), w) for w in findings.tasks)
    return list({w.where: w for w in asked}.values())


def full_names(findings: Findings) -> dict[str, str]:
    """Label -> what the method is, in words; labels of plug-ins are left out."""
    rows = registry.algorithms()
    return {c.label: rows[c.algorithm].summary for c in findings.results.cells if c.algorithm in rows}


def _of(winner: Winner, names: Mapping[str, str], links: Mapping[str, str]) -> Advice:
    value = winner.value
    unit = "× floor" if "floor" in winner.quantity else winner.quantity
    result = f"{number(value.value)} {unit} [{interval(value.low, value.high)}]" if winner.label else ""
    spent = winner.score_evaluations
    cost = (
        f"{spent:,.0f} score evaluations, {number(winner.seconds)} s" if math.isfinite(spent) and winner.label else ""
    )
    link, name = links.get(winner.label, ""), names.get(winner.label, "")
    verb, caution = _recommended(winner)
    tasks = ", ".join(winner.tasks)
    return Advice(winner.where, tasks, winner.label, name, link, result, verb, caution, winner.confidence, cost)


def _recommended(winner: Winner) -> tuple[str, str]:
    """How far a method is recommended, and what speaks against it."""
    near = winner.indistinguishable or "floor" not in winner.quantity or winner.value.value <= 1
    caution = "" if near else "Exact draws are told from its samples: with more budget another may be better."
    if winner.unfinished:
        return "the best of those that have converged is", caution
    return "use" if near else "the best within this budget is", caution


def picture(findings: Findings, styles: Styles) -> list[Drawing]:
    """The answers with a ratio to the floor: the method to use with its interval, and the lowest others."""
    shown = [w for w in _asked(findings) if "floor" in w.quantity and w.field]
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
    found = "; ".join(
        f"{w.where}: {w.label or 'none'} {number(w.value.value) if w.label else ''}".strip() for w in shown
    )
    note = (
        f"Large and named: the method to use, with its 95% interval; small: of the others the {_OTHERS} with the lowest "
        "ratios, converged or not. Grey line: exact draws."
    )
    return [plot.drawing("the methods to use, by target", f"the methods to use, by target: {found}", data, note)]
