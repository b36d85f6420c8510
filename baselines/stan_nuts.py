"""The No-U-Turn sampler of Stan itself, on tasks that are Stan programs.

Hoffman & Gelman (2014), arXiv:1111.4246; Betancourt (2017), arXiv:1701.02434. Stan's services with a diagonal metric and
Stan's windowed warm-up run in C++ on the compiled program: N chains, one after the other, from the task's initial points.
The first step is the warm-up and a block of transitions, every further one a block with the step length and the metric
that the warm-up left. Its length is a quarter of the budget at 16 evaluations a transition, at most ``warmup``.

The meter cannot stop Stan within a transition: evaluations are counted in C++, those of the search for a step length and
of the warm-up included, and charged after each block; a chain ends at the first transition at which the budget is spent.
That block is dropped: the last complete state stands.
"""

from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example
from parvibench.core.errors import BudgetExhausted, UnsupportedError
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from ._external import require_one_replicate, seed_of
from ._jax_chains import Info, TreeSettings

#: Evaluations of a transition that the length of the warm-up is made for, the least number of transitions there, and the
#: most evaluations of a chain without a budget.
_FORESEEN, _FEWEST, _NO_LIMIT = 16, 20, 2**40


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
    """NUTS of Stan."""

    name = "stan-nuts"
    kind = "chains"
    needs = frozenset({"full-batch", "score", "stan"})
    max_chunk = 1
    host_bound = True
    counted_afterwards = True
    library = "httpstan"
    citation = "Hoffman & Gelman (2014), arXiv:1111.4246; Carpenter et al. (2017), Journal of Statistical Software 76"
    summary = "the No-U-Turn sampler of Stan, on Stan programs (external)"
    example = Example(settings={"max_tree_depth": 4}, steps=20, both_modes=False, brief_steps=3)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points; ``UnsupportedError`` for a task that is no Stan program."""
        require_one_replicate(problem, self.name)
        if problem.native is None:
            raise UnsupportedError(f"{self.name} runs Stan programs only: name a task model.stan:data.json")
        x, limit = problem.init(), problem.meter.limit
        quarter = horizon * settings.block / 4 if limit is None else limit / (4 * x.shape[1] * _FORESEEN)
        warmup = min(settings.block * settings.warmup_blocks, int(quarter))
        places = x.double()
        ones = torch.ones_like(places)
        return State(x, places, ones[..., 0], ones, warmup if warmup >= _FEWEST else 0)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """A block of transitions of every chain, the first after the warm-up.

        Raises:
            BudgetExhausted: the budget ended within the block.
        """
        meter, used = problem.meter, 0
        left = _NO_LIMIT if meter.limit is None else int(meter.limit - meter.charged)
        seed = seed_of(streams, self.name, streams.step)
        places, steps, metrics = (t[0].numpy().copy() for t in (state.places, state.steps, state.metrics))
        told = []
        for chain, start in enumerate(places):
            positions, facts, spent = problem.native.nuts(
                start, steps[chain : chain + 1], metrics[chain], seed=seed, chain=chain + 1, warmup=state.warmup,
                draws=settings.block, depth=settings.max_tree_depth, acceptance=settings.target_acceptance,
                limit=left - used,
            )  # fmt: skip
            used += abs(spent)
            if spent < 0 or used > left:
                meter.charge(scores=min(used, left))
                raise BudgetExhausted("the budget ended within a block of transitions: the last complete one stands")
            places[chain] = positions[-1]
            told.append(facts.mean(0))
        meter.charge(scores=used)
        at, step, metric = (torch.from_numpy(a)[None] for a in (places, steps, metrics))
        return State(at.to(state.x), at, step, metric, 0), Info(*state.x.new_tensor(np.mean(told, 0))[:, None])
