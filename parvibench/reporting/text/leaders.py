"""The best method of a target: who leads, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from parvibench.reporting.formatting import interval, name, named, number

#: Most rivals that a sentence names.
_NAMED = 3
#: Unit of ratios to the floor.
FLOORS = "× floor"
NO_RESULT = "no method has a finite result"
NOBODY_LEADS = "On {where}, {why}."
NONE_ON_ALL = "no method has converged on all of these targets"


def confidence(*, second: str, finite: int, beaten: int, rivals: Sequence[str], unfinished: str, lost: int, replicates: int) -> str:  # fmt: skip
    """Outcome of the tests of a leader against the others, and whether it lost replicates.

    Args:
        second: the next method, or empty.
        finite: number of methods with a finite result, converged or not.
        beaten: number of methods that it is significantly better than.
        rivals: methods that it is not significantly better than.
        unfinished: of ``better_but_unfinished``.
        lost: its diverged replicates.
        replicates: all of its replicates.
    """
    if not second:
        contest = f"the only method with a {'converged ' if finite > 1 else ''}result"
    elif not rivals:
        contest = f"significantly better than {'all others' if beaten > 1 else 'the other'}"
    else:
        contest = f"best, but not significantly better than {named(rivals, _NAMED)}"
    failed = f"; {lost} of its {replicates} replicates diverged" if lost else ""
    return f"{contest}{unfinished}{failed}"


def leads(
    where: str, label: str, quantity: str, value: tuple[float, float, float], behind: str, sure: str, *, exact: bool
) -> str:  # fmt: skip
    """Who leads on a target: ``value`` with its interval, ``behind`` of ``distance``, ``sure`` of ``confidence``."""
    result = f"{number(value[0])} [{interval(*value[1:])}]"
    behind = f", {behind}" if behind else ""
    verdict = "; its samples are indistinguishable from exact draws" if exact else ""
    return f"On {name(where)}, {name(label)} leads with {quantity} {result}{behind}: {sure}{verdict}."


def none_converged(lowest: str, marks: str) -> str:
    """Why a target has no best method although there are results."""
    so_far = f"lowest so far: {name(lowest)}, {marks or 'not ranked'}"
    return f"no method has converged to a better value than the initial distribution ({so_far})"


def better_but_unfinished(ahead: Sequence[tuple[str, str]]) -> str:
    """Methods with better numbers that do not lead, each with its marks."""
    return "".join(f"; {name(label)} has a better value but is {marks}" for label, marks in ahead[:_NAMED])


def margin(best: float, second: float, *, relative: bool) -> str:
    """Difference of the first value from the second, before the name of the second."""
    if best == second:
        return "tied with"
    if relative:
        return f"{100 * (1 - best / second):.0f}% below" if best / second > 0.01 else "far below"
    return f"{number(abs(second - best))} {'below' if best < second else 'above'}"


def distance(margin: str, second: str) -> str:
    """A ``margin`` with the name of the second; empty without one."""
    return f"{margin} {name(second)}" if margin else ""


def result(value: tuple[float, float, float], unit: str) -> str:
    """A value with its unit and interval."""
    shown, ends = number(value[0]), interval(*value[1:])
    return f"{shown} {unit} [{ends}]" if unit == FLOORS else f"{unit} {shown} [{ends}]"


def cost(score_evaluations: float, seconds: float) -> str:
    """Cost of a replicate."""
    return f"{score_evaluations:,.0f} score evaluations, {number(seconds)} s"


def recommendation(*, near: bool, unfinished: bool) -> tuple[str, str]:
    """How far a leader is recommended, and what speaks against it.

    Args:
        near: whether its samples are as good as exact draws, as far as can be seen.
        unfinished: whether methods with better numbers have not converged.
    """
    caution = (
        ""
        if near
        else "Its samples are distinguishable from exact draws; with a larger budget another method may be better."
    )
    if unfinished:
        return "the best converged method is", caution
    return "use" if near else "the best method within this budget is", caution
