"""Planting a bug: a module's source is changed as the module is imported, in a process of its own.

``python -m planted.planting --seed S --tests T`` reads names of bugs, a line each, and answers each by a line of JSON. For
every bug it forks, so that the libraries of others are imported once; the child plants the bug and asks the questions of
a check whose answers it can change; with ``--traces first`` only where no trace moves, with ``--traces only`` not at
all. The files are never touched, nor is any compiled copy of them.
"""

import argparse
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType
from typing import TextIO

from .catalogue import PlantedBug, bugs_named

#: What nearly every bug needs, imported before the first is planted; nothing of the package is among it.
LIBRARIES = (
    "arviz_stats.base",
    "ot",
    "pandas",
    "pydantic",
    "pyro",
    "ruamel.yaml",
    "scipy.stats",
    "sklearn.pipeline",
    "torch",
)
#: Wall-clock limit of one bug, s.
TIMEOUT_S = 600


class _Loader(SourceFileLoader):
    """Compiles a file as it would be with the bug."""

    def __init__(self, bug: PlantedBug, path: str) -> None:
        super().__init__(bug.full_module, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        # Not the inherited method: it would prefer the compiled copy, and write one.
        return self.source_to_code(self.get_source(fullname) or "", self.path)

    def get_source(self, fullname: str) -> str:
        return self._bug.planted(super().get_source(fullname) or "")


class _Finder(MetaPathFinder):
    """Finds the module's file and has it loaded with the bug."""

    def __init__(self, bug: PlantedBug) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._bug.full_module:
            return None
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(fullname, path, target)
            if found is not None and found.origin:
                loader = _Loader(self._bug, found.origin)
                return spec_from_file_location(fullname, found.origin, loader=loader)
        return None


def plant(bug: PlantedBug) -> None:
    """Have this process import the module with the bug, which it must not have done yet."""
    if bug.full_module in sys.modules:
        raise RuntimeError(f"{bug.full_module} is imported already: plant {bug.name!r} in a fresh process")
    sys.meta_path.insert(0, _Finder(bug))


def examine(module: str, seed: int, tests: int) -> dict[str, object]:
    """Ask what a module can change, at the threshold of a check of ``tests`` tests; fields of a ``BugResult``."""
    # Not before a bug is planted: these import most of the package.
    from parvibench.checks.outcomes import RED
    from parvibench.checks.past.replicates import TIME
    from parvibench.checks.rounds import Plan, check
    from parvibench.checks.selection import select_questions

    from .dependence import depends_on

    class WholeCheck(Plan):
        def threshold(self, _: int) -> float:
            return super().threshold(tests)

    began = time.perf_counter()
    asked = [q for q in select_questions().resolve().questions if depends_on(q, module)]
    result = check(asked, seed=seed, plan=WholeCheck(), fail_fast=True)
    gating = [t for t in result.tests if t.metric != TIME]
    found = min(gating, key=lambda t: (t.verdict not in RED, t.p_value), default=None)
    first = f"{found.oracle}: {found.task}/{found.algorithm} {found.metric}" if found else "nothing"
    spent = {"replicates": found.replicates if found else 0, "seconds": time.perf_counter() - began}
    if result.red:
        return {"caught": True, "by": first, "reason": found.reason if found else "", **spent}
    passed = f"all {len(result.tests)} tests passed, the nearest {first}"
    return {"caught": False, "reason": f"{passed} (p = {found.p_value:.1g})" if found else passed, **spent}


def trace(module: str) -> dict[str, object]:
    """Take the traces that a module can move; fields of a ``BugResult``."""
    from parvibench.checks.output import moved_line

    from .tracing import first_moved

    began = time.perf_counter()
    moved, count = first_moved(module)
    seconds = time.perf_counter() - began
    if moved is None:
        return {"caught": False, "reason": f"none of {count} traces moved", "seconds": seconds}
    return {"caught": True, "by": f"traces: {moved_line(moved).partition('; runs')[0]}", "seconds": seconds}


def found_of(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Plant the named bug in this process and measure; fields of a ``BugResult``."""
    (bug,) = bugs_named([name])
    plant(bug)
    found = trace(bug.module) if options.traces != "none" else None
    if found is not None and (found["caught"] or options.traces == "only"):
        return found
    return examine(bug.full_module, options.seed, options.tests)


def _in_a_child(name: str, options: argparse.Namespace, answers: TextIO) -> None:
    """Fork; the child prints the finding as a line of JSON, or this process does where the child has failed."""
    if (child := os.fork()) == 0:
        signal.alarm(TIMEOUT_S)
        try:
            answer = found_of(name, options)
        except BaseException as error:  # whatever a bug does, the next one is planted
            answer = {"caught": False, "reason": f"the check itself failed: {type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) == signal.SIGALRM
        reason = f"not finished within {TIMEOUT_S} s" if late else f"ended by signal {os.WTERMSIG(status)}"
        print(json.dumps({"caught": False, "reason": reason}), file=answers, flush=True)


def main() -> None:
    """Answer for every bug named on standard input."""
    parser = argparse.ArgumentParser(description="Plant bugs and check what they can change.")
    parser.add_argument("--seed", type=int, required=True, help="of the check")
    parser.add_argument("--tests", type=int, required=True, help="number of tests of a check of everything")
    parser.add_argument("--traces", choices=("first", "only", "none"), default="first", help="whether traces are taken")
    options = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    for library in LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        _in_a_child(line.strip(), options, answers)


if __name__ == "__main__":
    main()
