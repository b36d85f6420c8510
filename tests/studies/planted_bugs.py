"""How many planted bugs `parvibench check` finds: each is planted in a process of its own that runs the check.

``python tests/studies/planted_bugs.py [BUG ...] [--workers 2] [--seed 7] [--traces first] [--markdown FILE]``
Traces are taken first, and the slow questions asked where none has moved: a bug costs seconds. ``--traces none`` leaves
them out, ``--traces only`` the questions.
Exit code 1 where fewer than 95% are found.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from planted.catalogue import PlantedBug, bugs_named, catalogue

from parvibench.checks.outcomes import gating
from parvibench.checks.selection import select_questions

#: Share of bugs that must be found.
BAR = 0.95
#: Of child processes: they import ``planted`` from this folder, and what it shares with the tests.
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).resolve().parents[:2])),
}


@dataclass(frozen=True)
class BugResult:
    """What a check found of a planted bug."""

    bug: PlantedBug
    caught: bool
    by: str = ""  # the test that failed: oracle, task, algorithm and statistic
    replicates: int = 0  # drawn for that test until it failed
    seconds: float = 0.0
    reason: str = ""  # why it was not caught, or the failed test's own reason


def check_planted(
    workers: int, seed: int, names: Sequence[str] = (), traces: str = "first", aside: bool | None = None
) -> Iterator[BugResult]:
    """Check planted bugs one by one, each in a process of one thread; results as they come."""
    bugs = bugs_named(names, aside)  # wrong names are refused before anything is started
    asked = [] if traces == "only" else select_questions().resolve().questions
    tests = sum(len(gating(question.expected())) for question in asked)
    options = ["--seed", str(seed), "--tests", str(tests), "--traces", traces]
    return _results(bugs, max(1, workers), options)


def _results(bugs: Sequence[PlantedBug], workers: int, options: Sequence[str]) -> Iterator[BugResult]:
    """Results as they come, of so many processes that plant one bug after another."""
    waiting, found = Queue[PlantedBug](), Queue[BugResult | None]()
    for bug in bugs:
        waiting.put(bug)

    def serve() -> None:
        try:
            with planting(options) as server:
                while True:
                    bug = waiting.get_nowait()
                    found.put(_asked(server, bug))
        except Empty:
            pass
        finally:
            found.put(None)

    threads = [Thread(target=serve, daemon=True) for _ in range(min(workers, len(bugs)))]
    for thread in threads:
        thread.start()
    for _ in threads:
        yield from iter(found.get, None)


@contextmanager
def planting(options: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that plants the bugs whose names it reads, see ``planted.planting``."""
    command = [sys.executable, "-m", "planted.planting", *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=os.environ | ENVIRONMENT, **pipes) as server:
        yield server
        server.stdin.close()


def _asked(server: subprocess.Popen[str], bug: PlantedBug) -> BugResult:
    """Plant one bug and read the answer."""
    server.stdin.write(f"{bug.name}\n")
    server.stdin.flush()
    answer = server.stdout.readline()
    if not answer:
        raise RuntimeError(f"the process that plants bugs has ended at {bug.name!r}")
    return BugResult(bug, **json.loads(answer))


def table(results: Iterable[BugResult]) -> str:
    """The results as a Markdown table in the catalogue's order, with a line per family above it."""
    found = {result.bug: result for result in results}
    rows = [found[bug] for bug in catalogue() if bug in found]
    asked = Counter(row.bug.family for row in rows)
    caught = Counter(row.bug.family for row in rows if row.caught)
    lines = [
        f"{caught.total()} of {asked.total()} planted bugs were caught.",
        "",
        "| Family | Planted | Caught |",
        "| --- | ---: | ---: |",
        *(f"| {family} | {count} | {caught[family]} |" for family, count in asked.items()),
        "",
        "| Bug | Family | What is wrong | Caught by | Replicates | Seconds |",
        "| --- | --- | --- | --- | ---: | ---: |",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def _line(row: BugResult) -> str:
    by = row.by if row.caught else f"**missed**: {row.reason}"
    replicates = str(row.replicates) if row.caught and row.replicates else ""
    cells = (f"`{row.bug.name}`", row.bug.family, row.bug.summary, by, replicates, f"{row.seconds:.0f}")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Plant the named bugs, print a line for each and a table at the end."""
    parser = argparse.ArgumentParser(description="Plant bugs one at a time and count how many are found.")
    parser.add_argument("bugs", nargs="*", help="names; default: all")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, default=7, help="of the checks")
    parser.add_argument("--traces", choices=("first", "only", "none"), default="first", help="whether traces are taken")
    parser.add_argument("--aside", choices=("yes", "no"), help="only the bugs put aside, or only the others")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    parser.add_argument(
        "--catalogue", help="a file of `planted`: second.yaml to fourth.yaml, harmless.yaml; default: catalogue.yaml"
    )
    arguments = parser.parse_args()
    if arguments.catalogue:
        os.environ["PLANTED_CATALOGUE"] = arguments.catalogue
    results = []
    aside = None if arguments.aside is None else arguments.aside == "yes"
    for result in check_planted(arguments.workers, arguments.seed, arguments.bugs, arguments.traces, aside):
        results.append(result)
        print(f"{result.bug.name}: {'found' if result.caught else 'MISSED'}", file=sys.stderr, flush=True)
    text = table(results)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    print(text)
    return 0 if sum(r.caught for r in results) >= BAR * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
