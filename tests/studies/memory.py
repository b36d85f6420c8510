"""The most memory that any default cell of the shipped suites holds, metrics included.

``python tests/studies/memory.py`` runs the first chunk of every cell of ``toy``, ``quick`` and ``uci`` (profile fast)
at its real width for about a second, in a fresh process as a worker is, and lists the peak memory of each process.
Chains fill their recorder within that time or nearly so; nothing else grows with the length of a run.
"""

import argparse
import multiprocessing as mp
import os
import resource
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection

from throughput import is_here

from parvibench.core.budget import Budget
from parvibench.core.errors import ParVIBenchError
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.store.environment import ALLOCATOR
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import load_suite
from parvibench.harness.workers.processes import PRELOAD

SUITES = {"quick": None, "toy": None, "uci": "fast"}
LIMIT_MIB = 2048.0


def default_cells(suite: str, profile: str | None, seconds: float) -> Iterator[Cell]:
    """Cells of a shipped suite that can run here, cut short."""
    for cell in expand(load_suite(suite).with_profile(profile)):
        if not cell.missing_needs() and is_here(cell.task):
            yield cell.varied(budget=Budget(iterations=2000, seconds=seconds))


def peak_mib(cell: Cell) -> float:
    """Peak memory of a process that ran the cell's first chunk, MiB."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(cell, theirs))
    process.start()
    theirs.close()
    try:
        answer: float | str = ours.recv()
    except EOFError:
        answer = "the process ended without a word"
    process.join()
    if isinstance(answer, str):
        raise ParVIBenchError(answer)
    return answer


def _work(cell: Cell, pipe: Connection) -> None:
    try:
        run_chunk(cell, cell.chunks[0])
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)


def main(suites: list[str], seconds: float) -> bool:
    """True where a cell used more than the limit."""
    os.environ.update({**ALLOCATOR, "OMP_NUM_THREADS": "1"})
    found: list[tuple[float, str]] = []
    for suite in suites:
        for cell in default_cells(suite, SUITES[suite], seconds):
            name = f"{suite} {cell.task} {cell.label}"
            try:
                found.append((peak_mib(cell), name))
            except ParVIBenchError as error:
                print(f"{name}: {error}", flush=True)
    found.sort(reverse=True)
    for peak, name in found[:15]:
        print(f"{peak:8.0f} MiB  {name}")
    middle = found[len(found) // 2][0] if found else 0.0
    print(f"{len(found)} cells, median {middle:.0f} MiB; over {LIMIT_MIB:.0f} MiB: ", end="")
    print(sum(peak > LIMIT_MIB for peak, _ in found))
    return not found or found[0][0] > LIMIT_MIB


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=list(SUITES), help="of quick, toy, uci")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each run")
    given = parser.parse_args()
    raise SystemExit(main(given.suites, given.seconds))
