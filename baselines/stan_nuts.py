"""The No-U-Turn sampler of Stan itself, on tasks that are Stan programs.

Hoffman & Gelman (2014), arXiv:1111.4246; Betancourt (2017), arXiv:1701.02434. Stan's sampler with a diagonal metric and
Stan's windowed warm-up, as stanli runs it on the program that it interprets: N chains, one after the other, from the
task's initial points. The first step is the warm-up and a block of transitions, every further one a block with the step
length and the metric that the warm-up left. Its length is a quarter of the budget at 16 evaluations a transition, at most
``warmup``; Stan adapts the metric in a warm-up of 150 transitions or more.

The meter cannot stop Stan within a block: its evaluations, those of the search for a step length and of the warm-up
included, are charged after each; once the budget is spent, the chains that are left are not run. That block is dropped:
the last complete state stands.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Problem, Streams
from parvibench.core.errors import BudgetExhausted, UnsupportedError

from ._chains import TreeInfo, seed_of
from ._jax_chains import TreeSettings

#: Evaluations of a transition that the length of the warm-up is made for, and the least number of transitions there.
_FORESEEN, _FEWEST = 16, 20


class Settings(TreeSettings):
    """Settings of Stan's NUTS."""

    warmup_blocks: int = Field(200, ge=0, description="most blocks of adaptation; Stan (1000 transitions)")


class State(NamedTuple):
    """The chains."""

    x: Tensor  # (1, N, D)
    places: Tensor  # (1, N, D) float64
    steps: Tensor  # (1, N) step lengths, float64
    metrics: Tensor  # (1, N, D) inverse metrics, float64
    warmup: int  # transitions of warm-up still to make


class StanNUTS(Algorithm[Settings, State]):
    """The No-U-Turn sampler of Stan, on Stan programs (external)."""

    name = "stan-nuts"
    kind = "chains"
    needs = frozenset({"full-batch", "score", "stan"})
    version = 2
    max_chunk = 1
    host_bound = True
    counted_afterwards = True
    library = "stanli"
    citation = "Hoffman & Gelman (2014), arXiv:1111.4246; Carpenter et al. (2017), Journal of Statistical Software 76"
    example = Example(settings={"max_tree_depth": 4}, steps=20, both_modes=False, brief_steps=3)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the initial points; ``UnsupportedError`` where Stan's sampler does not run on the task."""
        if problem.native is None:
            raise UnsupportedError(f"{self.name} runs Stan programs only: name a task model.stan:data.json")
        x, limit = problem.init(), problem.meter.limit
        quarter = horizon * settings.block / 4 if limit is None else limit / (4 * x.shape[1] * _FORESEEN)
        warmup = min(settings.block * settings.warmup_blocks, int(quarter))
        places = x.double()
        problem.native.require(places[0])
        ones = torch.ones_like(places)
        return State(x, places, ones[..., 0], ones, warmup if warmup >= _FEWEST else 0)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, TreeInfo]:
        """A block of transitions of every chain, the first after the warm-up; ``BudgetExhausted`` within a block."""
        meter, used, blocks = problem.meter, 0, []
        left = math.inf if meter.limit is None else meter.limit - meter.charged
        for chain, start in enumerate(state.places[0].numpy()):
            blocks.append(
                problem.native.block(
                    start, state.steps[0, chain].item(), state.metrics[0, chain].numpy(), draws=settings.block,
                    seed=seed_of(streams, self.name, streams.step, chain), warmup=state.warmup,
                    depth=settings.max_tree_depth, acceptance=settings.target_acceptance,
                )
            )  # fmt: skip
            used += blocks[-1].evaluations
            if used > left:
                meter.charge(scores=left)
                raise BudgetExhausted("the budget ended within a block of transitions: the last complete one stands")
        meter.charge(scores=used)
        at, steps, metrics, told, _ = (torch.from_numpy(np.array(values))[None] for values in zip(*blocks, strict=True))
        state = State(at.to(state.x), at, steps, metrics, 0)
        return state, TreeInfo(*told.to(state.x).mean(1).unbind(1))
