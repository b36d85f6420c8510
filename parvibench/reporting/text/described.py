"""Tasks, methods and references described: facts, certificates, a method's results by kind of target."""

import json
from collections.abc import Sequence
from typing import Any

from parvibench.core.registry import AlgorithmRow, TaskRow

PLUG_IN = "Plug-in {algorithm}."
IN_THIS_SUITE = " In this suite: {reason}."
PREDICTIONS = "certified posterior predictions at held-out points"
NOT_DRAWN = "This report has figures of {most} tasks; `parvibench report --task` draws those of this one."


def task(row: TaskRow) -> str:
    """Facts of a registered task."""
    return _sentences(row.summary, f"{row.dim} dimensions" if row.dim else "", ", ".join(row.tags))


def method(row: AlgorithmRow) -> str:
    """Facts of a registered method."""
    return _sentences(row.summary, row.kind, f"needs {', '.join(row.needs)}" if row.needs else "", row.citation)


def _sentences(summary: str, *others: str) -> str:
    return ". ".join(filter(None, [summary[:1].upper() + summary[1:], *others])) + "."


def own_task(coordinates: Sequence[str], native: str = "") -> str:
    """Facts of a task that is not registered; ``native`` is the built-in task of the same posterior."""
    kind = f"A posterior of posteriordb; the built-in task {native} is the same in PyTorch." if native else ""
    return (kind or "A user-defined task.") + (f" Coordinates: {', '.join(coordinates)}." if coordinates else "")


def reference(rows: int, *, exact: bool, grade: str) -> str:
    """What reference samples are."""
    kind = "independent exact draws" if exact else "a certified long run"
    lesser = {"standard": "user-supplied draws of the usual standard (R-hat below 1.01, ESS above 9,000)"}
    return f"{rows:,} rows from {kind if grade == 'certified' else lesser.get(grade, f'draws that are {grade}')}"


def value(found: Any) -> str:
    """An entry of a certificate, or a suite."""
    return found if isinstance(found, str) else json.dumps(found).replace('"', "")


def setting(values: Sequence[str]) -> str:
    """A setting, of which tasks may have different values; at most 12 of them."""
    first, *others = values
    return f"by task: {', '.join([first, *others[:11]])}" if others else first.strip('"')


def among(kind: str) -> str:
    """The methods that a sentence is about, before it: a kind or a division; empty for all methods."""
    names = {"generator": "generators", "tuned": "tuned methods", "self-tuning": "self-tuning methods"}
    return f"Among {names.get(kind, kind)}: " if kind else ""


#: Metric -> why it is missing on some tasks, and does not detect some alteration.
LIMITS = {
    "modes_found": " Counted in up to 10 dimensions; mode_weight_tv has no such limit where modes are known. Modes of the alterations are 4 standard "
    "deviations apart: 2.3% of the draws of one are nearest to the other, which so holds the 2% that count as found."
}
DIVISIONS = (
    "Tuned methods have step sizes searched on the suite's grid for every task; the search is charged under the budget "
    "\u201cscore evaluations with tuning\u201d. Self-tuning methods have one setting for all tasks and adapt within the budget."
)
