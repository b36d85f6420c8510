"""The package's modules and what they import, from their sources; no module is imported."""

import ast
from functools import cache
from importlib.resources import files
from importlib.util import resolve_name
from pathlib import Path


@cache
def module_files() -> dict[str, Path]:
    """Files of all modules, by full name; tasks and baselines may lie in folders of their own."""
    found = {}
    for package in ("parvibench", "parvibench.tasks", "parvibench.baselines"):
        root = Path(str(files(package)))
        for file in root.rglob("*.py"):
            parts = file.relative_to(root).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = file
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """All that a module names in its imports, those inside functions included.

    ``from a import b`` may name a module b or a thing in a; what is no module of the package is left out.
    """
    file = module_files()[module]
    return named_in(file, module if file.name == "__init__.py" else module.rpartition(".")[0])


def named_in(file: Path, package: str = "") -> frozenset[str]:
    """Modules of the package that a file of ``package`` names in its imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            home = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            found |= {home, *(f"{home}.{alias.name}" for alias in node.names)}
    return frozenset(found & module_files().keys())
