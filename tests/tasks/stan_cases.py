"""Posteriors against Stan: programs, data and points, and Stan's densities and scores in a task's own coordinates."""

import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.distributions.transforms import StickBreakingTransform

from parvibench.core.task import Task
from parvibench.targets.stan_programs import StanModel, read

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "stan").glob("*.stan"))
#: Largest difference allowed, relative, where not 1e-8: an integrator of differential equations has its own errors.
TOLERANCE = {"lotka-volterra": 1e-5}
#: Where Stan's start says little: centre and half width of the points instead of 0 and 2.
BOXES = {
    "glmm-poisson": ([0.0, 0.0, -1.0, *[0.0] * 42], 1.6),  # beta2 <= 10, above which there is no density
    "lotka-volterra": ([-0.607, -3.576, -0.223, -3.730, 3.523, 1.783, -1.386, -1.386], 0.2),
}
#: Sizes that the data of a program do not have as variables, by the start of the task's name.
SIZES = {"eight": {"J": 8}, "german": {"N": 1000, "D": 25}}
#: Of the three tasks with simplexes: densities (4,) of Stan 2.36 at the first points, and its scores times ``directions``, (4, 2).
VALUES_OF_2_36 = json.loads((HERE / "stan_values.json").read_text())


def points(task: Task, n: int) -> Tensor:
    """Points (n, D) by formula, in Stan's box of starts or a box of the task's own: the same on every machine."""
    i, j = (torch.arange(1, m + 1, dtype=torch.float64) for m in (n, task.dim))
    u = (i[:, None] * math.sqrt(2) + j * math.sqrt(3) + i[:, None] * j * math.sqrt(5)) % 1
    centre, width = BOXES.get(task.name, ([0.0], 2.0))
    return torch.tensor(centre, dtype=torch.float64) + width * (2 * u - 1)


def directions(dim: int) -> Tensor:
    """Two fixed vectors, (2, D)."""
    k = torch.arange(1, dim + 1, dtype=torch.float64)
    return torch.stack([k.cos(), (k * math.sqrt(7)).sin()])


def ours(task: Task, x: Tensor) -> tuple[Tensor, Tensor]:
    """Log densities (n,) and scores (n, D) of a task in float64."""
    density, score = task.target((0,), "cpu", torch.float64).log_density_and_score(x[None])
    return density[0], score[0]


def stans(task: Task, x: Tensor) -> tuple[Tensor, Tensor]:
    """Log densities (n,) and scores (n, D) by Stan at points in the task's coordinates."""
    data = {k: _as_stan_takes(v) for k, v in task.variables().items()} | SIZES.get(task.name.partition("-")[0], {})
    model = StanModel(read(HERE / "stan" / f"{task.name}.stan"), json.dumps(data))
    leaf = x.clone().requires_grad_()
    y, shift = _of_today(task, leaf)
    density, score = model.both(y)
    (slopes,) = torch.autograd.grad((score * y).sum() + shift.sum(), leaf)
    return density + shift.detach(), slopes


def _of_today(task: Task, x: Tensor) -> tuple[Tensor, Tensor]:
    """Today's coordinates of the same values, and the difference of the logarithms of the Jacobians, up to a constant.

    A simplex by stick-breaking becomes isometric log ratios, whose Jacobian is the product of its K values.
    """
    parts, shift = [], torch.zeros(len(x), dtype=x.dtype)
    for parameter in task.layout.parameters:
        u = x[:, task.layout.places[parameter.name]]
        if parameter.constraint.missing:
            stick, i = StickBreakingTransform(), torch.arange(1, u.shape[1] + 1, dtype=x.dtype)
            share = stick(u)
            logs = share.log()
            shift = shift + stick.log_abs_det_jacobian(u, share) - logs.sum(1)
            u = (logs.cumsum(1)[:, :-1] - i * logs[:, 1:]) / (i * (i + 1)).sqrt()
        parts.append(u)
    return torch.cat(parts, 1), shift


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
