"""Samplers that see one replicate: a problem on states (n, d), and the base class of samplers that move them."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.utils._pytree import tree_map

from parvibench.core.algorithm import Algorithm, AlgorithmSettings
from parvibench.core.errors import ShapeError
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

#: Points, scores and densities: what a call is given decides what it gives back.
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


class Held(NamedTuple):
    """What ``UnbatchedSampler.move`` returned, with a first axis of one replicate."""

    x: Tensor  # (1, n, d)
    rest: Any  # the whole state where it is more than positions


class UnbatchedSampler(Algorithm[AlgorithmSettings, Held]):
    """Base of samplers whose code is about one replicate: states are (n, d), the generator is theirs.

    ``move`` gives the next positions, (n, d), torch or NumPy; or, for a sampler that remembers more, a NamedTuple of
    tensors and numbers whose first field is ``x`` (n, d), such as ``start`` then gives too. All that it needs must be in
    there: the generator is a fresh one at every step, seeded by the step's address, so runs resume to the same bits.
    Replicates go through one at a time, which is slower than a batched ``Algorithm`` where states are small.
    """

    kind = "chains"
    max_chunk = 1
    differentiates = True  # ``move`` may use autograd
    full_batch: ClassVar[bool] = False  #: True where mini-batch scores would be wrong, as in accept-reject steps

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.full_batch:
            cls.needs = cls.needs | {"full-batch"}

    def start(self, problem: OneReplicate, settings: Any, generator: Generator) -> Any:
        """The first state; by default the task's initial points, (n, d)."""
        return problem.init()

    @abstractmethod
    def move(self, problem: OneReplicate, settings: Any, state: Any, generator: Generator) -> Any:
        """The state after one more step."""

    def init(self, problem: Problem, settings: Any, streams: Streams, horizon: int) -> Held:
        """``start``, with a first axis."""
        return _held(problem, self.start(OneReplicate(problem), settings, _generator(streams, "start")))

    def step(self, problem: Problem, settings: Any, state: Held, streams: Streams) -> Held:
        """``move``, with a first axis."""
        one = state.x[0] if state.rest is None else tree_map(lambda t: t[0] if isinstance(t, Tensor) else t, state.rest)
        moved = self.move(OneReplicate(problem), settings, one, _generator(streams, streams.step))
        return _held(problem, moved, state.x.shape)


def _held(problem: Problem, state: Any, shape: torch.Size | None = None) -> Held:
    whole = isinstance(state, tuple) and hasattr(state, "_fields")
    x = as_points(problem, state[0] if whole else state).detach().unsqueeze(0)
    if shape is not None and x.shape != shape:
        raise ShapeError(f"expected states of shape {tuple(shape[1:])}, as at the start; got {tuple(x.shape[1:])}")
    batch = lambda t: t.detach().unsqueeze(0) if isinstance(t, Tensor) else t  # noqa: E731
    return Held(x, tree_map(batch, state) if whole else None)


def _generator(streams: Streams, block: int | str) -> Generator:
    return streams.generator("algorithm", streams.replicates[0], f"unbatched-{block}")
