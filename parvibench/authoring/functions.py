"""A generator function of one replicate as a sampler: ``pb.sampler``."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import create_model
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Kind
from parvibench.core.errors import BudgetExhausted, InputError, ShapeError
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

#: Points, scores and densities: a call returns the kind of array that it gets.
Array = TypeVar("Array", Tensor, NDArray[np.floating])
#: ``fn(problem, x0, generator, *, setting=default)``: yields states (n, d), one per step, until it is stopped.
Sampling = Callable[..., Iterator[Any]]


class OneReplicate:
    """A problem of one replicate on states (n, d), torch or NumPy.

    Every call is one of the problem's own and charged as such: n rows. ``BudgetExhausted`` comes through.
    """

    def __init__(self, problem: Problem) -> None:
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
        """Log density and score on all data at the price of one score, ((n,), (n, d))."""
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


class Running(NamedTuple):
    """Last state of a function and the generator that yields the next."""

    x: Tensor  # (1, n, d)
    states: Iterator[Any]


class FunctionSampler(Algorithm[AlgorithmSettings, Running]):
    """Base of the classes that ``sampler`` makes; ``function`` is the user's."""

    max_chunk = 1
    differentiates = True
    resumable = False  # a generator cannot be saved: an interrupted chunk starts again
    host_bound = True
    function: Sampling

    def init(self, problem: Problem, settings: Any, streams: Streams, horizon: int) -> Running:
        """The generator, begun at the task's initial points."""
        x = problem.init()
        generator = streams.generator("algorithm", streams.replicates[0], "function")
        made = type(self).function(OneReplicate(problem), x[0].clone(), generator, **dict(settings))
        if not hasattr(made, "__next__"):
            raise InputError(f"{self.name}: the function returned {type(made).__name__}; it must yield states")
        return Running(x, made)

    def step(self, problem: Problem, settings: Any, state: Running, streams: Streams) -> Running:
        """The next state; ``BudgetExhausted`` where the function has ended, ``InputError`` in its first steps."""
        try:
            found = next(state.states)
        except StopIteration:
            if streams.step < _LEAST_STATES:
                told = f"the function ended after {streams.step} states; it should yield one a step until it is stopped"
                raise InputError(f"{self.name}: {told}") from None
            raise BudgetExhausted(f"{self.name} ended") from None
        x = as_points(problem, found).detach().clone().unsqueeze(0)
        if x.shape != state.x.shape:
            shape = tuple(state.x.shape[1:])
            raise ShapeError(f"{self.name}: expected states of shape {shape}, as x0; got {tuple(x.shape[1:])}")
        return Running(x, state.states)


_LEAST_STATES = 3  #: States that every function must yield: a run is preceded by a trial of two steps.


def sampler(
    function: Sampling | None = None,
    /,
    *,
    name: str = "",
    kind: Kind = "chains",
    full_batch: bool = False,
    summary: str = "",
) -> Any:
    """Make an algorithm of a generator function; also a decorator, with or without arguments.

    Args:
        function: takes ``problem`` (a ``OneReplicate``: ``score``, ``log_density`` on (n, d), all charged), ``x0`` (n, d)
            and a ``torch.Generator`` of the replicate, and yields states of x0's shape, torch or NumPy, one a step. Further
            arguments need defaults: they are the settings, typed by annotation or default.
        name: in tables; default the function's.
        kind: ``chains`` (x0 are n parallel chains) or ``particles``.
        full_batch: True where mini-batch scores would be wrong, as in accept-reject steps.
        summary: one line; default the first of the docstring.

    The budget ends the function by ``BudgetExhausted`` out of a call of the problem; its last state is the result. Replicates
    run one at a time; an interrupted run starts its unfinished chunks again, since generators cannot be saved.

    Raises:
        InputError: not a function of that form.
    """
    if function is None:
        return lambda f: sampler(f, name=name, kind=kind, full_batch=full_batch, summary=summary)
    if not callable(function) or isinstance(function, type):
        raise InputError(f"pb.sampler takes a function of (problem, x0, generator), got {function!r}")
    called = name or getattr(function, "__name__", "sampler").strip("_").replace("_", "-")
    settings = settings_of_function(function, called, ("problem", "x0", "generator"))
    needs = frozenset({"score", "full-batch"} if full_batch else {"score"})
    members = {"kind": kind, "settings_type": settings, "needs": needs, "function": staticmethod(function)}
    return made(FunctionSampler, function, called, summary, members)


def made(
    base: type[Algorithm], function: Callable[..., Any], name: str, summary: str, members: dict[str, Any]
) -> Algorithm:
    """An object of a class of these members on ``base``, documented as a user's function is; ``InputError`` for another kind."""
    if members["kind"] not in get_args(Kind)[:2]:
        raise InputError(f"{name}: a sampler of this form makes chains or particles, not {members['kind']!r}")
    doc = inspect.getdoc(function)
    described = {"name": name, "summary": summary or (doc or "").split("\n")[0]}
    place = {"__module__": getattr(function, "__module__", __name__), "__doc__": doc}
    return type(f"Sampler_{name.replace('-', '_')}", (base,), members | described | place)()


def settings_of_function(function: Callable[..., Any], name: str, first: Sequence[str]) -> type[AlgorithmSettings]:
    """The settings that a function's further arguments are; ``InputError`` where it does not take the first ones."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < len(first):
        raise InputError(
            f"{name}: the function must take ({', '.join(first)}), and takes {inspect.signature(function)}"
        )
    try:
        hints = get_type_hints(function)
    except Exception:  # names that only a type checker imports
        hints = {}
    fields: dict[str, Any] = {}
    for p in parameters[len(first) :]:
        if p.default is p.empty:
            raise InputError(f"{name}: the argument {p.name} is a setting and needs a default")
        fields[p.name] = (hints.get(p.name, type(p.default)), p.default)
    return create_model(f"{name}-settings", __base__=AlgorithmSettings, **fields)
