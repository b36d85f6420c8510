"""The No-U-Turn sampler (NUTS) for many chains at once.

Hoffman & Gelman (2014), arXiv:1111.4246, with multinomial weights, the U-turn criterion on summed momenta and the
windows of warm-up of Stan (Betancourt 2017, arXiv:1701.02434, Appendix A; Stan Reference Manual, "MCMC sampling").
Trajectories: ``_nuts_trees``.

A step is a block of ``leapfrogs`` leapfrog steps of N rows, so that it costs every replicate the same and makes no
evaluation that no chain needs: trees have different sizes; one that does not end within a step goes on in the next, and
one that ends is followed by another. States after a fixed effort favour positions from which trees are long. So a row
has two chains, which take turns, tree by tree, and shows the one that waits: its law is exact (Murray, Singh, Jacob &
Lee 2016, Anytime Monte Carlo, arXiv:1612.03319, Section 2.2). Both start where warm-up ends.

Warm-up ends when a quarter of the evaluations is charged (without a limit of them: after a quarter of the steps
foreseen), or after ``warmup_steps``, so that the judged half of a path is one kernel's. It is pooled over the chains of
a replicate: with a hundred of them, fifty transitions tell what takes one chain thousands. Rows have one chain each
meanwhile. Dual averaging learns after every round, from all leapfrog steps of the round; trees end with it, so that none
is grown with a length that is given up already. A round is one step, or more where there would be over ``ROUNDS``. The
mass matrix is learnt as in Stan, in windows each twice as long as the one before, between a first and a last part for
the length alone. Departs from Stan: the shares of these parts; a window ends only where 10 further rounds are foreseen;
dual averaging starts from an estimate by the scores (``_adaptation.reasonable_step``) instead of a search; where a window
ends, chains that are far below the others or stuck begin again from theirs (``_adaptation.catching_up``), as the length is common to all.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.nn.masks import where

from . import _nuts_compiled
from ._adaptation import DualAveraging, Moments, catching_up, reasonable_step
from ._chains import TreeInfo, warmup_steps
from ._nuts_trees import Randomness, Trees, grow

#: Shares of warm-up at which the windows of the mass matrix begin and end.
WINDOWS = (0.1, 0.15, 0.25, 0.45, 0.8)
#: Positions that a window needs, and rounds that must be foreseen after it.
LEAST_POSITIONS, SETTLING = 25, 10
#: Rounds of a warm-up that has as many steps or more.
ROUNDS = 64
FROZEN = -1  #: In place of the steps of warm-up: every step is a trajectory of each chain, to the end of its tree.


class Settings(AlgorithmSettings):
    """Settings of NUTS."""

    mass: Literal["diagonal", "dense"] = Field("diagonal", description="form of the mass matrix; diagonal: Stan")
    target_acceptance: float = Field(
        0.8, gt=0, lt=1, description="mean acceptance that the step length is adapted to; Stan"
    )
    max_tree_depth: int = Field(10, ge=1, le=15, description="most doublings of a trajectory; Stan")
    leapfrogs: int = Field(8, ge=1, description="leapfrog steps of each row in one step; ours")
    warmup_steps: int = Field(10_000, ge=0, description="most steps of adaptation; ours")


class Warmup(NamedTuple):
    """State of the adaptation, and its outcome."""

    dual: DualAveraging
    moments: Moments
    earned: Tensor  # (R,) acceptance of the steps of this round, summed
    step: Tensor  # (R,) leapfrog length of trees that begin
    scale: Tensor  # (R, D) standard deviations or (R, D, D) Cholesky factor of the inverse mass matrix


class State(NamedTuple):
    """Chains, their trees, and warm-up."""

    x: Tensor  # (R, N, D) the chains that wait; during warm-up those that move
    trees: Trees
    warmup: Warmup
    warmup_steps: int


class NUTS(Algorithm[Settings, State]):
    """The No-U-Turn sampler, many chains, adapts itself."""

    name = "nuts"
    version = 4
    kind = "chains"
    exact = "adapted"
    may_overflow = frozenset({"trees"})
    needs = frozenset({"full-batch", "score"})
    host_bound = True
    citation = "Hoffman & Gelman (2014), arXiv:1111.4246; Betancourt (2017), arXiv:1701.02434"
    example = Example(
        quick={"leapfrogs": 2, "max_tree_depth": 3}, scores=2, first_scores=1, settings={}, steps=80, both_modes=False
    )

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points."""
        x = problem.init()
        density, score = problem.log_density_and_score(x)
        steps = warmup_steps(problem, horizon, settings.leapfrogs, spent=x.shape[1])
        scale, dense = x.new_ones(len(x), problem.dim), settings.mass == "dense"
        scale = torch.diag_embed(scale) if dense else scale
        dual = DualAveraging.start(reasonable_step(score, scale))
        warmup = Warmup(dual, Moments.start(x, dense), x.new_zeros(len(x)), dual.log_step.exp(), scale)
        trees = Trees.start(x, density, score, settings.max_tree_depth)
        return State(x, trees, warmup, min(settings.warmup_steps, steps))

    def frozen(self, problem: Problem, settings: Settings, learnt: State, streams: Streams) -> State:
        """Chains with the lengths and masses that are known so far; a step is then a trajectory of every chain."""
        start = self.init(problem, settings, streams, 0)
        return start._replace(warmup=learnt.warmup, warmup_steps=FROZEN)

    def compiled_step(self) -> Callable[..., Any]:
        """Trees as a C++ program, on a GPU as a CUDA program."""
        return partial(self.step, grow=_nuts_compiled.grow)

    def step(
        self, problem: Problem, settings: Settings, state: State, streams: Streams, *, grow: Callable[..., Any] = grow
    ) -> tuple[State, TreeInfo]:
        """A block of leapfrog steps."""
        (_, _, warmup, steps), spent = state, streams.step + 1
        if steps == FROZEN:
            trees = _trajectory(settings, warmup, state.trees, problem, streams)
            x = trees.x
        else:
            randomness = _randomness(settings, streams, state.x.shape, "algorithm", 0)
            depth, turns = settings.max_tree_depth, spent > steps
            trees, gained = grow(state.trees, problem, warmup.scale, warmup.step, randomness, depth, turns)
            if not turns:
                trees, warmup = _learn(settings, warmup, trees, gained.mean(1) / settings.leapfrogs, spent, steps)
            x = trees.waiting if turns else trees.x
        x = x + 0 * state.x  # a chain that is not finite stays so, and the harness sees it
        acceptance, doublings, diverged = trees.table[:, :, -3:].mean(1).unbind(1)
        return State(x, trees, warmup, steps), TreeInfo(acceptance, diverged, doublings)


def _trajectory(settings: Settings, warmup: Warmup, trees: Trees, problem: Problem, streams: Streams) -> Trees:
    """Every chain's tree, grown from its first leaf to its last."""
    growing, ended = trees, torch.zeros_like(trees.numbers.density, dtype=torch.bool)
    for number in range(2**settings.max_tree_depth):
        block, j = divmod(number, settings.leapfrogs)
        if not j:  # of a stream that is not drawn for many steps at once
            random = _randomness(settings, streams, trees.x.shape, "init", block)
        one = Randomness(random.uniform[:, j : j + 1], random.momentum)
        growing, _ = grow(growing, problem, warmup.scale, warmup.step, one, settings.max_tree_depth, False)
        trees = where(ended, trees, growing)
        ended = ended | (growing.numbers.fresh > 0)
        if ended.all():
            break
    return trees


def _randomness(settings: Settings, streams: Streams, shape: torch.Size, stream: str, index: int) -> Randomness:
    uniform = streams.uniform(stream, (3, settings.leapfrogs, shape[1]), index=index).permute(1, 2, 0, 3).flatten(2)
    return Randomness(uniform, lambda j: streams.normal("noise", shape[1:], index=j).flatten(0, 1))


def _learn(
    settings: Settings, warmup: Warmup, trees: Trees, acceptance: Tensor, spent: int, steps: int
) -> tuple[Trees, Warmup]:
    """Adapt to the ``acceptance`` (R,) of step ``spent`` of ``steps`` where it ends a round; trees start again then."""
    size, earned = max(1, steps // ROUNDS), warmup.earned + acceptance
    if spent % size and spent < steps:
        return trees, warmup._replace(earned=earned)
    dual = warmup.dual.update(earned / ((spent - 1) % size + 1), settings.target_acceptance)
    moments, scale, dense = warmup.moments, warmup.scale, settings.mass == "dense"
    ended = [i for i, share in enumerate(WINDOWS) if spent - size < share * steps <= spent]
    if ended:
        place, changed = catching_up(trees.numbers.density, trees.numbers.acceptance)
        if changed.any():
            trees = trees.moved_to(place)
            anew = DualAveraging.start(reasonable_step(trees.score, scale))
            dual = where(changed, anew, dual)
    if WINDOWS[0] * steps < spent:
        moments = moments.add(trees.x)
    if 0 in ended:
        moments = Moments.start(trees.x, dense)
    elif ended and moments.number[0] >= LEAST_POSITIONS and steps - spent >= SETTLING * size:
        scale, moments = moments.scale(), Moments.start(trees.x, dense)
        dual = DualAveraging.start(reasonable_step(trees.score, scale))
    step = dual.mean_log_step if spent == steps else dual.log_step
    trees = trees.anew(both=spent == steps)
    return trees, Warmup(dual, moments, torch.zeros_like(earned), step.exp(), scale)
