"""Where the particles or chains of a chunk are and were; chains are recorded within a fixed memory."""

from typing import Any

import torch
from torch import Tensor

from parvibench.core.algorithm import require_samples
from parvibench.core.result import CellSpec
from parvibench.core.task import Problem

from .chunks import Chunk, ChunkResult
from .thompson import DecisionMaker, RecentPositions

MAX_POSITIONS = 2000
MAX_BYTES = 64 * 2**20


def kept_states(spec: CellSpec, iterations: int, dim: int) -> int:
    """States of every chain that a ``PathRecorder`` has after a run of so many iterations, burn-in left out."""
    size = spec.chunk * spec.particles * dim * (8 if spec.dtype == "float64" else 4)
    every = spec.thinning
    while iterations // every > _capacity(size):
        every *= 2
    count = iterations // every
    return count - _start(count, every, spec.burn_in)


def _capacity(size: int) -> int:
    """Most positions of this size, in bytes, that are recorded; even."""
    return 2 * max(2, min(MAX_POSITIONS, MAX_BYTES // max(1, size)) // 2)


def _start(count: int, every: int, burn_in: float) -> int:
    """Index of the first position after the burn-in; position i is that of iteration (i + 1) k, k = ``every``."""
    return int(burn_in * count) if burn_in < 1 else min(count, int(burn_in) // every)


class PathRecorder:
    """Records every k-th position of all chains; when full, drops every second one and doubles k.

    What is recorded depends on step numbers and shapes only: that of x, (R, N, D), sets the memory, ``thinning`` is k
    to begin with. An effective sample size estimated from the recorded positions cannot exceed their number. ``path``
    and ``samples`` leave out the burn-in: a share of the run below 1, else iterations.
    """

    def __init__(self, x: Tensor, burn_in: float = 0.5, thinning: int = 1) -> None:
        self._capacity = _capacity(x.numel() * x.element_size())
        self._burn_in, self._every, self._count = burn_in, thinning, 0
        # One block of memory: many small long-lived ones slow the sampler's own allocations.
        self._positions = x.new_empty((self._capacity, *x.shape))

    @property
    def saved(self) -> tuple[int, Tensor]:
        """k and the positions, (T, R, N, D): the whole state, to be set on a recorder of the same shape."""
        return self._every, self._positions[: self._count].clone()

    @saved.setter
    def saved(self, value: tuple[int, Tensor]) -> None:
        self._every, positions = value
        self._count = len(positions)
        self._positions[: self._count] = positions

    def add(self, step: int, x: Tensor) -> None:
        """Offer the position after iteration ``step`` (counted from 1), (R, N, D)."""
        if step % self._every:
            return
        if self._count == self._capacity:
            self._count //= 2
            self._positions[: self._count] = self._positions[1::2].clone()
            self._every *= 2
            if step % self._every:
                return
        self._positions[self._count] = x
        self._count += 1

    @property
    def _start(self) -> int:
        return _start(self._count, self._every, self._burn_in)

    @property
    def held(self) -> int:
        """Times of the path after the burn-in."""
        return self._count - self._start

    def path(self) -> Tensor:
        """The recorded positions after the burn-in, (R, T, N, D)."""
        return self._positions[self._start : self._count].transpose(0, 1).contiguous()

    def samples(self, n: int, x: Tensor) -> Tensor:
        """n states of N < n chains, (R, n, D): all chains at ceil(n / N) times spread evenly over the burnt-in path.

        The last time is the present one, at x (R, N, D). A path with fewer times repeats some.
        """
        times = -(-n // x.shape[1]) - 1
        if not self.held:
            return x.repeat(1, times + 1, 1)[:, -n:]
        ends = (torch.arange(times, dtype=torch.float64) + 1) * self.held / (times + 1)
        chosen = self._positions[self._start + (ends.ceil().long() - 1)]
        return torch.cat((chosen, x[None])).transpose(0, 1).flatten(1, 2)[:, -n:].contiguous()


class Path:
    """The positions behind the states of a run; chains are recorded."""

    def __init__(self, chunk: Chunk, problem: Problem, decisions: DecisionMaker | None) -> None:
        self._chunk, self._problem, self._decisions = chunk, problem, decisions
        self._moves = "displacement" in chunk.cell.metrics and chunk.method.kind != "generator"
        self.recorder: PathRecorder | RecentPositions | None = None  #: of chains
        self.mark: Tensor | None = None  #: positions from which ``displacement`` is measured

    def start(self, state: Any, horizon: int) -> None:
        """Record chains from this state on, for a run of ``horizon`` iterations."""
        cell = self._chunk.cell
        if self._chunk.method.kind != "chains":
            return
        if self._decisions is None:
            self.recorder = PathRecorder(state.x, cell.spec.burn_in, cell.spec.thinning)
        else:
            self.recorder = self._decisions.recorder(state.x, cell.samples, horizon)

    def samples(self, state: Any, step: int) -> Tensor:
        """The samples to judge at this step, (R, n, D): of chains the last states, and earlier ones where N < n."""
        cell, n = self._chunk.cell, self._chunk.cell.samples
        if isinstance(self.recorder, RecentPositions) and step > 0:
            return self.recorder.samples(n)
        samples = self._output(state, step, n)
        least = 1 if self._chunk.method.kind == "chains" else n  # chains are completed by their paths
        require_samples(samples, len(self._chunk.replicates), least, self._problem.dim, cell.algorithm)
        if isinstance(self.recorder, PathRecorder) and samples.shape[1] < n:
            held = self.recorder.held * samples.shape[1]
            fewer = cell.spec.checkpoints and 1 < held < n
            return self.recorder.samples(held if fewer else n, samples)
        return _take(samples, n)

    def positions(self, state: Any, step: int) -> Tensor | None:
        """Where each particle or chain is now, (R, N, D); a generator has none."""
        kind = self._chunk.method.kind
        if kind == "generator":
            return None
        return state.x.clone() if kind == "chains" else self._output(state, step, state.x.shape[1])

    def _output(self, state: Any, step: int, n: int) -> Tensor:
        streams = self._problem.streams
        streams.step = step
        return self._chunk.method.output(self._problem, self._chunk.settings, state, n, streams)

    def follow(self, result: ChunkResult, state: Any, step: int) -> None:
        """Add to the trajectories of a result where some particles are now: evenly spaced ones of the first replicate."""
        spec = self._chunk.cell.spec
        if not spec.trajectories or spec.replicates[0] not in self._chunk.replicates:
            return
        now = self.positions(state, step)
        if now is not None:
            of_first = _take(now, spec.trajectories)[self._chunk.replicates.index(spec.replicates[0])]
            result.visited.append(step)
            result.places.append(of_first.float().cpu().numpy())

    @property
    def unmarked(self) -> bool:
        """Whether the start of ``displacement`` is still to be marked."""
        return self._moves and self.mark is None

    def moved(self, state: Any, step: int) -> tuple[Tensor, Tensor] | None:
        """Positions at the mark and now, (R, N, D) each; None without a mark."""
        now = None if self.mark is None else self.positions(state, step)
        return None if self.mark is None or now is None else (self.mark.cpu(), now.cpu())

    def recorded(self) -> Tensor | None:
        """The recorded path after the burn-in, (R, T, N, D), or None."""
        return None if self.recorder is None else self.recorder.path().cpu()


def _take(samples: Tensor, n: int) -> Tensor:
    """n rows spread evenly over (R, N, D) when there are more."""
    if samples.shape[1] == n:
        return samples
    rows = torch.linspace(0, samples.shape[1] - 1, n).round().long()
    return samples[:, rows.to(samples.device)]
