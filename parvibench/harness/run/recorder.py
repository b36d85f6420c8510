"""Recording chain positions within a fixed memory, whatever the length of the run."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_POSITIONS = 2000
MAX_BYTES = 64 * 2**20


class PathRecorder:
    """Records every k-th position of all chains; when full, drops every second one and doubles k.

    What is recorded depends on step numbers and shapes only: that of x, (R, N, D), sets the memory, ``thinning`` is k
    to begin with. An effective sample size estimated from the recorded positions cannot exceed their number. ``path``
    and ``samples`` leave out the burn-in: a share of the run below 1, else iterations.
    """

    def __init__(self, x: Tensor, burn_in: float = 0.5, thinning: int = 1) -> None:
        size = max(1, x.numel() * x.element_size())
        self._capacity = 2 * max(2, min(MAX_POSITIONS, MAX_BYTES // size) // 2)
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
        """Index of the first position after the burn-in; position i is that of iteration (i + 1) k."""
        if self._burn_in < 1:
            return int(self._burn_in * self._count)
        return min(self._count, int(self._burn_in) // self._every)

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
