"""No step of an algorithm, and no score of a task, makes the host wait for the device."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from device_guard import DeviceGuard, ShapeStreams, WouldWaitError
from few import every
from sampler_toys import VARIANTS, Run
from torch import Tensor
from torch.utils._pytree import tree_leaves

from parvibench.core import registry
from parvibench.core.errors import DataMissingError
from parvibench.core.sequential import SequentialTask
from parvibench.core.task import Problem, Task
from parvibench.data import fetch

FREE = [
    name
    for name, row in registry.algorithms().items()
    if row.kind != "anchor" and not registry.load_algorithm(name).host_bound
]
x = torch.empty(3, 4, 2, device="meta")
mask = torch.empty(3, 4, dtype=torch.bool, device="meta")
square = torch.empty(2, 2, device="meta")
HAZARDS: dict[str, Callable[[], Any]] = {
    "item": lambda: x.sum().item(),
    "float": lambda: float(x.sum()),
    "branch": lambda: 1 if mask.any() else 2,
    "tolist": lambda: x.tolist(),
    "nonzero": lambda: mask.nonzero(),
    "mask": lambda: x[mask],
    "mask set": lambda: x.__setitem__(mask, 0.0),
    "where": lambda: torch.where(mask),
    "unique": lambda: x.unique(),
    "to host": lambda: x.cpu(),
    "from host": lambda: torch.ones(2).to(x.device),
    "host index": lambda: x[:, torch.arange(2)],
    "constant": lambda: torch.tensor([1.0, 2.0], device="meta"),
    "new_tensor": lambda: x.new_tensor([1.0, 2.0]),
    "equal": lambda: torch.equal(x, x),
    "cholesky": lambda: torch.linalg.cholesky(square),
    "inverse": lambda: square.inverse(),
}


def shapes_of(task: Task, batch_size: int | None) -> Problem:
    """A problem that has shapes and no numbers."""
    replicates = (0, 1)
    target = task.target(replicates, "meta", torch.float32)
    return Problem(target, ShapeStreams(replicates), start=task.initial, particles=6, batch_size=batch_size)


@pytest.mark.parametrize("hazard", HAZARDS)
def test_the_guard_finds(hazard: str) -> None:
    with pytest.raises((WouldWaitError, RuntimeError, NotImplementedError)), DeviceGuard():
        HAZARDS[hazard]()


def test_the_guard_lets_pass_what_needs_no_number() -> None:
    with DeviceGuard():
        y = torch.where(mask.unsqueeze(-1), x + 2.0, x.new_full((1,), 0.5)).clamp_(min=0)
        index = torch.arange(2, device=x.device)
        assert (y[:, index] @ square).shape == (3, 2, 2)


@pytest.mark.parametrize(
    ("name", "settings"),
    [(n, {}) for n in FREE] + [pytest.param(*v, marks=pytest.mark.slow) for v in VARIANTS if v[0] in FREE],
    ids=lambda v: v if isinstance(v, str) else str(v),
)
@pytest.mark.parametrize("task_name", ["gmm5-2d", pytest.param("bnn-diabetes-sklearn", marks=pytest.mark.slow)])
def test_a_step_never_waits_for_the_device(name: str, settings: dict[str, Any], task_name: str) -> None:
    task, algorithm = registry.load_task(task_name), registry.load_algorithm(name)
    if algorithm.needs - task.provides:
        pytest.skip(f"{task_name} lacks what {name} needs")
    problem = shapes_of(task, None if "full-batch" in algorithm.needs else task.batch_size)
    problem.streams.batch(task.rows or 7, 3)  # an epoch's shuffle comes from the host, once an epoch
    run = Run(name, problem, **settings).steps(1)  # the first step may set up what later ones use
    with DeviceGuard():
        run.steps(2)
    assert all(field.device.type == "meta" for field in tree_leaves(run.state) if isinstance(field, Tensor))


#: Its integrator takes thousands of operations, each of which the guard looks at: as long as all others.
_LONG = "lotka-volterra"
#: A task of every file of tasks.
_ONE_A_FILE = (
    "gmm5-2d", "banana", "correlated-2d", "student-t", "diffusion-100", "linear-regression", "blr-breast-cancer", "ica-synthetic",
    "bnn-diabetes-sklearn", "bnn-boston-sifg", "bandit-wheel", "eight-schools-centered", "sblri", "seeds", "wells", "radon-centered",
    "gp-regr", "hmm-example", "prostate", "irt-2pl", "election88", "low-dim-gauss-mix", "garch11", "brownian-32", "gmm40-2d",
    "many-well-32", "phi4-100", "student-mixture-50d",
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [*every(_ONE_A_FILE, (t for t in registry.tasks() if t != _LONG)), pytest.param(_LONG, marks=pytest.mark.slow)],
)
def test_no_density_waits_for_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of mini-batches and of all data, densities, and Hessian-vector products where they are offered."""
    task = registry.load_task(name)
    if isinstance(task, SequentialTask):
        pytest.skip("it grows on the host between steps")
    monkeypatch.setattr(fetch, "_download", _refuse, raising=False)
    for batch_size in {None, task.batch_size}:
        try:
            problem = shapes_of(task, batch_size)
        except DataMissingError as missing:
            pytest.skip(str(missing).splitlines()[0])
        x = torch.empty(2, 3, task.dim, device="meta")
        if batch_size is not None:
            problem.score(x)  # the epoch's shuffle
        with torch.inference_mode(), DeviceGuard():
            assert problem.score(x).shape == x.shape
            assert problem.log_density_and_score(x)[0].shape == x.shape[:2]
        if "hvp" in task.provides:
            leaf = x.clone().requires_grad_()
            with DeviceGuard():
                assert torch.autograd.grad(problem.score(leaf).sum(), leaf)[0].shape == x.shape


def _refuse(*_: Any) -> None:
    raise DataMissingError("not fetched by a test")
