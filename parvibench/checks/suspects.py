"""Where the mistake behind red tests probably lies: the module that they share and green tests do not.

Modules are those that a test's method and task import, directly or not; they are ranked by Ochiai's coefficient
red(m) / sqrt(red (red(m) + green(m))), as in spectrum-based fault localisation (Abreu, Zoeteweij & van Gemund 2007,
TAICPART-MUTATION, Section 2.2).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import NamedTuple

from parvibench.core import registry

from .outcomes import RED, Test

#: What labels that are no names of methods or tasks stand for.
_LABELS = {"streams": "parvibench.core.streams", "meter": "parvibench.core.task", "smc": "parvibench.baselines.smc"}
#: Imported by all: shown only where nothing else tells red from green.
_ROOT = "parvibench."


class Suspect(NamedTuple):
    """A module and the red tests that run through it."""

    module: str
    tests: list[Test]


def suspects(tests: Sequence[Test]) -> list[Suspect]:
    """The red tests, grouped by the most suspicious module of those that are left."""
    covered = {named: _modules(*named) for named in map(_named, tests)}
    if len(of := {t.algorithm for t in tests}) == 1 and (own := _modules("", *of, "")):
        # Of one method alone, tasks that it passes and tasks that it fails tell nothing against a task.
        covered = {named: own for named in covered}
    left = [t for t in tests if t.verdict in RED]
    green = _counts(covered[_named(t)] for t in tests if t.verdict not in RED)
    found: list[Suspect] = []
    while left:
        red = _counts(covered[_named(t)] for t in left)
        if not red:
            return [*found, Suspect("", left)]
        score = {m: n / math.sqrt(len(left) * (n + green.get(m, 0))) for m, n in red.items()}
        # Of modules that tell no more than others the one nearest to what was asked: a method's own, before what it imports.
        far = {m: sum(covered[_named(t)].get(m, 0) for t in left) / n for m, n in red.items()}
        best = min(score, key=lambda m: (-round(score[m], 9), green.get(m, 0), far[m], m))
        through = [t for t in left if best in covered[_named(t)]]
        found.append(Suspect(best, through))
        left = [t for t in left if t not in through]
    return found


def _named(test: Test) -> tuple[str, str, str]:
    return test.task, test.algorithm, test.metric


def _counts(covered: Iterable[Iterable[str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for modules in covered:
        for module in modules:
            found[module] = found.get(module, 0) + 1
    return found


@cache
def _modules(task: str, algorithm: str, metric: str) -> dict[str, int]:
    """All modules of this package, or of a contributor's, that a test runs through, and how many imports away each is."""
    tables = (registry.tasks(), registry.algorithms())
    names = [
        table[name].target.partition(":")[0]
        for table, name in zip(tables, (task, algorithm), strict=True)
        if name in table
    ]
    base = metric.removeprefix("early ")
    if base in registry.metrics():
        names.append(registry.metrics()[base].target.partition(":")[0])
    names += [_LABELS[name] for name in (algorithm,) if name in _LABELS]
    if algorithm not in registry.algorithms() and ":" in algorithm:
        return {algorithm.rpartition(":")[0]: 0}
    found: dict[str, int] = {}
    for module, far in (item for name in names for item in _imported(name).items()):
        found[module] = min(far, found.get(module, far))
    return found


@cache
def _imported(name: str) -> dict[str, int]:
    """A module of the package and all of the package that it imports, with the number of imports between."""
    found: dict[str, int] = {}
    layer, far = [name], 0
    while layer:
        files = {m: file for m in layer if m not in found and m.startswith(_ROOT) and (file := _file(m))}
        found |= dict.fromkeys(files, far)
        layer, far = [m for module, file in files.items() for m in _imports(module, file)], far + 1
    return found


def _file(module: str) -> Path | None:
    """The source of a module; None for folders and for names that are no modules."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or spec.origin.endswith("__init__.py"):
        return None
    return Path(spec.origin)


def _imports(module: str, file: Path) -> list[str]:
    package, found = module.rpartition(".")[0], []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return found
