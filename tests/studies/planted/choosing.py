"""Which tests a bug in a module can fail: measured once on code without bugs, beside what imports say."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from import_graph import imports, module_files, named_in

from parvibench.core import registry

from .catalogue import sources
from .copies import ROOT

GOLDEN = "tests/regression/golden/test_traces.py"
LAWS = "tests/regression/laws"
#: They compare digests of sources, plant bugs themselves, measure times or look at the repository.
NEVER = (
    "tests/core/test_indexing.py", "tests/regression/golden", "tests/regression/laws/test_slips_are_seen.py", "tests/studies",
    "tests/benchmarks", "tests/test_release.py", "tests/test_docs.py",
)  # fmt: skip
#: Packages that serve one other, whose tests are theirs too.
_USERS = {"nn": ("baselines",), "kernels": ("baselines",)}


class Measured(NamedTuple):
    """A test on code without bugs."""

    seconds: float
    passed: bool
    modules: frozenset[str]  #: of the package, whose functions it calls


class MeasuredTests:
    """Tests by node, measured where they are first needed; a file stores them until code or tests change."""

    def __init__(
        self, file: Path, measure: Callable[[Sequence[str]], Mapping[str, Any]], try_: Callable[[str], bool]
    ) -> None:
        self._file, self._measure, self._try, self._lock = file, measure, try_, Lock()
        stored = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        self._digest = _digest()
        self._files: dict[str, dict[str, Any]] = stored["files"] if stored.get("code") == self._digest else {}

    def of(self, files: Iterable[str]) -> dict[str, Measured]:
        """The tests of files that pass."""
        with self._lock:
            for name in files:
                if name not in self._files:
                    self._files[name] = dict(self._measure([name]))
                    self._file.write_text(json.dumps({"code": self._digest, "files": self._files}), "utf-8")
            found = {node: test for name in files for node, test in self._files[name].items()}
        return {n: Measured(s, p, frozenset(modules)) for n, (s, p, modules) in found.items() if p}

    def passes(self, node: str) -> bool:
        """Whether a test passes without a bug."""
        with self._lock:
            return self._try(node)


def _digest() -> str:
    """Of all code and all tests of the checkout but the studies."""
    files = [*sources().values(), *(f for f in (ROOT / "tests").rglob("*.py") if "studies" not in f.parts)]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in sorted(files))).hexdigest()


def golden_nodes(tests: Mapping[str, Measured], module: str) -> list[str]:
    """Golden values that a module can move, subject by subject: its own first, then those of runs."""
    subjects = defaultdict[str, list[str]](list)
    for node in tests:
        subjects[subject(node)].append(node)
    concerned = {}
    for name, nodes in subjects.items():
        home = home_of(name)
        called = frozenset[str]().union(*(tests[n].modules for n in nodes))
        if module in called or (home and module in modules_behind(home)):
            concerned[name] = home != module, not name.startswith("run "), sum(tests[n].seconds for n in nodes)
    return [node for name in sorted(concerned, key=lambda n: concerned[n]) for node in subjects[name]]


def subject(node: str) -> str:
    """What a golden value is of: a method, a task or a run by its name."""
    name = node.partition("[")[2].removesuffix("]")
    if "test_every_trace_is_stored" in node:
        kind, _, name = name.partition(" ")
        return f"{kind} {name}" if kind == "run" else name
    first = name.partition(" ")[0]
    return name if first == "run" else first


def home_of(name: str) -> str:
    """The module of a method or a task; nothing for other names."""
    for table in (registry.algorithms(), registry.tasks()):
        if name in table:
            return table[name].target.partition(":")[0]
    return ""


def other_nodes(tests: Mapping[str, Measured], module: str) -> list[str]:
    """Tests that call a function of a module, and all of the files that import it or name its tasks: quick ones first."""
    files = {node.partition("::")[0] for node in tests}
    tasks = [f'"{name}"' for name in registry.tasks() if home_of(name) == module]
    chosen = {f for f in files if module in named_in(ROOT / f) or any(task in _text(f) for task in tasks)}
    called = [node for node, test in tests.items() if module in test.modules]
    if module.startswith("parvibench.metrics"):  # cases of a test share values, which the first computes for all
        called = [node for node in tests if node.partition("[")[0] in {c.partition("[")[0] for c in called}]
    found = {*called, *(node for node in tests if node.partition("::")[0] in chosen)}
    return sorted(found, key=lambda n: (tests[n].seconds, n))


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text("utf-8")


def law_files() -> list[str]:
    """The files of laws."""
    return [file for file in _test_files(LAWS) if not file.startswith(NEVER)]


def all_files(*, golden: bool) -> list[str]:
    """The files of the default tests that a bug may fail."""
    files = sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py"))
    return [file for file in files if not file.startswith(NEVER) or (golden and file == GOLDEN)]


def own_files(module: str) -> list[str]:
    """The test files that mirror a module's package and those it serves, or the module where it stands in none."""
    parts = module.split(".")
    package = "studies" if parts[0] == "papers" else parts[1]
    if (ROOT / "tests" / package).is_dir():
        found = [file for name in (package, *_USERS.get(package, ())) for file in _test_files(f"tests/{name}")]
    else:
        found = sorted(f.relative_to(ROOT).as_posix() for f in (ROOT / "tests").glob(f"test_*{package}*.py"))
    return [file for file in found if not file.startswith(NEVER) or parts[0] == "papers"]


def _test_files(folder: str) -> list[str]:
    return sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / folder).glob("test_*.py"))


def methods(golden: Mapping[str, Measured], module: str, most: int = 2) -> list[str]:
    """Built-in methods that run through a module, the nearest first."""
    through = {s for n, t in golden.items() if module in t.modules and (s := subject(n)) in registry.algorithms()}

    def near(name: str) -> tuple[bool, bool, str]:
        home = home_of(name)
        return home != module, module not in imports(home), name

    return sorted(through, key=near)[:most]


@cache
def modules_behind(module: str) -> frozenset[str]:
    """The module and all of the package that its imports lead to; names in the registry are not followed."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports(name) if name in module_files() else ()
    return frozenset(found)
