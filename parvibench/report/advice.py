"""The page's first answer: for every kind of target, the method to use, with its margin and cost, and one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from parvibench.core import registry

from . import leaderboard as lb
from .figures.figure import GREY, SIZE, Drawing, Plot, Styles, log_axes, short
from .formatting import interval, number
from .winners import Findings, Winner

#: Methods of a group that the picture names: the leader and those after it.
_NAMED = 5


@dataclass(frozen=True)
class Advice:
    """What to use for one kind of target."""

    target: str  #: a group of tasks
    tasks: str  #: those it rests on
    method: str  #: label, or empty where none can be recommended
    full_name: str  #: of the method
    link: str  #: fragment of the method's section
    result: str  #: with interval and unit
    sure: str  #: the outcome of the tests
    cost: str  #: per replicate


def answers(findings: Findings, links: Mapping[str, str]) -> list[Advice]:
    """One answer for every group of tasks; of groups that nothing aggregates, one for every task.

    Args:
        findings: of the run.
        links: label -> fragment of its section.
    """
    names = full_names(findings)
    groups = {w.where: w for w in findings.groups}
    chosen: dict[str, tuple[str, Winner]] = {}
    for winner in findings.tasks:
        group = lb.task_group(winner.where)
        if group in groups:
            chosen.setdefault(group, (group, groups[group]))
        else:
            chosen[winner.where] = (winner.where, winner)
    return [_of(title, winner, names, links) for title, winner in chosen.values()]


def full_names(findings: Findings) -> dict[str, str]:
    """Label -> what the method is, in words; labels of plug-ins are left out."""
    rows = registry.algorithms()
    return {c.label: rows[c.algorithm].summary for c in findings.results.cells if c.algorithm in rows}


def _of(title: str, winner: Winner, names: Mapping[str, str], links: Mapping[str, str]) -> Advice:
    value = winner.value
    unit = "× floor" if "floor" in winner.quantity else winner.quantity
    result = f"{number(value.value)} {unit} [{interval(value.low, value.high)}]" if winner.label else ""
    spent = winner.score_evaluations
    cost = (
        f"{spent:,.0f} score evaluations, {number(winner.seconds)} s" if math.isfinite(spent) and winner.label else ""
    )
    link, name = links.get(winner.label, ""), names.get(winner.label, "")
    return Advice(title, ", ".join(winner.tasks), winner.label, name, link, result, winner.confidence, cost)


def picture(findings: Findings, styles: Styles) -> list[Drawing]:
    """The leading methods of every target with a ratio to the floor, each with its interval; 1 is as good as exact draws."""
    board = findings.board
    if not len(board):
        return []
    ranked = board[~board["anchor"].astype(bool) & board["floor_ratio"].notna() & board["rank"].notna()]
    # The best has converged; others may have lower numbers.
    ordered = ranked.sort_values(["best", "rank"], ascending=[False, True], kind="stable")
    best = {str(t): ordered[ordered["task"] == t].head(_NAMED) for t in dict.fromkeys(ranked["task"])}
    if not best:
        return []
    label = "sliced 2-Wasserstein distance over its floor"
    with Plot("advice", label, size=(SIZE[0], 0.75 + 0.3 * len(best))) as plot:
        plot.axes.axvline(1, color=GREY, linewidth=1)
        for i, rows in enumerate(best.values()):
            for place, (_, row) in reversed(list(enumerate(rows.iterrows()))):
                colour, marker, _ = styles[str(row["label"])]
                drawn = plot.axes.plot(
                    row["floor_ratio"], i, marker, color=colour, markersize=4 if place else 8, alpha=0.6 if place else 1
                )
                plot.mark(str(row["label"]), *drawn)
            first = rows.iloc[0]
            plot.axes.annotate(
                short(str(first["label"])),
                (first["floor_ratio"], i),
                (0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        plot.axes.set_ylim(len(best) - 0.5, -0.8)
        plot.axes.margins(x=0.12)
        log_axes(plot.axes, y=False)
        plot.axes.set_yticks(range(len(best)), [short(t, 24) for t in best])
    data = board.loc[[at for rows in best.values() for at in rows.index], ["task", "label", "floor_ratio", "rank"]]
    found = "; ".join(f"{t}: {rows.iloc[0]['label']} {number(rows.iloc[0]['floor_ratio'])}" for t, rows in best.items())
    note = (
        f"Large and named: the best method of each target, of those that have converged where any has; small: the {_NAMED - 1} after "
        "it. Grey line: exact draws."
    )
    return [plot.drawing("the best methods by target", f"the best methods by target: {found}", data, note)]
