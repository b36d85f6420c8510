"""The contracts everything else leans on; imports nothing else of the package."""

from importlib.resources import files
from importlib.resources.abc import Traversable


def reference_folder() -> Traversable:
    """Where the package keeps ``<task>.npz`` and ``<task>.json``."""
    return files("parvibench.tasks") / "references"
