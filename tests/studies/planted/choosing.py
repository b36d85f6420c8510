"""Which tests a bug in a module can fail, by what modules and test files import."""

from collections.abc import Iterable
from functools import cache

from import_graph import imports, module_files, named_in

from parvibench.core import registry

from .copies import ROOT

GOLDEN = "tests/regression/golden/test_traces.py"
#: They compare digests of sources, plant bugs themselves, measure times or look at the repository.
NEVER = (
    "tests/core/test_indexing.py", "tests/regression/golden", "tests/regression/laws/test_slips_are_seen.py", "tests/studies",
    "tests/benchmarks", "tests/test_release.py", "tests/test_docs.py",
)  # fmt: skip
#: Packages that serve one other, whose tests are theirs too.
_USERS = {"nn": ("baselines",), "kernels": ("baselines",)}


def golden_nodes(traces: Iterable[str], module: str) -> list[str]:
    """Golden values that a module can change: those of the methods and tasks that it is behind, its own first, then of runs."""
    concerned = {name: home_of(name.partition(" ")[0]) for name in traces}
    chosen = [name for name, home in concerned.items() if not home or module in modules_behind(home)]
    chosen.sort(key=lambda name: (not concerned[name], concerned[name] != module))
    return [f"{GOLDEN}::test_trace[{name}]" for name in chosen]


def home_of(name: str) -> str:
    """The module of a method or a task; empty for other names."""
    for table in (registry.algorithms(), registry.tasks()):
        if name in table:
            return table[name].target.partition(":")[0]
    return ""


def law_files(module: str) -> list[str]:
    """The files of laws, those first that name the module."""
    return _near_first(_test_files("tests/regression/laws"), module)


def own_files(module: str) -> list[str]:
    """The test files that mirror a module's package and those it serves, and those elsewhere that name it."""
    parts = module.split(".")
    if parts[0] == "papers":
        return _test_files("tests/studies")
    if (ROOT / "tests" / parts[1]).is_dir():
        own = [file for name in (parts[1], *_USERS.get(parts[1], ())) for file in _test_files(f"tests/{name}")]
    else:
        own = [file for file in _test_files("tests") if parts[1] in file]
    near, named = _near_first(own, module), [file for file in all_files() if _names(file, module)]
    return list(dict.fromkeys([*near, *named]))


def _near_first(files: Iterable[str], module: str) -> list[str]:
    return sorted((f for f in files if not f.startswith(NEVER)), key=lambda file: not _names(file, module))


@cache
def _names(file: str, module: str) -> bool:
    """Whether a test file imports a module or names one of its tasks or methods."""
    registered = [n for table in (registry.algorithms(), registry.tasks()) for n in table if home_of(n) == module]
    return module in named_in(ROOT / file) or any(f'"{n}"' in (ROOT / file).read_text("utf-8") for n in registered)


@cache
def all_files() -> tuple[str, ...]:
    """The files of the default tests that a bug may fail, golden values left out."""
    files = sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py"))
    return tuple(file for file in files if not file.startswith(NEVER))


def _test_files(folder: str) -> list[str]:
    return sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / folder).glob("test_*.py"))


def methods(module: str, most: int = 2) -> list[str]:
    """Built-in methods that a module is behind, the nearest first."""
    rows = registry.algorithms().items()
    behind = [n for n, row in rows if row.built_in and row.kind != "anchor" and module in modules_behind(home_of(n))]
    return sorted(behind, key=lambda n: (home_of(n) != module, module not in imports(home_of(n)), n))[:most]


@cache
def modules_behind(module: str) -> frozenset[str]:
    """The module and all of the package that its imports lead to; names in the registry are not followed."""
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += imports(name) if name in module_files() else ()
    return frozenset(reached)
