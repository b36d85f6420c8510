"""How files may depend on each other, and lie beside each other."""

from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from import_graph import imports, module_files

ROOT = Path(__file__).parents[2]
#: One family a file.
WIDE = ("parvibench/metrics",)
MOST_FILES = 14

pytestmark = pytest.mark.skipif(not (ROOT / "baselines").is_dir(), reason="needs a checkout")


def test_no_import_cycle_between_files() -> None:
    """A folder's `__init__` counts where something is taken from it, not where a module of it is."""
    graph = {}
    for name in module_files():
        found = imports(name)
        graph[name] = found - {name} - {m.rpartition(".")[0] for m in found}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_file_name_occurs_twice() -> None:
    """But for the files of ``api``, which are called as their verbs are."""
    files = (f for f in (ROOT / "parvibench").rglob("*.py") if f.parent.name != "api" and f.name != "__init__.py")
    names = Counter(f.name for f in files)
    assert [name for name, count in names.items() if count > 1] == []


def test_no_folder_is_crowded() -> None:
    folders = Counter(f.parent.relative_to(ROOT).as_posix() for f in (ROOT / "parvibench").rglob("*.py"))
    assert {f: n for f, n in folders.items() if n > MOST_FILES and f not in WIDE} == {}
