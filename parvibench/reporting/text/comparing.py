"""Two runs compared: why cells cannot be, and the verdicts."""

from __future__ import annotations

SAME, DIFFERENT = "not significantly different", "significantly different"


def failed(which: str, status: str, reason: str) -> str:
    """That one of two cells has no result."""
    return f"{which} is {status}: {reason}"[:300]


def not_measured(which: str, metric: str) -> str:
    """That one of two cells lacks the metric."""
    return f"{which} has no {metric or 'metric'}"


def other_task(first: int, second: int) -> str:
    """That the task has another version."""
    return f"the task changed: version {first} and {second}"


def lost(first: int, second: int) -> str:
    """Replicates without a value; empty where there are none."""
    return f"replicates without a value: {first} and {second}" if first or second else ""


def only_in(which: str) -> str:
    """That one run alone has a cell."""
    return f"only in the {which}"


def significantly(*, better: bool) -> str:
    """The verdict on a significant change."""
    return f"significantly {'better' if better else 'worse'}"


def no_shared_cell(first: str, second: str) -> str:
    """That two runs have nothing in common."""
    return f"runs {first} and {second} share no task and method: nothing to compare"
