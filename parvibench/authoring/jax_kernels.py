"""A sampler of JAX kernels: ``pb.jax_sampler``.

On a target that is written in JAX (``Target.in_jax``) a block of steps of all chains is one compiled scan; every step is
charged the evaluations that its chains made (``jax_programs.counting``) when the harness takes it, so that a budget ends
where it would be overrun, at the price of a block that is computed in part for nothing. On other targets, and where
evaluations cannot be counted in compiled code, the log density is a callback (``jax_programs.by_callback``), and a block
is one step. JAX computes in double precision, whatever the problem's.
"""

import inspect
from collections import namedtuple
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Exact, Kind
from parvibench.core.errors import InputError, ShapeError, UnsupportedError
from parvibench.core.streams import Streams, derive_seed
from parvibench.core.task import Problem
from parvibench.jax_programs.by_callback import Density
from parvibench.jax_programs.counting import counted, recognised
from parvibench.jax_programs.loading import double_jax

from .functions import made, settings_of_function

#: Fields of a kernel's info that are reported, and their names here.
_TOLD = {"acceptance_rate": "acceptance", "is_divergent": "divergences", "num_trajectory_expansions": "tree_depth"}
#: Classes and formulas whose evaluations cannot be counted in compiled code.
_uncounted: set[tuple[type, Any]] = set()
_info = lru_cache(lambda names: namedtuple("Info", names))  #: The class of infos with these fields.
_KEYS = ("rng_key", "key", "random_generator_arg")  #: Names of arguments of ``init`` and ``step``.
_DENSITIES = ("logdensity_fn", "log_density", "logdensity", "logprob_fn", "logp")


class Block(NamedTuple):
    """Steps that were computed together."""

    x: tuple[Tensor, ...]  # one a step, (1, N, D)
    costs: list[tuple[float, float, int]]  # of a step: scores, log densities, calls beyond the first
    told: Any  # means over the block, a NamedTuple of (1,), or None
    inner: Any  # the kernel's states after it


class Running(NamedTuple):
    """Where the chains stand."""

    x: Tensor  # (1, N, D)
    block: Block
    place: int  # steps of the block that were taken


class Program(NamedTuple):
    """A kernel compiled for chains of one shape."""

    start: Callable[..., Any]  # seed, x (N, D), data -> states, scores, values
    #: seed, first step, states, data -> states, (positions, scores, values, diagnostics) with an axis of steps
    run: Callable[..., Any]
    density: Density | None  # where it is a callback


class KernelSampler(Algorithm[AlgorithmSettings, Running]):
    """Base of the classes that ``jax_sampler`` makes; ``make`` is the user's."""

    needs = frozenset({"score", "full-batch"})
    max_chunk = 1  # each replicate is charged its own evaluations
    differentiates = True  # a callback comes on a thread of its own, which knows no inference mode
    resumable = False
    host_bound = True
    make: Callable[..., Any]  #: of the log density, the dimension and settings -> init and step
    position: Callable[[Any], Any]  #: of a state
    block: ClassVar[int]  #: steps of a block

    def init(self, problem: Problem, settings: Any, streams: Streams, horizon: int) -> Running:
        """Chains at the task's initial points; ``LibraryMissingError`` where JAX is not installed."""
        x = problem.init()
        points, seed = x[0].cpu().double().numpy(), self._seed(streams)
        program, (inner, scores, values) = self._called(problem, settings, "start", seed, points)
        if program.density is None:
            _charge(problem, *_costs(scores, values, 1)[0])
        return Running(x, Block((), [], None, inner), 0)

    def step(self, problem: Problem, settings: Any, state: Running, streams: Streams) -> Any:
        """The next step, of a new block where the last one is used up; the last comes with the means of the block."""
        block, place = state.block, state.place
        if place == len(block.x):
            block, place = self._block(problem, settings, block.inner, streams), 0
        if block.costs:
            _charge(problem, *block.costs[place])
        after = Running(block.x[place], block, place + 1)
        return (after, block.told) if block.told is not None and place + 1 == len(block.x) else after

    def _block(self, problem: Problem, settings: Any, inner: Any, streams: Streams) -> Block:
        seed = self._seed(streams)
        program, (inner, found) = self._called(problem, settings, "run", seed, streams.step, inner)
        x, scores, values, told = found
        points = torch.from_numpy(np.array(x)).to(problem.device, problem.dtype).unsqueeze(1)
        if points.shape[2:] != (problem.particles, problem.dim):
            shape = (problem.particles, problem.dim)
            raise ShapeError(f"{self.name}: positions of shape {tuple(points.shape[2:])}, expected {shape}")
        means = points.new_tensor([[float(np.asarray(v).mean())] for v in told.values()])
        told = _info(tuple(told))(*means) if told else None
        costs = [] if program.density is not None else _costs(scores, values, len(points))
        return Block(points.unbind(0), costs, told, inner)

    def _called(self, problem: Problem, settings: Any, function: str, *args: Any) -> tuple[Program, Any]:
        """The program of a problem's shape and formula, and the results of one of its functions."""
        jax, in_jax, shape = (double_jax(), problem._target.in_jax(), (problem.particles, problem.dim))
        if in_jax is not None and (type(self), in_jax.log_density) not in _uncounted:
            program = _compiled(type(self), in_jax.log_density, *shape, settings)
            try:
                return program, jax.block_until_ready(getattr(program, function)(*args, in_jax.data))
            except UnsupportedError:
                _uncounted.add((type(self), in_jax.log_density))
        program = _compiled(type(self), None, *shape, settings)
        assert program.density is not None
        with program.density.of(problem):
            return program, jax.block_until_ready(getattr(program, function)(*args, ()))

    def _seed(self, streams: Streams) -> np.uint32:
        return np.uint32(derive_seed(streams.seed, "algorithm", streams.replicates[0], self.name) >> 32)


def _costs(scores: Any, values: Any, steps: int) -> list[tuple[float, float, int]]:
    """Charges of each step, from the scores and further log densities that its chains evaluated."""
    scores, values = (np.asarray(v).reshape(steps, -1) for v in (scores, values))
    both = scores + values
    in_turn = np.maximum(both.max(1) - 1, 0)  # most evaluations of a chain are made one after the other
    sums = (scores.sum(1, dtype=float).tolist(), both.sum(1, dtype=float).tolist())
    return list(zip(*sums, in_turn.tolist(), strict=True))


def _charge(problem: Problem, scores: float, values: float, more: int) -> None:
    problem.meter.charge(scores, 0.0, values)
    problem.meter.score_calls += more


@lru_cache(maxsize=64)
def _compiled(
    owner: type[KernelSampler], formula: Callable[[Any, Any], Any] | None, n: int, dim: int, settings: Any
) -> Program:
    """The program of a kernel, by callback without a formula."""
    jax = double_jax()
    density = None if formula is not None else Density(dim, jax, double=True)
    count = counted if formula is not None else lambda function, _: lambda *a: (function(*a), 0, 0)
    chains = owner.kind == "chains"

    def kernel(data: Any) -> tuple[Any, Any]:
        log_density = density.log_density if density else recognised(lambda x: formula(data, x), dim)  # type: ignore[misc]
        init, step = _init_and_step(owner.make(log_density, dim, **dict(settings)), log_density, owner.name)
        each = (lambda f: jax.vmap(count(f, dim))) if chains else (lambda f: count(f, dim))
        return each(init), each(step)

    def keys(key: Any) -> Any:
        return jax.random.split(key, n) if chains else key

    def start(seed: Any, x: Any, data: Any) -> Any:
        return kernel(data)[0](keys(jax.random.key(seed)), x)

    def run(seed: Any, first: Any, states: Any, data: Any) -> Any:
        move = kernel(data)[1]

        def one(states: Any, number: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), number)
            (states, info), scores, values = move(keys(key), states)
            told = {name: getattr(info, field) for field, name in _TOLD.items() if hasattr(info, field)}
            told = {name: v.astype(float).mean() for name, v in told.items()}
            where = jax.vmap(owner.position) if chains else owner.position
            return states, (where(states), scores, values, told)

        return jax.lax.scan(one, states, first + 1 + jax.numpy.arange(1 if density else owner.block))

    return Program(jax.jit(start), jax.jit(run), density)


def _init_and_step(made: Any, log_density: Any, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``(key, position) -> state`` and ``(key, state) -> (state, info)`` of what ``make`` gave."""
    pair = made if type(made) is tuple else (getattr(made, "init", None), getattr(made, "step", None))
    if len(pair) != 2 or not all(map(callable, pair)):
        raise InputError(f"{name}: expected an object with init and step, or (init, step); got {made!r:.80}")
    first, second = pair

    def named(function: Any, key: Any) -> dict[str, Any]:
        """Arguments that are given by their names."""
        names = inspect.signature(function).parameters
        keys = {n: key for n in names if n in _KEYS and key is not None}
        return keys | {n: log_density for n in names if n in _DENSITIES}

    def init(key: Any, position: Any) -> Any:
        return first(position, **named(first, key))

    def step(key: Any, state: Any) -> tuple[Any, Any]:
        moved = second(key, state, **named(second, None))
        return moved if type(moved) is tuple and len(moved) == 2 else (moved, None)

    return init, step


def _position(state: Any) -> Any:
    """Where BlackJAX's states have their positions."""
    return state.position if hasattr(state, "position") else state.particles


def jax_sampler(
    init: Callable[..., Any] | None = None,
    step: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    kind: Kind = "chains",
    exact: Exact = False,
    block: int = 100,
    position: Callable[[Any], Any] = _position,
    summary: str = "",
) -> Any:
    """Make an algorithm of a JAX kernel in BlackJAX's form; also a decorator of a function that makes the kernel.

    Args:
        init: ``(position, ...) -> state``; arguments named ``logdensity_fn`` (or ``log_density``) and ``rng_key`` are
            given. Without ``step``: a function ``(log_density, dim, *, setting=default)`` that returns an object with
            ``init`` and ``step``, such as ``blackjax.nuts(log_density, ...)``, or both as a tuple; its further arguments
            are the settings.
        step: ``(rng_key, state) -> (state, info)`` of one chain; ``logdensity_fn`` likewise.
        name: in tables; default the function's.
        kind: ``chains`` (init and step see one chain, a position (D,)) or ``particles`` (they see all, (N, D)).
        exact: a claim that ``check`` tests: the kernel is reversible and leaves every target invariant; ``"invariant"``
            where it is not reversible.
        block: steps compiled into one scan; the budget may have up to so many computed and not used.
        position: of a state, (D,) or (N, D); default its ``position`` or ``particles``.
        summary: one line; default the first of the docstring.

    On tasks in JAX (``pb.from_jax``, ``pb.from_numpyro``, and shipped ones with ``in_jax``) nothing leaves the compiled
    code; evaluations are counted there, and each step is charged its own. Elsewhere every evaluation is a callback of
    0.2 to 1 ms. Double precision. One replicate at a time; an interrupted run starts its unfinished chunks again.

    Raises:
        InputError: no functions of that form.
    """
    if init is None:
        options: dict[str, Any] = {"name": name, "kind": kind, "exact": exact, "block": block, "summary": summary}
        return lambda f: jax_sampler(f, position=position, **options)
    if not callable(init) or isinstance(init, type) or not (step is None or callable(step)):
        raise InputError(f"pb.jax_sampler takes init and step, or a function that makes them; got {init!r:.80}")
    called = name or getattr(init if step is None else step, "__name__", "kernel").strip("_<>").replace("_", "-")
    make = init if step is None else lambda log_density, dim: (init, step)
    settings = settings_of_function(make, called, ("log_density", "dim"))
    members: dict[str, Any] = {"kind": kind, "exact": exact, "settings_type": settings, "block": block}
    members |= {"make": staticmethod(make), "position": staticmethod(position)}
    return made(KernelSampler, init, called, summary, members)
