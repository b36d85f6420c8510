"""Contracts of the package: tasks, algorithms, metrics, budgets and the registry. Imports none of the other folders."""

from importlib.resources import files
from importlib.resources.abc import Traversable


def reference_folder() -> Traversable:
    """Where the package keeps ``<task>.npz`` and ``<task>.json``."""
    return files("parvibench.tasks") / "references"
