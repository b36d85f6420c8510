"""Which heavy libraries may each command import: what it does not need costs its user seconds at every call."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HEAVY = {"torch", "scipy.stats", "pandas", "ot", "sklearn", "arviz_stats", "mlflow", "matplotlib", "pyarrow"}
PROGRAM = """
import os, sys
sys.argv, heavy, out = ["parvibench", *sys.argv[2:]], sys.argv[1].split(), sys.stdout
sys.stdout = open(os.devnull, "w")
from parvibench.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(set(heavy) & sys.modules.keys()), file=out)
"""
#: Command -> the heavy libraries that it imports.
ALLOWED = {
    "list tasks": set(), "show task bnn-yacht": set(), "show algorithm svgd": set(), "show metric w2": set(), "doctor": set(),
    "evaluate --task banana x.npy": {"torch"},
}  # fmt: skip


@pytest.mark.parametrize("command", ALLOWED)
def test_a_command_imports_what_it_needs(command: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(200, 2)))
    call = [sys.executable, "-c", PROGRAM, " ".join(HEAVY), *command.split()]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    allowed = ALLOWED[command] | ({"torch"} if Path("/dev/nvidiactl").exists() and command == "doctor" else set())
    assert set(done.stdout.split()) == allowed


def test_the_solver_of_transport_leaves_the_package_as_it_was() -> None:
    code = (
        "import sys; from parvibench.metrics.transport import pot; solver, utils = pot(); assert 'ot' not in sys.modules\n"
        "assert 'sklearn' not in sys.modules; import ot; assert ot.emd2 is solver.emd2 and ot.dist is utils.dist; print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr
