"""What ships beside the tasks' code: reference files. Imports no torch, so that `list` stays quick."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from .registry import TaskRow


def reference_folder() -> Traversable:
    """Where the package keeps ``<task>.npz`` and ``<task>.json``."""
    return files("parvibench.tasks") / "references"


def has_reference(name: str) -> bool:
    """Whether a reference of that task ships with the package."""
    return (reference_folder() / f"{name}.json").is_file()


def judged_by(row: TaskRow) -> str:
    """What samples of a task are held against, in a word or two."""
    if "bandit" in row.tags:
        return "best action"
    if "regression" in row.tags:
        return "predictive run" if has_reference(row.name) else "held-out rows"
    if not has_reference(row.name):
        return "none"
    return "exact draws" if "exact" in row.tags else "long run"
