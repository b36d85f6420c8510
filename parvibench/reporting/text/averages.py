"""Results over tasks: average ranks, Friedman's test, aggregates, paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from parvibench.reporting.formatting import count, interval, join, name, number

#: Share of resamples in which a method must come first for its place to be claimed.
CLAIMED = 0.95
#: Rivals for a first place are named from this share on, at most so many.
_RIVAL, _NAMED = 0.05, 3
ONLY_ONE = "{label} is the only ranked method."
LOWEST_UNFINISHED = "Over {tasks}, {label} has the lowest interquartile mean but has not converged on all of them."
#: Caption of the table of paired differences; the tasks an average rank rests on.
DIFFERENCES = "paired differences in {metric} from {leader} (above 0: worse), corrected for overlapping splits"
COMMON_RANK = "ranked on {n} of {of} tasks, {failed} without a result"


def finished(unfinished: int, judged: int) -> str:
    """How many cells have converged, where not all have; before other sentences."""
    if judged and unfinished == judged:
        return "No run has converged: these numbers come from unfinished runs, and no method is called the best of any target. "
    return f"{judged - unfinished} of {judged} results have converged. " if unfinished else ""


def best_average(leaders: Sequence[str], average: float, n_tasks: int) -> str:
    """Who has the best average rank; no full stop."""
    over = f"{number(average)} over {count(n_tasks, 'task')}"
    if len(leaders) > 1:
        return f"{name(leaders[0])} and {count(len(leaders) - 1, 'other')} share the best average rank, {over}"
    return f"{name(leaders[0])} has the best average rank, {over}"


def stability(kept: Sequence[tuple[str, float]], resamples: int) -> str:
    """Whether the first method is a clear winner, after the sentence that names it.

    Args:
        kept: methods and the share of resamples in which each comes first; the leader before the others.
        resamples: their number.
    """
    first = kept[0][1]
    share = f"ranks first in {100 * first:.0f}% of {resamples:,} bootstrap resamples of the replicates"
    if first >= CLAIMED:
        return f", and {share}"
    others = sorted(kept[1:], key=lambda pair: pair[1], reverse=True)
    rivals = [f"{name(label)} {100 * of:.0f}%" for label, of in others if of >= _RIVAL]
    why = "; ".join([f"{100 * CLAIMED:.0f}% required", *([f"{join(rivals[:_NAMED])}"] if rivals else [])])
    return f"; no clear winner: it {share} ({why})"


def left_out(n: int) -> str:
    """Methods that an average over tasks leaves out; after other sentences."""
    return f" ({count(n, 'method')} without a rank on some of these tasks excluded.)" if n else ""


def friedman(n_methods: int, n_tasks: int, p: float) -> str:
    """The outcome of Friedman's test; NaN where it cannot be made."""
    if math.isnan(p):
        return "Friedman's test needs three methods on at least two tasks."
    if p <= 0.05:
        return f"The differences between the {n_methods} methods over {n_tasks} tasks are significant (Friedman's test, p = {number(p)})."
    none = f"Friedman's test finds no significant difference between the {n_methods} methods over {n_tasks} tasks"
    return f"{none} (p = {number(p)}): differences in rank may be due to chance."


def lowest_mean(label: str, value: tuple[float, float, float], n_tasks: int, others: int, rivals: Sequence[str]) -> str:
    """Who has the lowest interquartile mean over tasks, of a method that has converged."""
    shown = f"{number(value[0])} [{interval(*value[1:])}]"
    sure = f"significantly better than all {others} others"
    if rivals:
        sure = f"best, but not significantly better than {join([name(v) for v in rivals[:5]])}"
    return f"Over {count(n_tasks, 'task')}, {name(label)} has the lowest interquartile mean, {shown} times the floor: {sure}."


def paired(leader: str, n_tasks: int, beaten: Mapping[str, int], lost: Mapping[str, int]) -> str:
    """On how many tasks the leader is significantly better and worse than others."""
    better, worse = ([f"{name(k)} on {v}" for k, v in counts.items()] for counts in (beaten, lost))
    first = (
        f"Of {n_tasks} tasks, it is significantly better than {join(better)}"
        if better
        else (f"It is significantly better than another method on none of the {n_tasks} tasks")
    )
    second = f", and significantly worse than {join(worse)}" if worse else ""
    return f"{name(leader)} has the best average rank. {first}{second}."
