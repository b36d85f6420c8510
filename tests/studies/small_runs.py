"""Small runs for the studies: a suite, its run into a store, the command line in a process of its own."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parvibench.harness.session import run_cells
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.executors import InProcess

CODE = "from parvibench.cli import main; main()"


def suite_of(tasks: Sequence[str], algorithms: Sequence[Any], **values: Any) -> Suite:
    """A suite of these tasks and algorithms."""
    return Suite.model_validate({"name": "study", "tasks": tasks, "algorithms": algorithms, **values})


def run(suite: Suite, root: Path, executor: Any = None, observers: Sequence[Any] = ()) -> StoredRun:
    """Run the suite into the store at ``root``; by default in this process."""
    return run_cells(expand(suite), Store(root), executor or InProcess(), suite=suite.resolved(), observers=observers)


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Exit code and output of ``parvibench`` with these arguments."""
    command = [sys.executable, "-c", CODE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
