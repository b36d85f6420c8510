"""The meter charges known calls of a problem as the rules say."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

_ROWS, _BATCH = 7, 12
_SHARE = _BATCH / (load_task("linear-regression").rows or 1)
_REPLICATES = (0, 1, 2)

Call = Callable[[Problem, Tensor], object]
#: Calls of a problem at points that can be differentiated.
CALLS: dict[str, Call] = {
    "score": lambda problem, x: problem.score(x.detach()),
    "hessian_product": lambda problem, x: torch.autograd.grad(problem.score(x).sum(), x),
    "both": lambda problem, x: problem.log_density_and_score(x.detach()),
    "log_density": lambda problem, x: problem.log_density(x.detach()),
    "differentiated": lambda problem, x: torch.autograd.grad(problem.log_density(x).sum(), x),
}


@pytest.mark.parametrize(
    ("call", "batch", "charge"),
    [
        ("score", None, 1.0),
        ("score", _BATCH, _SHARE),
        ("hessian_product", None, 2.0),  # which counts its score too
        ("hessian_product", _BATCH, 2 * _SHARE),
        ("both", None, 1.0),
        ("log_density", None, 1.0),
        ("differentiated", None, 1.0),
    ],
)
def test_charge(call: str, batch: int | None, charge: float) -> None:
    """Rows times the share of the data."""
    task = load_task("linear-regression")
    streams = Streams(1, _REPLICATES, "cpu", torch.float64)
    target = task.target(_REPLICATES, "cpu", torch.float64)
    problem = Problem(target, streams, start=task.initial, particles=_ROWS, batch_size=batch)
    CALLS[call](problem, problem.init().requires_grad_())
    assert problem.meter.charged == pytest.approx(_ROWS * charge, rel=1e-9)
