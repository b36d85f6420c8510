"""A stranger's plug-in in a sandbox: without network, with a read-only file system and a folder of its own to write.

The sandbox is bubblewrap (``bwrap``, Linux). Inside are the system's libraries, the Python installation and this package,
read-only; home folders, other files and environment variables are not there. In it this module runs one cell with the same
workers and limits as any run (``python -m parvibench.harness.isolation``).
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from parvibench.core.errors import InputError, StoreError
from parvibench.core.result import CellSpec
from parvibench.harness.execution import Execution
from parvibench.harness.session import make_executor, run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/passwd", "/etc/localtime")
#: Where the sandbox has the writable folder.
_WORK = "/sandbox"
#: Largest file that a plug-in may write, bytes.
_LARGEST_FILE = 2 * 2**30
#: Seconds added to the limits of all chunks, for starting and for metrics.
_SPARE_S = 300.0


def sandboxed(command: Sequence[str], work: Path) -> list[str]:
    """The command in a sandbox, with the folder ``work`` as ``/sandbox``.

    Raises:
        InputError: no bubblewrap, or it may not make namespaces here.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise InputError(
            "plug-ins run only in a sandbox: install bubblewrap (bwrap, Linux), or leave --run-plugins out"
        )
    packages = [str(files(name)) for name in ("parvibench", "parvibench.tasks", "parvibench.baselines")]
    roots = dict.fromkeys([*_SYSTEM, sys.base_prefix, sys.prefix, *filter(os.path.isdir, sys.path), *packages])
    words = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    for root in roots:
        words += ["--ro-bind-try", root, root]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", str(work), _WORK]
    for name, value in {"HOME": "/tmp", "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{_WORK}/plugins"}.items():
        words += ["--setenv", name, value]
    probe = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise InputError(f"plug-ins run only in a sandbox, which this machine refuses: {probe.stderr.strip()[:200]}")
    return [*words, "--chdir", f"{_WORK}/plugins", *command]


def run_isolated(cell: Cell, store: Store, sources: Path, execution: Execution) -> str:
    """Run a plug-in's cell in a sandbox and put the result into the store; why there is none, or empty.

    Args:
        cell: its algorithm is named by its place in ``sources``.
        store: gets the cell as the sandbox's store has it.
        sources: folder of the plug-in's source, copied into the sandbox.
        execution: limits of a chunk.

    Raises:
        InputError: no sandbox on this machine.
    """
    with TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(sources, work / "plugins")
        asked = {"spec": cell.spec.model_dump(mode="json"), "label": cell.label, "metrics": cell.metrics}
        (work / "cell.json").write_text(json.dumps(asked), encoding="utf-8")
        limit = execution.timeout * len(cell.chunks) + _SPARE_S
        command = sandboxed([sys.executable, "-m", __name__, str(execution.timeout)], work)
        limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=limit, check=False, preexec_fn=limited
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"not finished after {limit:.0f} s"
        made = Store(work / "store")
        try:
            record = made.find(cell.key)
            if record is None:
                return done.stderr.strip()[-500:] or f"the sandbox ended with code {done.returncode}"
            store.write_cell(record, made.curve(cell.key), made.samples(cell.key))
        except StoreError as error:
            return str(error)
        return record.reason


def _run_here(timeout: float) -> None:
    """In the sandbox: run the cell of ``cell.json``."""
    work = Path(_WORK)
    asked = json.loads((work / "cell.json").read_text(encoding="utf-8"))
    cell = Cell(CellSpec.model_validate(asked["spec"]), asked["label"], tuple(asked["metrics"]))
    executor = make_executor(Execution(workers=1, timeout=timeout), cell.spec.device)
    run_cells([cell], Store(work / "store"), executor, suite={"name": "sandbox"})


if __name__ == "__main__":
    _run_here(float(sys.argv[1]))
