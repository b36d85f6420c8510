"""Chains of JAX libraries on our scores: a log density by callback, in jitted blocks of transitions.

The problem is asked by one callback for all chains of a vectorised program; its score is the gradient. Vectorised
trajectories of different lengths are computed in lockstep, those that have ended over and over again with the same
points: within a block, a point that was scored before is not scored, and not charged, again. JAX cannot be stopped by
an exception: once the budget is spent the density is NaN, which ends every trajectory, and the block is dropped; the
last complete one stands. Compiled programs are kept for the process and serve all problems of their shape, so that the
time of compiling falls into the warm-up before a run. Single precision.

Overhead (``tests/studies/callback_overhead.py``, N(0, I) in the plane, one busy thread of an AMD EPYC): a call takes 0.2 ms
with one point, 0.8 with 100, 1.4 with 1000, of which our density takes 0.1; the same density written in JAX takes 0.002.
So compare speeds of libraries on their own densities, and what samplers make of an evaluation here.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Kind
from parvibench.core.errors import BudgetExhausted
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from ._external import library, require_one_replicate, seed_of


def jax_library(module: str, name: str) -> Any:
    """A module of a JAX library, with JAX on one thread."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax = library("jax", name)
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # a callback that waits for an argument would block
    return library(module, name)


class Density:
    """The log density of the problem of the moment as a function of (D,) that JAX can batch and differentiate."""

    def __init__(self, dim: int, jax: Any) -> None:
        self._dim = dim
        self._known: dict[bytes, int] = {}  # point -> its row in the table
        self._table = np.full((1024, dim + 1), np.nan, np.float32)  # values and scores; the first row is of none
        self._problem: Problem | None = None
        self.spent = False
        shapes = tuple(jax.ShapeDtypeStruct(shape, np.float32) for shape in ((), (dim,)))

        def both(x: Any) -> Any:
            return jax.pure_callback(self._evaluate, shapes, x, vmap_method="broadcast_all")

        log_density = jax.custom_vjp(lambda x: both(x)[0])
        log_density.defvjp(both, lambda score, slope: (slope * score,))
        self.log_density: Callable[[Any], Any] = log_density

    @contextmanager
    def of(self, problem: Problem) -> Iterator[None]:
        """Within the block, this problem's; ``BudgetExhausted`` at its end where the budget was spent."""
        self._problem, self.spent = problem, False
        self._known.clear()
        try:
            yield
        finally:
            self._problem = None
        if self.spent:
            raise BudgetExhausted("the budget ended within a block of transitions: the last complete one stands")

    def _evaluate(self, x: Any) -> tuple[Any, Any]:
        """Values (...) and scores (..., D) of points (..., D)."""
        assert self._problem is not None
        rows = np.ascontiguousarray(x, np.float32).reshape(-1, self._dim)
        names = rows.view(f"V{4 * self._dim}").ravel().tolist()  # bytes
        new = [name for name in dict.fromkeys(names) if name not in self._known]
        if new and not self.spent:
            self._ask(self._problem, new)
        found = self._table[[self._known.get(name, 0) for name in names]]
        return found[:, 0].reshape(x.shape[:-1]), found[:, 1:].reshape(x.shape)

    def _ask(self, problem: Problem, new: list[bytes]) -> None:
        """Score points that were not met before in this block."""
        points = torch.frombuffer(bytearray(b"".join(new)), dtype=torch.float32).view(1, -1, self._dim)
        try:
            values, scores = problem.log_density_and_score(points.to(problem.device, problem.dtype))
        except BudgetExhausted:
            self.spent = True
            return
        first = len(self._known) + 1
        last = first + len(new)
        if last > len(self._table):
            self._table = np.concatenate([self._table, np.empty((last, self._dim + 1), np.float32)])
        self._table[first:last, 0] = values[0].detach().cpu().numpy()
        self._table[first:last, 1:] = scores[0].detach().cpu().numpy()
        self._known.update(zip(new, range(first, last), strict=True))


class ChainSettings(AlgorithmSettings):
    """Settings of chains that warm up."""

    block: int = Field(5, ge=1, description="transitions of a chain in one step; ours")
    warmup_blocks: int = Field(40, ge=0, description="most steps of adaptation; ours (200 transitions; Stan: 1000)")


class TreeSettings(ChainSettings):
    """Settings of the No-U-Turn sampler, whoever implements it."""

    target_acceptance: float = Field(
        0.8, gt=0, lt=1, description="mean acceptance that the step length is adapted to; Stan"
    )
    max_tree_depth: int = Field(10, ge=1, le=15, description="most doublings of a trajectory; BlackJAX, NumPyro, Stan")


class Chains(NamedTuple):
    """The chains."""

    x: Tensor  # (1, N, D)
    inner: Any  # the library's state
    warmed: int  # steps of warm-up, or -1 once it is over


class Info(NamedTuple):
    """What the transitions of a step tell, means over them and the chains, (1,) each."""

    acceptance: Tensor
    divergences: Tensor
    tree_depth: Tensor


class Program(NamedTuple):
    """A library's compiled functions for chains of one shape."""

    density: Density
    start: Callable[[Any, Any], Any]  #: key, points (N, D) -> inner
    sample: Callable[[Any, Any], Any]  #: key, inner -> inner, told (one number a field of the Info)
    positions: Callable[[Any], Any]  #: inner -> (N, D)
    warm: Callable[[Any, Any, int], Any] = lambda key, inner, number: (
        None
    )  #: key, inner, number of the step -> as sample
    settle: Callable[[Any], Any] = lambda inner: inner  #: inner at the end of warm-up -> inner


class JaxChains(Algorithm[ChainSettings, Chains]):
    """Base of chains whose transitions a JAX library makes.

    Warm-up ends when a quarter of the evaluations is charged (without a limit of them: after a quarter of the steps
    foreseen), or after ``warmup_blocks``, so that the judged half of a path is one kernel's.
    """

    kind: ClassVar[Kind] = "chains"
    needs = frozenset({"full-batch", "score"})
    max_chunk = 1
    differentiates = True  # the callback comes on a thread of its own, which knows no inference mode
    resumable = False
    host_bound = True
    info_type: ClassVar[Any] = Info

    @staticmethod
    @abstractmethod
    def _build(n: int, dim: int, settings: Any) -> Program:
        """Compile for N chains in D dimensions."""

    def init(self, problem: Problem, settings: Any, streams: Streams, horizon: int) -> Chains:
        """Chains at the task's initial points; ``LibraryMissingError`` where the library is not installed."""
        require_one_replicate(problem, self.name)
        warms = getattr(settings, "warmup_blocks", 0) and (problem.meter.limit is not None or horizon >= 4)
        return self._advance(problem, settings, streams, None, 0 if warms else -1)[0]

    def step(self, problem: Problem, settings: Any, state: Chains, streams: Streams) -> tuple[Chains, Any]:
        """A block of transitions of every chain."""
        return self._advance(problem, settings, streams, state, state.warmed)

    def _advance(
        self, problem: Problem, settings: Any, streams: Streams, state: Chains | None, warmed: int
    ) -> tuple[Chains, Any]:
        jax = jax_library("jax", self.library)
        program = _program(type(self), problem.particles, problem.dim, settings)
        key = jax.random.key(seed_of(streams, self.name, "start" if state is None else streams.step))
        told = np.full(len(self.info_type._fields), np.nan)
        with program.density.of(problem):
            if state is None:
                inner = program.start(key, problem.init()[0].float().cpu().numpy())
            elif warmed >= 0:
                inner, told = program.warm(key, state.inner, warmed)
            else:
                inner, told = program.sample(key, state.inner)
            inner, told = jax.block_until_ready((inner, told))
        if state is not None and warmed >= 0:
            limit = problem.meter.limit
            warmed += 1
            if warmed >= settings.warmup_blocks or (limit is not None and problem.meter.charged >= limit / 4):
                inner, warmed = program.settle(inner), -1
        x = torch.from_numpy(np.array(program.positions(inner))).to(problem.device, problem.dtype).unsqueeze(0)
        return Chains(x, inner, warmed), self.info_type(*(x.new_tensor([float(v)]) for v in np.asarray(told)))


@cache
def _program(owner: type[JaxChains], n: int, dim: int, settings: Any) -> Program:
    return owner._build(n, dim, settings)
