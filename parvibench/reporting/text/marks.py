"""Marks beside the numbers of a leaderboard, and states of cells."""

from collections import Counter
from collections.abc import Iterable, Sequence

from parvibench.core import OWN_REFERENCES
from parvibench.core.result import RUNNING, STOPPED, CellRecord, Status
from parvibench.reporting.formatting import name

#: Words of the column ``marks``: a cell that is no better than the start.
NO_BETTER = "no better than initial"
#: A point mass judged by a discrepancy that needs no reference samples: at a mode that can be small.
ONE_POINT = "one point"
#: A method with an individual budget that exceeds that of the others.
MORE = "beyond the budget"
UNDIAGNOSED = "convergence unknown"
#: Replicates that count as diverged; and the same on several tasks.
LOST = "lost {n} of {of} replicates"
#: Marks beside the numbers of a leaderboard.
MARKS = {
    "≈": "indistinguishable from exact draws at this sample size (5% level over all metrics with a floor, Holm)",
    "*": "some replicates diverged, blew up, or never moved from a start far off; they count as the worst values, and methods that lose significantly more than the others rank behind these",
    "†": "transient: R-hat above 1.05, or a bulk ESS of the path below a quarter of the samples",
    "↓": "still improving: the metric fell by more than 5% over the last doubling of the budget",
    "‡": "no better than the initial distribution",
    "°": "convergence unknown: chains without R-hat and ESS, since their path is too short or was not recorded, or with an R-hat above 1.05 that exact chains of so few draws have in over 5% of replicates",
    "•": "a single point: not ranked, since a discrepancy without reference samples cannot compare it with samples",
    "+": "more score evaluations than the other methods: not ranked",
    "|": "step size at the edge of the tuning grid",
    "?": "step size not tuned",
}
_LOST_REFERENCES = (
    "The reference samples of {tasks} were not available when this report was written: ratios to the floor, verdicts and "
    "equivalent n are missing. Write the report in the folder that contains {file}."
)
UNFINISHED = "This run is {state}: {missing} of {cells} cells have no result yet."
#: The numbers of a leaderboard over floors.
OVER_FLOOR = "{metric} over its floor (1: as good as exact draws)"
#: What bold and italics mean, in Markdown and on the terminal.
BOLD = "Bold: methods among the best of the task, than which no other is significantly better. Anchors, in italics, are not ranked."
BEST_SHORT = "{look}: among the best of the task (no other method is significantly better){anchors}"
#: Marks for the words of the column ``marks``.
_OF_WORDS = {
    "transient": "†", "still improving": "↓", UNDIAGNOSED: "°", NO_BETTER: "‡", ONE_POINT: "•", MORE: "+", "edge": "|", "untuned": "?",
}  # fmt: skip


def lost_references(tasks: Sequence[str]) -> str:
    """That the references of tasks cannot be read; empty without any."""
    return _LOST_REFERENCES.format(tasks=", ".join(map(name, tasks)), file=OWN_REFERENCES) if tasks else ""


def status_word(status: str, reason: str) -> str:
    """The status of a cell; while its run has not ended, that instead of ``interrupted``."""
    waiting = [s for s in (RUNNING, STOPPED) if status == Status.INTERRUPTED and reason.startswith(s)]
    return waiting[0] if waiting else str(status)


def symbols(words: str) -> str:
    """Marks for the words of the column ``marks``."""
    return "".join(symbol for word, symbol in _OF_WORDS.items() if word in words.split(", "))


def by_status(cells: Iterable[CellRecord]) -> str:
    """Numbers of cells by status, ``8 ok, 1 crashed``; empty without cells."""
    counts = Counter(status_word(c.status, c.reason) for c in cells)
    return ", ".join(f"{n} {status}" for status, n in counts.items())


def caption(title: str, replicates: str) -> str:
    """Caption of a leaderboard in a paper."""
    return f"Leaderboard, {title}: median of {replicates} replicates with its 95% interval. Bold: among the best of the task, no other method is significantly better."
