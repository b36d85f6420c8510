"""The decisions of a sequential task: Thompson sampling with the samples that an algorithm has at that time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from parvibench.core.sequential import GrowingProblem, SequentialTask
from parvibench.core.streams import Streams

_ROUNDING = 1e-9  #: Shares of a budget do not add up exactly in binary.


class DecisionMaker:
    """Makes the decisions of all replicates of a chunk, block by block, when the sampler has run long enough.

    Every decision takes one of the samples at hand, uniformly, and the action that is best if it is true. Which one is
    the same for all algorithms with the same number of samples. ``problem`` grows with every block.
    """

    def __init__(self, task: SequentialTask, problem: GrowingProblem) -> None:
        self._task, self.posterior = task, problem.posterior
        effort = task.trainings().cumsum(0).double()
        # Share of the budget after which each block is due; the first one waits for nothing.
        self._due = [0.0, *(effort / effort[-1]).tolist()]
        self._block = 0
        held = problem.streams
        self._streams = Streams(held.seed, held.replicates, held.device, held.dtype)

    def recorder(self, x: Tensor, n: int, horizon: int) -> RecentPositions:
        """The recorder of chains that are at x (R, N, D), for a run of ``horizon`` iterations."""
        steps = self._task.thinning * horizon / float(self._task.trainings().sum())
        return RecentPositions(x, n, every=max(1, round(steps)))

    @property
    def saved(self) -> Tensor:
        """The actions taken so far, (R, seen): the whole state, to be set on a maker of the same chunk."""
        return self.posterior.taken

    @saved.setter
    def saved(self, taken: Tensor) -> None:
        self.posterior.observe(taken)
        self._block = -(-taken.shape[1] // self._task.period)

    @property
    def progress(self) -> float:
        """Share of the decisions made so far."""
        return self.posterior.seen / self.posterior.rows

    def due(self, share: float) -> bool:
        """Whether the next block is due once ``share`` of the budget is spent."""
        return self._block < len(self._due) and share >= self._due[self._block] - _ROUNDING

    def catch_up(self, share: float, samples: Callable[[], Tensor]) -> None:
        """Make the decisions that are due, with fresh ``samples`` (R, n, D) for every block."""
        while self.due(share):
            self.decide(samples())

    @torch.inference_mode(False)  # what is observed becomes data that scores by autograd may meet
    @torch.no_grad()
    def decide(self, samples: Tensor) -> None:
        """Make the next block of decisions by samples of the current posterior, (R, n, D)."""
        start = self.posterior.seen
        count = min(self._task.period, self.posterior.rows - start)
        values = self.posterior.values(samples, count)
        self._streams.step = self._block
        which = (self._streams.uniform("decision", (self._task.period,)) * samples.shape[1]).long()[:, :count]
        believed = values.gather(1, which[:, None, :, None].expand(-1, 1, -1, values.shape[-1]))
        actions = believed.squeeze(1).argmax(-1)
        turns = torch.arange(start, start + count, device=actions.device)
        in_turn = turns < self._task.pulls * self.posterior.n_actions
        actions[:, in_turn] = turns[in_turn] % self.posterior.n_actions
        self.posterior.observe(actions)
        self._block += 1


class RecentPositions:
    """The samples of chains on a posterior that grows: their last n positions, some steps apart."""

    def __init__(self, x: Tensor, n: int, every: int) -> None:
        self._times = -(-n // x.shape[1])
        #: steps between two positions, and the positions, oldest first: all that a resumed run needs
        self.saved = every, [x.clone()]

    def add(self, step: int, x: Tensor) -> None:
        """Offer the position after iteration ``step`` (counted from 1), (R, N, D)."""
        every, positions = self.saved
        if step % every == 0:
            self.saved = every, [*positions, x.clone()][-self._times :]

    def path(self) -> Tensor:
        """The recorded positions, oldest first, (R, T, N, D)."""
        return torch.stack(self.saved[1], dim=1)

    def samples(self, n: int) -> Tensor:
        """The n latest positions, (R, n, D); repeated in turn while there are fewer."""
        pool = self.path().flip(1).flatten(1, 2)
        return pool[:, torch.arange(n, device=pool.device) % pool.shape[1]]
