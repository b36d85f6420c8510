"""Numbers of a leaderboard with their marks, and their tooltips."""

import math
from collections.abc import Iterable, Sequence

from parvibench.core.result import Status
from parvibench.harness.store.results import RUNNING, STOPPED
from parvibench.reporting.formatting import interval, number

#: Words of the column ``marks``: a cell that is no better than the start.
NO_BETTER = "no better than initial"
#: A point mass judged by a discrepancy that needs no reference samples: at a mode that can be small.
ONE_POINT = "one point"
#: A method with an individual budget that exceeds that of the others.
MORE = "beyond the budget"
UNDIAGNOSED = "convergence unknown"
#: Marks beside the numbers of a leaderboard.
MARKS = {
    "≈": "indistinguishable from exact draws at this sample size (5% level over all metrics with a floor, Holm)",
    "*": "some replicates diverged, blew up, or never moved from a start far off; they count as the worst values",
    "†": "transient: R-hat above 1.05, or a bulk ESS of the path below a quarter of the samples",
    "↓": "still improving: the metric fell by more than 5% over the last doubling of the budget",
    "‡": "no better than the initial distribution",
    "°": "convergence unknown: chains without R-hat and ESS, since their path is too short or was not recorded",
    "•": "a single point: not ranked, since a discrepancy without reference samples cannot compare it with samples",
    "+": "more score evaluations than the other methods: not ranked",
    "|": "step size at the edge of the tuning grid",
    "?": "step size not tuned",
}
#: What bold and italics mean, in Markdown and on the terminal.
BOLD = "Bold: methods among the best of the task, than which no other is significantly better. Anchors, in italics, are not ranked."
BOLD_SHORT = "bold: among the best of the task (no other method is significantly better); italics: anchors, not ranked"
VERDICT_P = "adjusted p {p}; {basis}"
#: The tasks that an average rank is over.
RANKED_ON = "over {n} of {of} tasks, {failed} without a result"
DIVERGED = "{lost} of {of} diverged"
LOST_REFERENCES = (
    "The reference samples of {tasks} were not available when this report was written: ratios to the floor, verdicts and "
    "equivalent n are missing. Write the report in the folder that contains {file}."
)
#: Marks for the words of the column ``marks``.
_OF_WORDS = {
    "transient": "†", "still improving": "↓", UNDIAGNOSED: "°", NO_BETTER: "‡", ONE_POINT: "•", MORE: "+", "edge": "|", "untuned": "?",
}  # fmt: skip


def entry(status: str, value: float, *, exact: bool, diverged: bool, words: str) -> str:
    """A number with its ``MARKS``, or the status of a cell that has none; ``words`` of the column ``marks``."""
    if status != Status.OK:
        return status
    return ("≈" if exact else "") + number(value) + ("*" if diverged else "") + symbols(words)


def status_word(status: str, reason: str) -> str:
    """The status of a cell; while its run has not ended, that instead of ``interrupted``."""
    waiting = [s for s in (RUNNING, STOPPED) if status == Status.INTERRUPTED and reason.startswith(s)]
    return waiting[0] if waiting else str(status)


def unfinished(state: str, missing: int, cells: int) -> str:
    """That a run has not ended; empty where it has."""
    return state and f"This run is {state}: {missing} of {cells} cells have no result yet."


def symbols(words: str) -> str:
    """Marks for the words of the column ``marks``."""
    return "".join(symbol for word, symbol in _OF_WORDS.items() if word in words.split(", "))


def legend(used: Iterable[str]) -> list[str]:
    """The marks used, with their meanings."""
    found = set(used)
    return [f"{mark}: {meaning}" for mark, meaning in MARKS.items() if mark in found]


def beside(metric: str, median: float, ends: tuple[float, float], worst: float, words: str, lost: int, of: int) -> str:
    """Tooltip of a number of the leaderboard; ``lost`` of its replicates diverged."""
    text = f"{metric}: median {number(median)}, 95% interval {interval(*ends)}"
    if not math.isnan(worst):
        text += f", worst replicate {number(worst)}"
    if words:
        text += f"; {words}"
    return f"{text}; {lost} of {of} replicates diverged" if lost else text


def verdict_basis(reason: str, n: int, metrics: Sequence[str]) -> str:
    """Number of samples and metrics that a verdict rests on, or why there is none."""
    return "; ".join(filter(None, [reason, f"n = {n}, by {', '.join(metrics)}" if metrics else ""]))


def counts(cells: int, by_status: Sequence[tuple[str, int]]) -> str:
    """The number of cells by status."""
    parts = [f"{n} {status}" for status, n in by_status]
    return f"{cells} cells: {', '.join(parts)}" if parts else "no cells"


def run_counts(methods: int, tasks: int, by_status: Sequence[tuple[str, int]]) -> str:
    """The size of a run and its cells by status."""
    return f"{methods} methods x {tasks} tasks; {', '.join(f'{n} {status}' for status, n in by_status) or 'no cells'}"


def quantity(metric: str, goal: str, *, ratio: bool) -> str:
    """Name of the numbers of a leaderboard, with the better direction."""
    if ratio:
        return f"{metric} over its floor (1: as good as exact draws)"
    return f"{metric or 'no metric'}{f' ({goal})' if goal else ''}"


def caption(title: str, replicates: str) -> str:
    """Caption of a leaderboard in a paper."""
    return f"{title[:1].upper()}{title[1:]}: median of {replicates} replicates with its 95% interval. Bold: among the best of the task, no other method is significantly better."
