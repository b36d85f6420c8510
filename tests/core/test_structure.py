"""How files may depend on each other, and lie beside each other."""

import ast
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Folder of the checkout -> the package it is.
PACKAGES = {"parvibench": "parvibench", "tasks": "parvibench.tasks", "baselines": "parvibench.baselines"}
#: One family a file, one picture a file.
WIDE = ("parvibench/metrics", "parvibench/report")
MOST_FILES = 14

pytestmark = pytest.mark.skipif(not (ROOT / "baselines").is_dir(), reason="needs a checkout")


def modules() -> dict[str, Path]:
    found = {}
    for folder, package in PACKAGES.items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *(p for p in parts if p != "__init__")))] = file
    return found


def imports(name: str, file: Path) -> set[str]:
    """All that a module imports, whether or not it is a module; those inside functions included."""
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            home = resolve_name("." * node.level + (node.module or ""), package)
            found |= {home, *(f"{home}.{alias.name}" for alias in node.names)}
    return found


def test_no_import_cycle_between_files() -> None:
    """A folder's `__init__` counts where something is taken from it, not where a module of it is."""
    known = modules()
    graph = {}
    for name, file in known.items():
        found = imports(name, file)
        inner = {m.rpartition(".")[0] for m in found if m in known}
        graph[name] = (found & set(known)) - {name} - inner
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_file_name_occurs_twice() -> None:
    names = Counter(f.name for f in (ROOT / "parvibench").rglob("*.py") if f.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_no_folder_is_crowded() -> None:
    folders = Counter(f.parent.relative_to(ROOT).as_posix() for f in (ROOT / "parvibench").rglob("*.py"))
    assert {f: n for f, n in folders.items() if n > MOST_FILES and f not in WIDE} == {}
