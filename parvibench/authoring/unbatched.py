"""A problem of one replicate, on states (n, d), for samplers that are written as functions."""

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.errors import ShapeError
from parvibench.core.task import Problem

#: Points, scores and densities: a call returns the kind of array that it gets.
Array = TypeVar("Array", Tensor, NDArray[np.floating])


class OneReplicate:
    """A problem of one replicate on states (n, d), torch or NumPy.

    Every call is one of the problem's own and charged as such: n rows. ``BudgetExhausted`` comes through.
    """

    def __init__(self, problem: Problem) -> None:
        if problem.replicates != 1:
            raise ShapeError(f"expected one replicate, got {problem.replicates}")
        self._problem = problem
        self.dim, self.particles = problem.dim, problem.particles  #: d and the protocol's n

    def init(self, n: int | None = None) -> Tensor:
        """The task's initial points, (n, d)."""
        return self._problem.init(n)[0]

    def log_density(self, x: Array) -> Array:
        """Unnormalised log density, (n, d) -> (n,)."""
        return _like(x, self._problem.log_density(self._batch(x))[0])

    def score(self, x: Array) -> Array:
        """Gradient of the log density, on the protocol's mini-batch where it has one, (n, d) -> (n, d)."""
        return _like(x, self._problem.score(self._batch(x))[0])

    def log_density_and_score(self, x: Array) -> tuple[Array, Array]:
        """Both on all data at the price of one score, ((n,), (n, d))."""
        density, score = self._problem.log_density_and_score(self._batch(x))
        return _like(x, density[0]), _like(x, score[0])

    def _batch(self, x: Any) -> Tensor:
        return as_points(self._problem, x).unsqueeze(0)


def as_points(problem: Problem, x: Any) -> Tensor:
    """States (n, d) of one replicate as the problem's kind of tensor; ``ShapeError`` for anything else."""
    found = torch.as_tensor(x, dtype=problem.dtype, device=problem.device)
    if found.dim() != 2 or found.shape[1] != problem.dim:
        raise ShapeError(f"expected states of shape (n, {problem.dim}), got {tuple(found.shape)}")
    return found


def _like(given: Any, found: Tensor) -> Any:
    if isinstance(given, Tensor):
        return found
    return found.detach().cpu().numpy().astype(np.asarray(given).dtype, copy=False)
