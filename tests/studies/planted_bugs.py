"""Which tests find planted bugs: each is planted in a private copy of the checkout and tried step by step until one finds it.

``python tests/studies/planted_bugs.py RESULTS.jsonl [--catalogue second] [--ids BUG ...] [--workers 2] [--golden off]
[--without mala]``

The steps: ``regression`` (the golden values, then the laws, that run through the bug's module), ``own`` (the tests that
mirror its package and run through it), ``check`` (``parvibench check -a METHOD``, of two methods at most) and ``whole``
(the default tests). Which tests run through which module is measured once, without bugs, and stored beside the results.
RESULTS has a line of JSON for each bug; a bug that has one is not tried again. The checkout must not change during a run.
Exit code 1 where fewer than 95% are found.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from planted import choosing
from planted.catalogue import CATALOGUES, PlantedBug, bugs_named
from planted.choosing import GOLDEN, MeasuredTests
from planted.copies import PrivateCopy

#: Share of bugs that must be found.
BAR = 0.95
STEPS = ("regression", "own", "check", "whole")
#: Wall-clock limits of a request, s.
_LIMITS = {"regression": 900, "own": 900, "check": 900, "whole": 2400, "watched": 2400}


#: Something asked of a private copy.
Request = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class BugResult:
    """What found a planted bug."""

    id: str
    family: str
    aside: bool
    summary: str
    golden: str  # golden values among the tests: ``on``, ``off``, or ``without`` some
    step: str = ""  # that found it; nothing where none did
    by: str = ""  # the test or command that failed
    text: str = ""  # what that said, or why nothing was found
    tests: dict[str, int] = field(default_factory=dict)  # run in each step, the one that failed included
    seconds: dict[str, float] = field(default_factory=dict)  # of each step

    @property
    def found(self) -> bool:
        return bool(self.step)


class Bench:
    """A private copy with the process that runs in it."""

    def __init__(self, copy: PrivateCopy, server: subprocess.Popen[str]) -> None:
        self.copy, self._server = copy, server

    def ask(self, what: str, step: str, **request: object) -> dict[str, Any]:
        """Have something done in a fork of the process."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps({"what": what, "limit": _LIMITS[step], **request}), file=self._server.stdin, flush=True)
        if not (answer := self._server.stdout.readline()):
            raise RuntimeError("the process in the private copy has ended")
        return json.loads(answer)

    def tests(self, step: str, files: Sequence[str], nodes: Sequence[str] = (), without: Sequence[str] = ()) -> Any:
        """Run tests until one fails."""
        return self.ask("tests", step, files=files, nodes=nodes, without=without)

    def watched(self, files: Sequence[str]) -> Mapping[str, Any]:
        """What the tests of files run through, without a bug."""
        found = self.ask("watched", "watched", files=files)
        if "tests" not in found:
            raise RuntimeError(f"without a bug: {found['text']}")
        return found["tests"]


@contextmanager
def bench() -> Iterator[Bench]:
    """A private copy and its process, for a while."""
    with TemporaryDirectory() as folder:
        copy = PrivateCopy(Path(folder) / "copy")
        command = [sys.executable, "-m", "planted.serving"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, text=True, cwd=copy.root, env=copy.environment, **pipes) as server:
            yield Bench(copy, server)
            server.stdin.close()


@dataclass(frozen=True)
class Trial:
    """How bugs are tried."""

    map: MeasuredTests
    golden: str = "on"
    steps: Sequence[str] = STEPS
    seed: int = 7

    def of(self, bug: PlantedBug, bench: Bench) -> BugResult:
        """Plant a bug and take step after step until one finds it."""
        module, counts, seconds, texts = bug.home(), dict[str, int](), dict[str, float](), []
        result = BugResult(bug.id, bug.family, bug.aside, bug.summary, self.golden, tests=counts, seconds=seconds)
        with bench.copy.with_bug(bug):
            for step in self.steps:
                asked = getattr(self, f"_{step}")(bench, module)  # what it needs to know is measured here
                began, counts[step] = time.perf_counter(), 0
                found: dict[str, Any] = {}
                for ask in asked:
                    found = ask()
                    counts[step] += found["count"]
                    if found["failed"]:
                        break
                seconds[step] = round(time.perf_counter() - began, 1)
                if found.get("failed"):
                    return BugResult(**asdict(result) | {"step": step, "by": found["failed"], "text": found["text"]})
                texts += [found["text"]] if found.get("text") else []
        return BugResult(**asdict(result) | {"text": "; ".join(texts)})

    def _regression(self, bench: Bench, module: str) -> list[Request]:
        nodes = choosing.golden_nodes(self.map.of([GOLDEN]), module) if self.golden != "off" else []
        nodes = [node for node in nodes if choosing.subject(node) not in self.golden.split()[1:]]
        laws = choosing.other_nodes(self.map.of(choosing.law_files()), module)
        return [*_some(bench, "regression", nodes), *_some(bench, "regression", laws)]

    def _own(self, bench: Bench, module: str) -> list[Request]:
        return _some(bench, "own", choosing.other_nodes(self.map.of(choosing.own_files(module)), module))

    def _check(self, bench: Bench, module: str) -> list[Request]:
        methods = choosing.methods(self.map.of([GOLDEN]), module)
        return [partial(bench.ask, "check", "check", method=method, seed=self.seed) for method in methods]

    def _whole(self, bench: Bench, module: str) -> list[Request]:
        return [partial(self._first_failure, bench, choosing.all_files(golden=self.golden == "on"))]

    def _first_failure(self, bench: Bench, files: Sequence[str]) -> dict[str, Any]:
        """Of the default tests; one that fails without the bug too is left out."""
        without = list[str]()
        while (found := bench.tests("whole", files, without=without))["failed"]:
            if self.map.passes(found["failed"]):
                break
            without.append(found["failed"])
        return found


def _some(bench: Bench, step: str, nodes: Sequence[str]) -> list[Request]:
    files = list(dict.fromkeys(node.partition("::")[0] for node in nodes))
    return [partial(bench.tests, step, files, nodes)] if nodes else []


def tried(bugs: Sequence[PlantedBug], trial: Trial, workers: int) -> Iterator[BugResult]:
    """Results as they come, of so many private copies."""
    waiting, results = Queue[PlantedBug](), Queue[BugResult | Exception | None]()
    for bug in bugs:
        waiting.put(bug)

    def serve() -> None:
        try:
            with bench() as own:
                while True:
                    results.put(trial.of(waiting.get_nowait(), own))
        except Empty:
            pass
        except Exception as error:
            results.put(error)
        finally:
            results.put(None)

    threads = [Thread(target=serve, daemon=True) for _ in range(min(workers, len(bugs)))]
    for thread in threads:
        thread.start()
    for _ in threads:
        for result in iter(results.get, None):
            if isinstance(result, Exception):
                raise result
            yield result


def table(results: Iterable[BugResult]) -> str:
    """The results as Markdown: counts by catalogue, family and step, and a line a bug."""
    rows = sorted(results, key=lambda r: ([*CATALOGUES, "harmless"].index(r.id.partition(":")[0]), r.family))
    families = defaultdict[tuple[str, str], Counter](Counter)
    for row in rows:
        families[row.id.partition(":")[0], row.family] += Counter([row.step or "missed", "planted"])
    steps = [step for step in (*STEPS, "missed") if any(counts[step] for counts in families.values())]
    lines = [
        f"{sum(r.found for r in rows)} of {len(rows)} planted bugs were found.",
        "",
        f"| Catalogue | Family | Planted | {' | '.join(steps)} |",
        f"| --- | --- | ---: |{' ---: |' * len(steps)}",
        *(f"| {c} | {f} | {n['planted']} | {' | '.join(str(n[s]) for s in steps)} |" for (c, f), n in families.items()),
        "",
        "| Bug | What is wrong | Step | Found by | Seconds |",
        "| --- | --- | --- | --- | ---: |",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def _line(row: BugResult) -> str:
    file, separator, node = row.by.partition("::")
    by = f"{file.rpartition('/')[2]}{separator}{node}" if row.found else row.text
    cells = (f"`{row.id}`", row.summary, row.step or "**missed**", by, f"{sum(row.seconds.values()):.0f}")
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def stored(file: Path, golden: str) -> dict[str, BugResult]:
    """The results of a file by bug, with the same golden values."""
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    found = [BugResult(**json.loads(line)) for line in lines]
    return {result.id: result for result in found if result.golden == golden}


def main() -> int:
    """Plant the bugs, write a line for each, print the table."""
    parser = argparse.ArgumentParser(description="Plant bugs one at a time and see which test finds them.")
    parser.add_argument("results", type=Path, help="JSON lines; bugs that stand in it are not tried again")
    parser.add_argument("--catalogue", nargs="+", default=CATALOGUES, help="default: the five of bugs; or harmless")
    parser.add_argument("--ids", nargs="+", default=(), help="BUG or CATALOGUE:BUG; default: all")
    parser.add_argument("--aside", choices=("yes", "no"), help="only the bugs put aside, or only the others")
    parser.add_argument("--workers", type=int, default=2, help="private copies at a time")
    parser.add_argument("--golden", choices=("on", "off"), default="on", help="whether golden values are compared")
    parser.add_argument("--without", nargs="+", default=(), help="not the golden values of these methods and tasks")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="default: all")
    parser.add_argument("--seed", type=int, default=7, help="of `parvibench check`")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    arguments = parser.parse_args()
    aside = None if arguments.aside is None else arguments.aside == "yes"
    bugs = bugs_named(arguments.ids, arguments.catalogue, aside)
    golden = " ".join(["without", *arguments.without]) if arguments.without else arguments.golden
    results = stored(arguments.results, golden)
    with mapped(arguments.results.with_suffix(".map.json")) as known:
        trial = Trial(known, golden, arguments.steps, arguments.seed)
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


@contextmanager
def mapped(file: Path) -> Iterator[MeasuredTests]:
    """What tests run through, measured in a private copy of its own where it is not known."""
    with bench() as clean:
        yield MeasuredTests(file, clean.watched, lambda node: not clean.tests("whole", [node])["failed"])


if __name__ == "__main__":
    sys.exit(main())
