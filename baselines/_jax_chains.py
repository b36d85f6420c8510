"""Chains of JAX libraries on our scores: a log density by callback, in jitted blocks of transitions.

How scores reach JAX, what is charged and what it costs: ``parvibench.jax_programs.by_callback``. Compiled programs
serve all problems of their shape, so that the time of compiling falls into the warm-up before a
run. Single precision. Compare speeds of libraries on their own densities, and what samplers make of an evaluation here.
"""

from abc import abstractmethod
from collections import namedtuple
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Kind, Problem, Streams
from parvibench.jax_programs.by_callback import Density
from parvibench.jax_programs.loading import jax_library, single

from ._chains import TreeInfo, seed_of


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


class Program(NamedTuple):
    """A library's compiled functions for chains of one shape."""

    start: Callable[[Any, Any], Any]  #: key, points (N, D) -> inner
    sample: Callable[[Any, Any], Any]  #: key, inner -> inner, diagnostics
    positions: Callable[[Any], Any]  #: inner -> (N, D)
    warm: Callable[[Any, Any, int], Any]  #: key, inner, number of the step -> as sample
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
    told: ClassVar[tuple[str, ...]] = TreeInfo._fields  #: diagnostics, means over transitions and chains

    @staticmethod
    @abstractmethod
    def _build(jax: Any, density: Density, n: int, dim: int, settings: Any) -> Program:
        """Compile for N chains in D dimensions."""

    def init(self, problem: Problem, settings: Any, streams: Streams, horizon: int) -> Chains:
        """Chains at the task's initial points; ``LibraryMissingError`` where the library is not installed."""
        warms = settings.warmup_blocks and (problem.meter.limit is not None or horizon >= 4)
        return self._advance(problem, settings, streams, None, 0 if warms else -1)[0]

    def step(self, problem: Problem, settings: Any, state: Chains, streams: Streams) -> tuple[Chains, Any]:
        """A block of transitions of every chain."""
        return self._advance(problem, settings, streams, state, state.warmed)

    def _advance(
        self, problem: Problem, settings: Any, streams: Streams, state: Chains | None, warmed: int
    ) -> tuple[Chains, Any]:
        jax, limit = jax_library("jax", self.library), problem.meter.limit
        with single():
            density, program = _program(type(self), problem.particles, problem.dim, settings)
            key = jax.random.key(seed_of(streams, self.name, "start" if state is None else streams.step))
            told = np.full(len(self.told), np.nan)
            with density.of(problem):
                if state is None:
                    inner = program.start(key, problem.init()[0].float().cpu().numpy())
                elif warmed >= 0:
                    inner, told = program.warm(key, state.inner, warmed)
                else:
                    inner, told = program.sample(key, state.inner)
                inner, told = jax.block_until_ready((inner, told))
            if state is not None and warmed >= 0:
                warmed += 1
                if warmed >= settings.warmup_blocks or (limit is not None and problem.meter.charged >= limit / 4):
                    inner, warmed = program.settle(inner), -1
            x = torch.from_numpy(np.array(program.positions(inner))).to(problem.device, problem.dtype).unsqueeze(0)
        return Chains(x, inner, warmed), _info(self.told)(*(x.new_tensor([float(v)]) for v in np.asarray(told)))


#: The class of diagnostics with these names.
_info = cache(lambda names: namedtuple("Info", names))


@cache
def _program(owner: type[JaxChains], n: int, dim: int, settings: Any) -> tuple[Density, Program]:
    jax = jax_library("jax", owner.library)
    density = Density(dim, jax)
    return density, owner._build(jax, density, n, dim, settings)
