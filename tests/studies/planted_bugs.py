"""Which tests detect planted bugs: each is planted in a private copy of the checkout and tried step by step until a test fails.

``python tests/studies/planted_bugs.py RESULTS.jsonl [--catalogue second] [--ids BUG ...] [--workers 2] [--golden off]``

The steps: ``regression`` (the golden values of methods and tasks that import the bug's module, then the laws), ``own`` (the
tests that mirror its package or name it), ``check`` (``parvibench check -a METHOD``, of two methods at most) and ``whole``
(the default tests). RESULTS has a line of JSON for each bug; a bug that has one is not tried again. The checkout must not
change during a run. Exit code 1 where fewer than 95% are detected.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory

import markdown_tables
from planted import choosing
from planted.catalogue import CATALOGUES, PlantedBug, bugs_named
from planted.copies import ROOT, PrivateCopy

#: Share of bugs that must be detected.
BAR = 0.95
STEPS = ("regression", "own", "check", "whole")
#: Wall-clock limit of a command, s.
LIMIT_S = 2400
#: Files of a pytest process: collecting all takes longer than the first failure.
FILES = 6
#: Of pytest: nothing is written, the first failure ends the run. Default tests and those of `.ci/run`.
PYTEST = ("-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow")
CHECK = "from parvibench.cli import main; main()"
TRACES = ROOT / "tests" / "regression" / "golden" / "stored_traces.json"


@dataclass(frozen=True)
class BugResult:
    """What detected a planted bug."""

    id: str
    family: str
    aside: bool
    summary: str
    golden: str  # golden values among the tests: ``on`` or ``off``
    step: str = ""  # that detected it; empty where none did
    by: str = ""  # the test or command that failed
    text: str = ""  # its message
    seconds: dict[str, float] = field(default_factory=dict)  # of each step

    @property
    def found(self) -> bool:
        return bool(self.step)


@dataclass(frozen=True)
class Trial:
    """How bugs are tried."""

    golden: str = "on"
    steps: Sequence[str] = STEPS
    seed: int = 7

    def of(self, bug: PlantedBug, copy: PrivateCopy) -> BugResult:
        """Plant a bug and take step after step until one detects it."""
        result = BugResult(bug.id, bug.family, bug.aside, bug.summary, self.golden)
        broken = list[str]()  # tests that fail without the bug, too
        for step in self.steps:
            began = time.perf_counter()
            for command in self.commands(step, bug.home()):
                while failure := self.failure(bug, copy, command, broken):
                    by, text = failure
                    if step == "check" or not first_failure(copy, [*PYTEST, by]):
                        result.seconds[step] = round(time.perf_counter() - began, 1)
                        return replace(result, step=step, by=by, text=text)
                    broken.append(by)
            result.seconds[step] = round(time.perf_counter() - began, 1)
        return result

    def failure(
        self, bug: PlantedBug, copy: PrivateCopy, command: Sequence[str], broken: Sequence[str]
    ) -> tuple[str, str] | None:
        """The first failure of a command with the bug in the copy."""
        left_out = [word for test in broken for word in ("--deselect", test)] if command[0] == "-m" else []
        with copy.with_bug(bug):
            return first_failure(copy, [*command, *left_out])

    def commands(self, step: str, module: str) -> list[list[str]]:
        """Arguments of Python, the likeliest to fail first."""
        if step == "check":
            options = ["--seed", str(self.seed), "--workers", "0"]
            return [["-c", CHECK, "check", "-a", method, *options] for method in choosing.methods(module)]
        if step == "whole":
            return [[*PYTEST, *choosing.all_files()]]
        files = choosing.law_files(module) if step == "regression" else choosing.own_files(module)
        some = [files[i : i + FILES] for i in range(0, len(files), FILES)]
        if step == "regression" and self.golden == "on":
            some.insert(0, choosing.golden_nodes(json.loads(TRACES.read_text("utf-8")), module))
        return [[*PYTEST, *tests] for tests in some if tests]


def first_failure(copy: PrivateCopy, arguments: Sequence[str]) -> tuple[str, str] | None:
    """The test or command that failed in the copy, and its message."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    environment = {**copy.environment, "COLUMNS": "2000"}
    with subprocess.Popen([sys.executable, *arguments], cwd=copy.root, env=environment, **options) as process:  # type: ignore[call-overload]
        try:
            told, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None
    if arguments[0] == "-c":
        return (f"parvibench {' '.join(arguments[2:5])}", told.strip()[:300]) if process.returncode == 1 else None
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", told, re.MULTILINE)
    return (failed[1], (failed[2] or "")[:300]) if failed else None


def tried(bugs: Sequence[PlantedBug], trial: Trial, workers: int) -> Iterator[BugResult]:
    """Results as they come, of so many private copies."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        copies = Queue[PrivateCopy]()
        for number in range(workers):
            copies.put(PrivateCopy(Path(folder) / f"copy-{number}"))

        def one(bug: PlantedBug) -> BugResult:
            copy = copies.get()
            try:
                return trial.of(bug, copy)
            finally:
                copies.put(copy)

        yield from pool.map(one, bugs)


def table(results: Iterable[BugResult]) -> str:
    """The results as Markdown: counts by catalogue, family and step, and a line a bug."""
    rows = sorted(results, key=lambda r: ([*CATALOGUES, "harmless"].index(r.id.partition(":")[0]), r.family))
    families = defaultdict[tuple[str, str], Counter](Counter)
    for row in rows:
        families[row.id.partition(":")[0], row.family] += Counter([row.step or "missed", "Planted"])
    steps = [step for step in (*STEPS, "missed") if any(counts[step] for counts in families.values())]
    head = ["Catalogue", "Family", "Planted", *steps]
    lines = [
        f"{sum(r.found for r in rows)} of {len(rows)} planted bugs were found.",
        "",
        *markdown_tables.table(head, ([c, f, *(n[s] for s in head[2:])] for (c, f), n in families.items()), head[2:]),
        "",
        *markdown_tables.table(["Bug", "What is wrong", "Step", "Found by", "Seconds"], map(_cells, rows), ["Seconds"]),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: BugResult) -> tuple[str, ...]:
    file, separator, node = row.by.partition("::")
    by = f"{file.rpartition('/')[2]}{separator}{node}" if row.found else row.text
    return f"`{row.id}`", row.summary, row.step or "**missed**", by, f"{sum(row.seconds.values()):.0f}"


def stored(file: Path, golden: str) -> dict[str, BugResult]:
    """The results of a file by bug, with the same golden values."""
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    read = [BugResult(**json.loads(line)) for line in lines]
    return {result.id: result for result in read if result.golden == golden}


def main() -> int:
    """Plant the bugs, write a line for each, print the table."""
    parser = argparse.ArgumentParser(description="Plant bugs one at a time and see which test detects them.")
    parser.add_argument("results", type=Path, help="JSON lines; bugs with a line are not tried again")
    parser.add_argument("--catalogue", nargs="+", default=CATALOGUES, help="default: the five of bugs; or harmless")
    parser.add_argument("--ids", nargs="+", default=(), help="BUG or CATALOGUE:BUG; default: all")
    parser.add_argument("--aside", choices=("yes", "no"), help="only the bugs put aside, or only the others")
    parser.add_argument("--workers", type=int, default=2, help="private copies at a time")
    parser.add_argument("--golden", choices=("on", "off"), default="on", help="whether golden values are compared")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="default: all")
    parser.add_argument("--seed", type=int, default=7, help="of `parvibench check`")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    arguments = parser.parse_args()
    aside = None if arguments.aside is None else arguments.aside == "yes"
    bugs = bugs_named(arguments.ids, arguments.catalogue, aside)
    results = stored(arguments.results, arguments.golden)
    trial = Trial(arguments.golden, arguments.steps, arguments.seed)
    for result in tried([bug for bug in bugs if bug.id not in results], trial, max(1, arguments.workers)):
        results[result.id] = result
        with arguments.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        spent = f"{sum(result.seconds.values()):.0f} s"
        print(f"{result.id}: {result.step or 'MISSED'} {result.by} ({spent})", file=sys.stderr, flush=True)
    chosen = [results[bug.id] for bug in bugs]
    text = table(chosen)
    if arguments.markdown:
        arguments.markdown.write_text(text, "utf-8")
    print(text)
    return 0 if sum(r.found for r in chosen) >= BAR * len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
