"""How time and memory of whole commands grow with the cells of a run; the part of ``growth.py`` beyond single steps.

One short cell of SVGD is run; a store of n cells holds it under n labels on many tasks, in a run of that many. The cells
of ``check`` are methods on tasks whose results it records as a baseline, which takes seconds each. Every command is a
process of its own: its processor seconds and the most memory that it held, the interpreter included. This
program must be small, hence one of its own: the kernel counts what a process held before its ``exec``.
"""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parvibench.core import registry
from parvibench.core.result import CellRecord
from parvibench.harness.session import run_cells
from parvibench.harness.store.store import RunCell, Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.executors import InProcess

SIZES = (100, 300, 1000, 5000)
#: A page of the most cells should be made within these.
MOST_S, MOST_MIB = 60.0, 1024.0
LABELS = 50  # methods of a run; so the largest has a hundred tasks
#: A run makes its cells, which takes far longer than reading them: sizes up to this only.
MOST_RUN = 300
CHECKED = ("ula", "mala", "svgd")
#: Of two dimensions and alike in cost; the first 1, 3 and 9 are checked.
CHECKED_ON = ("banana", "multimodal", "x-shaped", "gmm5-2d", "correlated-2d", "monomial-gamma", "student-t", "gmm2-2d",
              "lapd-mixture-2")  # fmt: skip


def suite(labels: int) -> dict[str, Any]:
    """Cells of a few steps: one task, so many labels of SVGD."""
    methods = [{"name": "svgd", "label": f"svgd {i}", "settings": {"step_size": 0.01 * (i + 1)}} for i in range(labels)]
    return {"name": "growth", "tasks": ["multimodal"], "algorithms": methods, "replicates": 2, "particles": 20,
            "budget": {"iterations": 20}}  # fmt: skip


def fill(root: Path, cells: int) -> None:
    """A store with a run of that many cells, of which one was run."""
    made = Suite.model_validate(suite(1))
    with tempfile.TemporaryDirectory() as scratch:
        found = run_cells(
            expand(made), Store(Path(scratch)), InProcess(), suite=Suite.model_validate(suite(LABELS)).resolved()
        )
        (record,) = found.cells
        curve, samples = found.curve(record), found.samples(record)
    store, records = Store(root), []
    for i, task in enumerate(list(registry.tasks())[: -(-cells // LABELS)]):
        for label in range(min(LABELS, cells - i * LABELS)):
            spec = record.spec.model_copy(update={"task": task, "settings": {"step_size": 0.01 * (label + 1)}})
            values = {**record.model_dump(), "spec": spec.model_dump(), "label": f"svgd {label}", "files": {}}
            records.append(CellRecord.model_validate(values))
            store.write_cell(records[-1], curve, samples)
    listed = [RunCell(spec=r.spec, label=r.label) for r in records]
    store.write_run(found.run.model_copy(update={"cells": listed}))


def spent(*arguments: str) -> tuple[float, float]:
    """Processor seconds and MiB of a command of ``parvibench``."""
    code = "from parvibench.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {said.read().decode()[-2000:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def commands(folder: Path, cells: int) -> dict[str, Callable[[], tuple[float, float]]]:
    """Name -> what runs it on a store of that many cells."""
    store = folder / "store"
    found = {
        "report": lambda: spent("report", "--out", str(store), "--to", str(folder / "page")),
        "merge": lambda: spent("merge", str(store), "--out", str(folder / "merged"), "--to", str(folder / "other")),
    }
    if cells <= MOST_RUN:
        file = folder / "suite.yaml"
        file.write_text(repr(suite(cells)))  # a flow mapping of YAML
        found["run"] = lambda: spent("run", "--suite", str(file), "--out", str(folder / "run"), "--workers", "1")
    return found


def measure(sizes: tuple[int, ...] = SIZES, say: Callable[[str], object] = print) -> Iterator[dict[str, Any]]:
    """One row a command and size."""
    for cells in sizes:
        folder = Path(tempfile.mkdtemp())
        try:
            fill(folder / "store", cells)
            for name, command in commands(folder, cells).items():
                seconds, mib = command()
                row = {"command": name, "cells": cells, "seconds": seconds, "MiB": mib}
                say(table_row(row))
                yield row
        finally:
            shutil.rmtree(folder)
    for count in (1, 3, 9):
        asked = [part for name in CHECKED for part in ("-a", name)]
        asked += [part for name in CHECKED_ON[:count] for part in ("-t", name)]
        with tempfile.TemporaryDirectory() as scratch:
            file = str(Path(scratch) / "baseline.json")
            seconds, mib = spent("check", *asked, "--baseline", file, "--update", "--seed", "1", "--workers", "0")
        row = {"command": "check", "cells": count * len(CHECKED), "seconds": seconds, "MiB": mib}
        say(table_row(row))
        yield row


def table_row(row: dict[str, Any]) -> str:
    """A row of the Markdown table."""
    each = 1000 * row["seconds"] / row["cells"]
    return f"| {row['command']} | {row['cells']:,} | {row['seconds']:.1f} | {each:.1f} | {row['MiB']:.0f} |"


def page(rows: list[dict[str, Any]]) -> str:
    """The section of the page."""
    return f"""
## Whole commands over cells

Processor seconds of a process and the most memory that it held; a run makes cells of 20 steps, a check records a
baseline. The aim for
a page of {max(row["cells"] for row in rows):,} cells is {MOST_S:g} s and {MOST_MIB:,.0f} MiB.

| command | cells | seconds | ms a cell | MiB |
|---|---|---|---|---|
{chr(10).join(map(table_row, rows))}
"""


if __name__ == "__main__":
    say = functools.partial(print, file=sys.stderr, flush=True)
    print(page(list(measure(tuple(map(int, sys.argv[1:])) or SIZES, say))))
