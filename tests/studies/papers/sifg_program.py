"""SIFG's public program for SGLD on networks, run next to ours: ``python tests/studies/papers --program FOLDER [SET ...]``.

The paper states no settings of SGLD; those of its public program are our rows'. That settings are the same shows nothing: the
program is run here itself, from a folder outside the project that holds the authors' ``sgld_bnn.py``, ``models``, ``data``
and ``permutation`` (github.com/ShiyueZhang66/Semi-Implicit_Functional_Gradient_Flow, "Bayesian Neural Networks"). Nothing of
it is copied or changed; it takes the set in place of the one that it names, and a seed, which it does not set itself.

Writes ``program.csv``: the program's numbers after its model selection, a published number a line.
"""

import logging
import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from numpy._core.multiarray import _reconstruct

from .kinds import add_lines
from .replicates import Ours

#: Data set in the paper's words -> in the program's.
SETS = {
    "Boston": "boston",
    "Diabetes": "diabetes",
    "WINE": "wine",
    "Concrete": "concrete",
    "Power": "ccpp",
    "Protein": "protein",
}
#: What a file of the program's permutations holds; nothing else is unpickled.
ARRAY = [
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    np.ndarray,
    np.dtype,
    np.dtypes.Int64DType,
    np.dtypes.Int32DType,
]
SETTINGS = {"epsilon_0": 5e-5, "alpha": 0, "data_batch_size": 100, "loop": 10_000}  # as the program has them


def run(folder: Path, name: str, seed: int) -> tuple[float, float]:
    """RMSE and NLL of one run of the program."""
    with chdir(folder):
        sys.path.insert(0, str(folder))
        try:
            program = _runner(folder / "sgld_bnn.py")
            config = SimpleNamespace(
                device="cpu", data_name=name, permutation_path=f"permutation/{name}_permutation.pt", **SETTINGS
            )
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - the program draws from it
            lines: list[str] = []
            handler = logging.Handler()
            handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
            logger = logging.getLogger()
            logger.setLevel(logging.INFO)
            logger.addHandler(handler)
            with torch.serialization.safe_globals(ARRAY):
                program(config).train()
            logger.removeHandler(handler)
        finally:
            sys.path.remove(str(folder))
    last = next(line for line in reversed(lines) if "after model selection" in line)
    rmse, log_likelihood = (float(part.partition(":")[2]) for part in last.split("selection:")[1].split(","))
    return rmse, -log_likelihood


def _runner(file: Path) -> type:
    """The program's class; its last line, which starts ten runs on one set, finds nothing to do."""
    source = file.read_text(encoding="utf-8").rstrip()
    if not source.endswith("\nmain()"):
        raise ValueError(f"{file} is not the program that this study knows")
    module: dict[str, object] = {"__name__": "sgld_bnn"}
    exec(compile(source.removesuffix("\nmain()"), str(file), "exec"), module)
    found = module["SGLD_BNN"]
    assert isinstance(found, type)
    return found


def measure(folder: Path, out: Path, named: Sequence[str] = (), seeds: Sequence[int] = (0, 1, 2)) -> None:
    """Run the sets that are named, or all; the table is written after each."""
    torch.set_num_threads(1)
    command = "python tests/studies/papers --program FOLDER"
    for dataset in named or SETS:
        values = np.array([run(folder, SETS[dataset], seed) for seed in seeds])
        lines = []
        for metric, column in zip(("RMSE", "NLL"), values.T, strict=True):
            o = Ours.of(list(column))
            pointer = f"sifg/table-1/{dataset}/SGLD/{metric}"
            spread = float(np.std(column, ddof=1))
            lines.append((pointer, o.mean, o.low, o.high, o.n, spread, command))
        new = pd.DataFrame(lines, columns=["pointer", "mean", "low", "high", "n", "spread", "note"])
        add_lines(new, out)
        print(new.to_string(), flush=True)
