"""The study of planted bugs: each in a child process that plants it and runs the check; how many are caught, by what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from parvibench.check.judging import gating
from parvibench.check.selection import select as select_questions

from .catalogue import Mutant, catalogue, select

#: Wall-clock limit of one bug, s.
TIMEOUT_S = 600.0
#: The folder that holds this package: children import it from there.
_STUDIES = str(Path(__file__).resolve().parents[1])
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class MutantResult:
    """What a check made of a planted bug.

    Attributes:
        name: of the bug.
        family: of the bug.
        caught: whether the check failed, as it should.
        by: the test that failed: oracle, task, algorithm and statistic.
        replicates: that were drawn for that test until it failed.
        seconds: wall-clock time of the check, s.
        reason: why it was not caught; of what was caught, what is to be added.
    """

    name: str
    family: str
    caught: bool
    by: str = ""
    replicates: int = 0
    seconds: float = 0.0
    reason: str = ""


def run_mutants(workers: int, seed: int, only: Sequence[str] = ()) -> Iterator[MutantResult]:
    """Check planted bugs one by one, each in a process of one thread; results as they come.

    Args:
        workers: processes at a time.
        seed: of the checks.
        only: names; all bugs where none is given.

    Raises:
        UnknownNameError: no planted bug of that name.
        InputError: there is no stored past to compare with.
    """
    mutants = select(only)  # wrong names are refused before anything is started
    tests = sum(len(gating(question.expected())) for question in select_questions().questions()[0])
    return _results(mutants, max(1, workers), seed, tests)


def _results(mutants: Sequence[Mutant], workers: int, seed: int, tests: int) -> Iterator[MutantResult]:
    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(_check, mutant, seed, tests) for mutant in mutants]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _check(mutant: Mutant, seed: int, tests: int) -> MutantResult:
    """Plant one bug in a child process and read what it says last."""
    command = [
        sys.executable, "-m", "planted.planting", mutant.name, "--seed", str(seed), "--tests", str(tests),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": _STUDIES},
        )
    except subprocess.TimeoutExpired:
        return MutantResult(
            mutant.name,
            mutant.family,
            caught=False,
            seconds=TIMEOUT_S,
            reason=f"no verdict within {TIMEOUT_S:g} s",
        )
    if done.returncode:
        words = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return MutantResult(
            mutant.name, mutant.family, caught=False, reason=f"the check itself broke: {words}"
        )
    return MutantResult(mutant.name, mutant.family, **json.loads(done.stdout.splitlines()[-1]))


def mutants_table(results: Iterable[MutantResult]) -> str:
    """The results as a Markdown table in the catalogue's order, with a line per family above it."""
    found = {result.name: result for result in results}
    rows = [(mutant, found[mutant.name]) for mutant in catalogue() if mutant.name in found]
    asked = Counter(mutant.family for mutant, _ in rows)
    caught = Counter(mutant.family for mutant, result in rows if result.caught)
    lines = [
        f"{caught.total()} of {asked.total()} planted bugs were caught.",
        "",
        "| Family | Planted | Caught |",
        "| --- | ---: | ---: |",
        *(f"| {family} | {count} | {caught[family]} |" for family, count in asked.items()),
        "",
        "| Bug | Family | What is wrong | Caught by | Replicates | Seconds |",
        "| --- | --- | --- | --- | ---: | ---: |",
        *(_line(mutant, result) for mutant, result in rows),
    ]
    return "\n".join(lines) + "\n"


def _line(mutant: Mutant, result: MutantResult) -> str:
    by = result.by if result.caught else f"**missed**: {result.reason}"
    cells = (
        f"`{mutant.name}`", mutant.family, mutant.summary, by,
        str(result.replicates) if result.caught else "", f"{result.seconds:.0f}",
    )  # fmt: skip
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
