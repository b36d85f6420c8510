"""Planting a bug: a module's source is changed as the module is imported, in a process of its own.

``python -m planted.planting BUG`` plants one and asks the questions of a check that can see it. What the
files hold is never touched, nor is any compiled copy of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from .catalogue import Mutant, select


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


def examine(place: str, seed: int, tests: int) -> dict[str, object]:
    """Check what a module can spoil, as strictly as a check of everything would.

    Args:
        place: full name of the module.
        seed: of the check.
        tests: number of tests of a check of everything.

    Returns:
        ``caught``, ``by``, ``replicates``, ``seconds`` and ``reason``, as in ``mutants_study.MutantResult``.
    """
    # Not before a bug is planted: these import most of the package.
    from parvibench.check.judging import RED
    from parvibench.check.past.replicates import TIME
    from parvibench.check.rounds import Plan, check
    from parvibench.check.selection import select as select_questions

    from .reach import reaches

    class WholeCheck(Plan):
        def threshold(self, _: int) -> float:
            return super().threshold(tests)

    began = time.perf_counter()
    asked = [q for q in select_questions().questions()[0] if reaches(place, q)]
    result = check(asked, seed=seed, plan=WholeCheck(), fail_fast=True)
    telling = [t for t in result.tests if t.metric != TIME]
    found = min(telling, key=lambda t: (t.verdict not in RED, t.p_value), default=None)
    first = f"{found.oracle}: {found.task}/{found.algorithm} {found.metric}" if found else "nothing"
    spent = {"replicates": found.replicates if found else 0, "seconds": time.perf_counter() - began}
    if result.red:
        return {"caught": True, "by": first, "reason": found.reason if found else "", **spent}
    passed = f"all {len(result.tests)} tests passed, the nearest {first}"
    return {"caught": False, "reason": f"{passed} (p = {found.p_value:.1g})" if found else passed, **spent}


def main() -> None:
    """Plant the bug that is named, check, and print the finding as one line of JSON."""
    parser = argparse.ArgumentParser(description="Plant a bug and check what it can spoil.")
    parser.add_argument("bug", help="its name")
    parser.add_argument("--seed", type=int, required=True, help="of the check")
    parser.add_argument("--tests", type=int, required=True, help="number of tests of a check of everything")
    arguments = parser.parse_args()
    (mutant,) = select([arguments.bug])
    plant(mutant)
    print(json.dumps(examine(mutant.place, arguments.seed, arguments.tests)))


if __name__ == "__main__":
    main()
