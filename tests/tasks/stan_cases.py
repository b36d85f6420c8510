"""Posteriors against Stan: programs, data and points, and the values that `stan_values.json` stores.

    python stan_cases.py [TASK...]    compares these tasks (all) with Stan at 100 points each, stores a few values of Stan's

`PARVIBENCH_STAN_PYTHON` names a Python that has PyStan 3, by default the one that runs.
"""

import json
import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parvibench.core import registry
from parvibench.core.registry import load_task
from parvibench.core.task import Task

HERE = Path(__file__).parent
VALUES = HERE / "stan_values.json"
STAN_PYTHON = os.environ.get("PARVIBENCH_STAN_PYTHON", sys.executable)
STORED = 4
NAMES = sorted(path.stem for path in (HERE / "stan").glob("*.stan"))
#: Largest difference allowed, relative, where not 1e-8: an integrator of differential equations has its own errors, and the
#: kernel of gp-pois-regr is singular to 12 digits (8e-9 was measured).
TOLERANCE = {"lotka-volterra": 1e-5, "gp-pois-regr": 1e-7}
#: Where Stan's start says little: centre and half width of the points instead of 0 and 2.
BOXES = {
    "glmm-poisson": ([0.0, 0.0, -1.0, *[0.0] * 42], 1.6),  # beta2 <= 10, above which there is no density
    "lotka-volterra": ([-0.607, -3.576, -0.223, -3.730, 3.523, 1.783, -1.386, -1.386], 0.2),
}
#: Sizes that the data of a program do not have as variables, by the start of the task's name.
SIZES = {"eight": {"J": 8}, "german": {"N": 1000, "D": 25}}


def points(task: Task, n: int) -> Tensor:
    """Points (n, D) by formula, in Stan's box of starts or a box of the task's own: the same on every machine."""
    i, j = (torch.arange(1, m + 1, dtype=torch.float64) for m in (n, task.dim))
    u = (i[:, None] * math.sqrt(2) + j * math.sqrt(3) + i[:, None] * j * math.sqrt(5)) % 1
    centre, width = BOXES.get(task.name, ([0.0], 2.0))
    return torch.tensor(centre, dtype=torch.float64) + width * (2 * u - 1)


def directions(dim: int) -> Tensor:
    """Two fixed vectors, (2, D): what is stored of a score are its products with them."""
    k = torch.arange(1, dim + 1, dtype=torch.float64)
    return torch.stack([k.cos(), (k * math.sqrt(7)).sin()])


def ours(task: Task, x: Tensor) -> tuple[Tensor, Tensor]:
    """Log densities (n,) and scores (n, D) of a task in float64."""
    density, score = task.target((0,), "cpu", torch.float64).log_density_and_score(x[None])
    return density[0], score[0]


@cache
def has_stan() -> bool:
    """Whether there is a Python with PyStan."""
    return subprocess.run([STAN_PYTHON, "-c", "import stan"], capture_output=True).returncode == 0


def stans(task: Task, x: Tensor) -> tuple[Tensor, Tensor]:
    """Log densities (n,) and scores (n, D) by Stan."""
    given = json.dumps({"data": _data(task), "points": x.tolist()})
    command = [STAN_PYTHON, str(HERE / "stan_oracle.py"), str(HERE / "stan" / f"{task.name}.stan")]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    return torch.tensor(found["log_density"], dtype=torch.float64), torch.tensor(found["score"], dtype=torch.float64)


def _data(task: Task) -> dict:
    """Variables as Stan takes them, and the sizes that only programs need."""
    return {k: _as_stan_takes(v) for k, v in task.variables().items()} | SIZES.get(task.name.partition("-")[0], {})


def _as_stan_takes(value: np.ndarray) -> list | int | float:
    """Whole numbers as integers: Stan takes integers for reals, but not the reverse."""
    return value.astype(int).tolist() if (value == value.round()).all() else value.tolist()


def differences(task: Task, x: Tensor, stan: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Largest relative differences of densities, up to a constant, and of scores."""
    density, score = ours(task, x)
    least = stan[0].abs().argmin()
    shift = density[least] - stan[0][least]
    of_density = (density - shift - stan[0]).abs() / stan[0].abs().clamp_min(1)
    of_score = (score - stan[1]).abs().amax(-1) / stan[1].abs().amax(-1).clamp_min(1)
    return float(of_density.max()), float(of_score.max())


def stored_values() -> dict[str, dict[str, list]]:
    """Task -> Stan's densities (4,) and products of its scores (4, 2) at the first points."""
    return json.loads(VALUES.read_text()) if VALUES.is_file() else {}


def _store(name: str) -> None:
    task = load_task(name)
    x = points(task, 100)
    stan = stans(task, x)
    of_density, of_score = differences(task, x, stan)
    least, most = float(stan[0].min()), float(stan[0].max())
    print(
        f"{name:28} D={task.dim:<6} density {of_density:.1e}  score {of_score:.1e}  ({least:.3g} .. {most:.3g})",
        flush=True,
    )
    if max(of_density, of_score) <= TOLERANCE.get(name, 1e-8):
        products = (stan[1] @ directions(task.dim).T)[:STORED]
        row = {"log_density": stan[0][:STORED].tolist(), "score": products.tolist()}
        lines = [f' "{k}": {json.dumps(v)}' for k, v in sorted((stored_values() | {name: row}).items())]
        VALUES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or [n for n in NAMES if n in registry.tasks()]:
        _store(name)
