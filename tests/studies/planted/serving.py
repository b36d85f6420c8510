"""What runs in a private copy: ``python -m planted.serving`` reads requests, a line of JSON each, and answers each by a line.

For every request it forks, so that the libraries of others are imported once; of the package nothing is imported before.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

#: What nearly every request needs; nothing of the package is among it.
LIBRARIES = (
    "arviz_stats.base", "ot", "pandas", "pydantic", "pyro", "rich.progress", "ruamel.yaml", "scipy.stats",
    "sklearn.pipeline", "torch", "typer",
)  # fmt: skip
#: Of pytest: nothing is written, the first failure ends the run. Default tests and those of `.ci/run`.
_OPTIONS = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "not slow")


class _Chosen:
    """Runs chosen tests in the order given, all without a choice, and remembers the first that failed."""

    def __init__(self, nodes: Sequence[str], without: Sequence[str]) -> None:
        self._places = {node: i for i, node in enumerate(nodes)}
        self._without = set(without)
        self.count = 0
        self.failed, self.text = "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid not in self._without]
        if self._places:
            kept = [item for item in kept if item.nodeid in self._places]
            kept.sort(key=lambda item: self._places[item.nodeid])
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed, self.text = report.nodeid, _last_line(report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.when == "call"
        if report.failed and not self.failed:
            self.failed, self.text = report.nodeid, _told(report)


def _told(report: pytest.TestReport) -> str:
    """The first lines of a plain failure, or the error at the end of a traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    return " | ".join(line.strip() for line in lines[:2])[:300]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300]


class _Watched:
    """Runs tests and notes how long each takes, whether it passes, and the modules of the package whose functions it calls."""

    def __init__(self) -> None:
        self.tests: dict[str, tuple[float, bool, list[str]]] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        seen: set[str] = set()

        def watch(frame: FrameType, event: str, _: object) -> None:
            seen.add(frame.f_globals.get("__name__", ""))

        began = time.perf_counter()
        sys.settrace(watch)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            modules = sorted(name for name in seen if name and name.startswith(("parvibench.", "papers.")))
            self.tests[item.nodeid] = (time.perf_counter() - began, item.nodeid not in self._failed, modules)


def run_tests(files: Sequence[str], nodes: Sequence[str], without: Sequence[str]) -> Mapping[str, object]:
    """Run the chosen tests of some files, all where none is chosen, until one fails."""
    chosen = _Chosen(nodes, without)
    pytest.main([*_OPTIONS, *files], plugins=[chosen])
    return {"failed": chosen.failed, "text": chosen.text, "count": chosen.count}


def watched(files: Sequence[str]) -> Mapping[str, object]:
    """Run all tests of some files and say what each runs through."""
    plugin = _Watched()
    if (code := pytest.main([*_OPTIONS[1:], *files], plugins=[plugin])) not in (0, 1, 5):  # passed, failed, no tests
        raise RuntimeError(f"pytest ends with {code}: {' '.join(files)}")
    return {"tests": plugin.tests}


def check(method: str, seed: int) -> Mapping[str, object]:
    """``parvibench check -a METHOD``."""
    from parvibench import cli

    sys.argv = ["parvibench", "check", "-a", method, "--seed", str(seed), "--workers", "0"]
    told, code = StringIO(), 0
    try:
        with redirect_stdout(told):
            cli.main()
    except SystemExit as left:
        code = int(left.code or 0)
    failed = f"parvibench check -a {method}" if code == 1 else ""
    return {"failed": failed, "text": (told.getvalue().strip().splitlines() or [""])[0][:300], "count": 1}


_REQUESTS = {"tests": run_tests, "watched": watched, "check": check}


def answer(request: dict[str, Any], answers: int) -> None:
    """Fork; the child writes its answer, or this process does where the child has not come to an end."""
    limit, began = request.pop("limit"), time.perf_counter()
    if (child := os.fork()) == 0:
        signal.alarm(limit)
        try:
            found = dict(_REQUESTS[request.pop("what")](**request))
        except BaseException as error:  # whatever a bug does, the next one is planted
            found = {"failed": "", "text": f"{type(error).__name__}: {error}", "count": 0}
        _write(answers, found | {"seconds": time.perf_counter() - began})
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) == signal.SIGALRM
        text = f"not finished within {limit} s" if late else f"ended by signal {os.WTERMSIG(status)}"
        _write(answers, {"failed": "", "text": text, "count": 0, "seconds": time.perf_counter() - began})


def _write(file: int, found: Mapping[str, object]) -> None:
    content = json.dumps(found).encode() + b"\n"
    while content:
        content = content[os.write(file, content) :]


def main() -> None:
    """Answer every request on standard input."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what tests and libraries print is no answer
    sys.path.insert(0, str(Path.cwd()))
    for library in LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        answer(json.loads(line), answers)


if __name__ == "__main__":
    main()
