"""Contracts of the package: tasks, algorithms, metrics, budgets and the registry. Imports none of the other folders."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

#: Folder, in the working directory, of user-built references.
OWN_REFERENCES = Path("parvibench-references")
_further: list[Path] = []


@cache
def reference_folder() -> Traversable:
    """Where the package keeps ``<task>.npz`` and ``<task>.json``."""
    return files("parvibench.tasks") / "references"


def reference_folders() -> Iterator[Traversable]:
    """Folders searched for references, in this order: no other file replaces one that the package ships.

    Its own; ``./parvibench-references``; those of ``search_references``; ``references`` in the user's data folder.
    """
    import platformdirs

    yield reference_folder()
    yield OWN_REFERENCES
    yield from _further
    yield platformdirs.user_data_path("parvibench") / "references"


def search_references(folder: Path) -> None:
    """Look for references in this folder, too, for the rest of the process."""
    if folder not in _further:
        _further.append(folder)
