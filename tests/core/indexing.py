"""Writing ``parvibench/core/index.json`` and ``described.json``: ``make index``, after a change of a built-in.

Names, summaries, needs and versions are read from the classes of ``tasks/``, ``baselines/`` and the metrics
(files that begin with an underscore are skipped). Stored cells are found by name and version: when the code behind
a name changes results and its version does not, old results pass for new ones. So the index also holds a digest of
every source file that tasks and algorithms are made of, and is not written when a digest has changed under an
unchanged version, unless the names whose results stay are given: ``make index KEEP=svgd,bnn-*``.
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from parvibench.api import describe
from parvibench.core import registry
from parvibench.core.algorithm import Method
from parvibench.core.errors import InputError
from parvibench.core.metric import Metric
from parvibench.core.sequential import SequentialTask
from parvibench.core.task import Task

INDEX = Path(registry.__file__).with_name("index.json")
DESCRIBED = INDEX.with_name("described.json")

#: Section -> name -> what ``list`` shows and ``load_*`` needs; ``sources``: file -> digest.
Index = dict[str, dict[str, Any]]

#: Interfaces and bookkeeping: imported by all, and held by their own tests. What else a task or an algorithm
#: imports of this package, directly or not, makes its numbers.
_INTERFACES = frozenset(f"parvibench.core.{m}" for m in ("algorithm", "errors", "metric", "reference", "task"))
#: Names of fields, attributes and arguments that are displayed, or act by name only: no part of a digest.
_DISPLAYED = frozenset({"citation", "departures", "description", "example", "presets", "summary"})


def scan(order: Index | None = None) -> Index:
    """The index of the code as it is, rows in the order of ``order``; ``InputError`` where a name is defined twice."""
    found: Index = {
        "tasks": _section("parvibench.tasks", lambda x: isinstance(x, Task), _task_row),
        "algorithms": _section("parvibench.baselines", _is_algorithm, _algorithm_row),
        "metrics": _section("parvibench.metrics", lambda x: isinstance(x, Metric), _metric_row),
    }
    for section, rows in found.items():
        known = {name: rows[name] for name in (order or {}).get(section, {}) if name in rows}
        found[section] = known | rows
    modules = {m for s in ("tasks", "algorithms") for row in found[s].values() for m in sources(_home(row))}
    return found | {"sources": {_path(m): digest(_file(m).read_text("utf-8")) for m in sorted(modules)}}


def undecided(old: Index, new: Index, keep: Sequence[str] = ()) -> dict[str, list[str]]:
    """Changed source files -> names whose results they may have changed, with the version that they had before.

    Names that ``keep`` holds, or that fit a pattern in it, are left out: their results stay.
    """
    found: dict[str, list[str]] = {}
    for section in ("tasks", "algorithms"):
        for name, row in new[section].items():
            before = old.get(section, {}).get(name)
            kept = any(fnmatch(name, pattern) for pattern in keep)
            if before is None or before["version"] != row["version"] or kept:
                continue
            for path in map(_path, sources(_home(row))):
                if old["sources"].get(path) != new["sources"][path]:
                    found.setdefault(path, []).append(name)
    return found


def render(index: Index) -> str:
    """The text of ``index.json``: a line per row."""
    sections = []
    for section, rows in index.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in rows.items()]
        sections.append(f' "{section}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def described() -> str:
    """The text of ``described.json``, what ``show`` prints of every built-in: a line per row."""
    facts = {
        section: {row.name: of(load(row.name)) for row in rows.values() if row.built_in}
        for section, rows, load, of in (
            ("tasks", registry.tasks(), registry.load_task, describe.task_facts),
            ("algorithms", registry.algorithms(), registry.load_method, describe.algorithm_facts),
            ("metrics", registry.metrics(), registry.load_metric, describe.metric_facts),
        )
    }
    return render(facts)


def digest(source: str) -> str:
    """Of the syntax of a module: comments, docstrings, layout and displayed texts do not count."""
    return hashlib.sha256(repr(_syntax(ast.parse(source))).encode()).hexdigest()[:16]


@cache
def sources(module: str) -> tuple[str, ...]:
    """The module and all of the package that its imports lead to, interfaces left out; sorted."""
    found, waiting = {module}, [module]
    while waiting:
        new = {m for m in _imports(waiting.pop()) if _is_source(m)} - found
        found |= new
        waiting += new
    return tuple(sorted(found))


def _section(package: str, accept: Callable[[Any], bool], row: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for module in _modules(package):
        for attribute in _defined(module):
            value = getattr(importlib.import_module(module), attribute)
            if attribute.startswith("_") or not accept(value):
                continue
            target = f"{module}:{attribute}"
            if value.name in rows:
                raise InputError(f"{value.name!r} is defined by both {rows[value.name]['target']} and {target}")
            rows[value.name] = {"target": target} | row(value)
    return rows


def _is_algorithm(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Method) and not inspect.isabstract(value)


def _task_row(task: Task) -> dict[str, Any]:
    reference, otherwise = "exact draws" if "exact" in task.provides else "long run", "none"
    if "predictive" in task.provides:
        reference, otherwise = "predictive run", "held-out rows"
    elif isinstance(task, SequentialTask):
        otherwise = "best action"
    facts = {key: getattr(task, key) for key in ("version", "dim", "summary")}
    judged = {"reference": reference, "otherwise": otherwise}
    return facts | {"tags": sorted(task.tags), "data": list(task.data)} | judged


def _algorithm_row(algorithm: type[Method]) -> dict[str, Any]:
    facts = {key: getattr(algorithm, key) for key in ("version", "kind", "summary", "needs", "citation")}
    external = {"library": algorithm.library} if algorithm.library else {}
    return facts | {"needs": sorted(algorithm.needs)} | external


def _metric_row(metric: Metric) -> dict[str, Any]:
    return {key: value for key, value in vars(metric).items() if key not in ("name", "compute")}


def _modules(package: str) -> Iterator[str]:
    for folder in importlib.import_module(package).__path__:
        for file in sorted(Path(folder).glob("[!_]*.py")):
            yield f"{package}.{file.stem}"


def _defined(module: str) -> list[str]:
    """Names a module itself binds at its top level, in order: what it imports has another home."""
    found = []
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [t.id for t in targets if isinstance(t, ast.Name)]
    return found


def _imports(module: str) -> Iterator[str]:
    """Names of modules, or of what they hold, that a module imports; relative ones resolved."""
    package = module.rpartition(".")[0]
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (home, *(f"{home}.{alias.name}" for alias in node.names))
            if home in _INTERFACES:  # some pass on what another module defines
                held = vars(importlib.import_module(home))
                yield from (str(getattr(held[alias.name], "__module__", "")) for alias in node.names)


@cache
def _is_source(module: str) -> bool:
    """Whether that is a module of this package, no folder, whose code makes numbers."""
    if not module.startswith("parvibench.") or module in _INTERFACES:
        return False
    try:
        return _file(module).name != "__init__.py"
    except ModuleNotFoundError:
        return False


def _file(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin)


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text("utf-8"))


def _home(row: Mapping[str, Any]) -> str:
    return str(row["target"]).partition(":")[0]


def _path(module: str) -> str:
    """Where a module lies in the repository."""
    path = module.replace(".", "/") + ".py"
    mapped = ("parvibench/tasks/", "parvibench/baselines/")
    return path.removeprefix("parvibench/") if path.startswith(mapped) else path


def _syntax(node: Any) -> Any:
    """A node as nested lists, the same for every version of Python."""
    if isinstance(node, list):
        return [_syntax(item) for item in node if not _is_displayed(item)]
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.AST):
        if isinstance(node, ast.ClassDef):
            node.body = [statement for statement in node.body if not _sets_displayed(statement)]
        fields = ((name, _syntax(value)) for name, value in ast.iter_fields(node))
        return [type(node).__name__, *(field for field in fields if field[1] not in (None, []))]
    return node


def _is_displayed(node: Any) -> bool:
    """A docstring, an argument that is displayed, or an import of an interface."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if isinstance(node, ast.ImportFrom):
        return node.module in _INTERFACES
    return isinstance(node, ast.keyword) and node.arg in _DISPLAYED


def _sets_displayed(node: ast.stmt) -> bool:
    """Whether a statement of a class sets an attribute that is displayed."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return isinstance(target, ast.Name) and target.id in _DISPLAYED


def main(keep: str = "") -> None:
    """Write the index, or say which versions to decide on."""
    old: Index = json.loads(INDEX.read_text("utf-8")) if INDEX.is_file() else {}
    new = scan(old)
    changed = undecided(old, new, keep.split(",")) if old else {}
    if changed:
        names = sorted({name for found in changed.values() for name in found})
        lines = "\n".join(f"  {path}: {', '.join(found)}" for path, found in changed.items())
        raise SystemExit(
            f"{INDEX.name} is not written: the sources of these changed, and their versions did not\n{lines}\n"
            f"Raise `version` where results may change. Where they stay: make index KEEP={','.join(names)}"
        )
    INDEX.write_text(render(new), "utf-8")
    registry.tasks.cache_clear()
    registry.algorithms.cache_clear()
    DESCRIBED.write_text(described(), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
