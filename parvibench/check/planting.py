"""Planting a bug: a module's source is changed as the module is imported, in a process of its own.

``python -m parvibench.check.planting BUG`` plants one and puts the questions of a check that can see it. What the
files hold is never touched, nor is any compiled copy of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from .mutants import Mutant


class _Loader(SourceFileLoader):
    """Compiles a file as it would be with the bug."""

    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.place, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        # Not by way of the inherited method: it would prefer the compiled copy, and write one.
        return self.source_to_code(self.get_source(fullname) or "", self.path)

    def get_source(self, fullname: str) -> str:
        return self._mutant.planted(super().get_source(fullname) or "")


class _Finder(MetaPathFinder):
    """Finds the module where it is, to be loaded otherwise."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.place:
            return None
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(fullname, path, target)
            if found is not None and found.origin:
                return spec_from_file_location(
                    fullname, found.origin, loader=_Loader(self._mutant, found.origin)
                )
        return None


def plant(mutant: Mutant) -> None:
    """Have this process import the module with the bug.

    Raises:
        RuntimeError: the module was imported before.
    """
    if mutant.place in sys.modules:
        raise RuntimeError(f"{mutant.place} is imported already: plant {mutant.name!r} in a fresh process")
    sys.meta_path.insert(0, _Finder(mutant))
