"""Which questions can execute the code of a module, by the imports that its sources name."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.util import resolve_name
from pathlib import Path

from parvibench.check.past.replicates import CellQuestion
from parvibench.check.questions import Question
from parvibench.core import registry

#: Where a run and its measurement begin.
_RUN = "parvibench.harness.run.loop"


def depends_on(question: Question, module: str) -> bool:
    """Whether measuring a question can execute code of a module.

    Args:
        question: what is asked; one of a task that is not registered may use anything.
        module: full name.
    """
    task = registry.tasks().get(question.task)
    label = question.cell.algorithm if isinstance(question, CellQuestion) else question.algorithm
    algorithm = registry.algorithms().get(label)
    if task is None:
        return True
    homes = {type(question).__module__, _home(task.target)}
    if algorithm is not None:
        homes.add(_home(algorithm.target))
    return module in _behind_every_run() or any(module in modules_behind(home) for home in homes)


@cache
def modules_behind(module: str) -> frozenset[str]:
    """The module itself and all of the package that its imports lead to; names in the registry are not followed.

    Args:
        module: full name, e.g. ``parvibench.tasks.banana``.
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imports(name)
    return frozenset(found)


@cache
def _behind_every_run() -> frozenset[str]:
    """Modules behind every run: the harness's and the metrics', which are resolved by name."""
    homes = {_RUN, *(_home(row.target) for row in registry.metrics().values())}
    return frozenset[str]().union(*map(modules_behind, homes))


def _home(target: str) -> str:
    """The module of ``module:attribute``."""
    return target.partition(":")[0]


@cache
def _sources() -> dict[str, Path]:
    """Files of all modules, by full name; tasks and baselines may lie in folders of their own."""
    found = {}
    for package in ("parvibench", "parvibench.tasks", "parvibench.baselines"):
        root = Path(str(files(package)))
        for file in root.rglob("*.py"):
            parts = file.relative_to(root).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = file
    return found


@cache
def _imports(module: str) -> frozenset[str]:
    """Modules of the package that a module names in its imports."""
    source = _sources().get(module)
    if source is None:
        return frozenset()
    package = module if source.name == "__init__.py" else module.rpartition(".")[0]
    named = _named(ast.parse(source.read_text(encoding="utf-8")), package)
    return frozenset(name for name in named if name in _sources())


def _named(tree: ast.Module, package: str) -> Iterator[str]:
    """Full names in the import statements; ``from a import b`` may name a module b or a thing in a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package if node.level else None)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
