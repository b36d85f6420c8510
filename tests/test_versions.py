"""A change of a built-in's source needs a decision on its version.

Stored cells are found by name and version: when the code behind a name changes results and its version does
not, old results pass for new ones. ``source_digests.json`` holds, for every task and algorithm, its version and
a digest of the syntax of its file, of the siblings it imports and of the shared code below (comments and
docstrings do not count).
After a change: raise ``version`` if any result may change, then rewrite the file with
``python tests/test_versions.py``.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
from pathlib import Path

import pytest

from parvibench.core import registry

RECORD = Path(__file__).with_name("source_digests.json")
SHARED = {
    "parvibench.tasks": (
        "parvibench.core.exact",
        "parvibench.core.target",
        "parvibench.data.splits",
        "parvibench.data.loaders",
    ),
    "parvibench.baselines": (
        "parvibench.kernels.gram",
        "parvibench.kernels.laplace",
        "parvibench.kernels.mixture",
        "parvibench.kernels.radial",
        "parvibench.kernels.riesz",
        "parvibench.nn.mlp",
        "parvibench.nn.optim",
        "parvibench.nn.refit",
        "parvibench.nn.semi_implicit",
        "parvibench.nn.variational",
        "parvibench.core.streams",
    ),
}


def syntax(module: str) -> str:
    """The module's syntax without docstrings."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            first.value.value = ""
    return ast.unparse(tree)


def siblings(module: str) -> list[str]:
    """Modules of the same folder that a module imports, theirs included."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    package, found = module.rpartition(".")[0], []
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in (f"{package}.{n}" for n in names):
                found += [name, *siblings(name)]
    return sorted(set(found))


@functools.cache
def current() -> dict[str, list[object]]:
    """``kind/name`` -> [version, digest]."""
    found: dict[str, list[object]] = {}
    for kind, rows, load in (
        ("task", registry.tasks(), registry.load_task),
        ("algorithm", registry.algorithms(), registry.load_algorithm),
    ):
        for name, row in rows.items():
            module = row.target.partition(":")[0]
            package = module.rpartition(".")[0]
            if package not in SHARED:
                continue
            parts = (module, *siblings(module), *SHARED[package])
            digest = hashlib.sha256("".join(map(syntax, parts)).encode()).hexdigest()[:16]
            found[f"{kind}/{name}"] = [load(name).version, digest]
    return found


@pytest.mark.parametrize("name", sorted(current()))
def test_versions_are_decided_on(name: str) -> None:
    recorded = json.loads(RECORD.read_text())
    assert recorded.get(name) == current()[name], "see the docstring of this file"


def test_nothing_is_recorded_that_is_gone() -> None:
    assert set(json.loads(RECORD.read_text())) == set(current())


if __name__ == "__main__":
    RECORD.write_text(json.dumps(current(), indent=1) + "\n")
