"""Recording chain positions within a fixed memory, whatever the length of the run."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_POSITIONS = 2000
MAX_BYTES = 64 * 2**20


class PathRecorder:
    """Keeps every k-th position of all chains; when full, drops every second one and doubles k.

    What is kept depends on step numbers and shapes only. An effective sample size estimated from the
    recorded positions cannot exceed their number.

    Args:
        x: a state, (R, N, D): its shape sets the memory.
    """

    def __init__(self, x: Tensor) -> None:
        size = max(1, x.numel() * x.element_size())
        self._capacity = 2 * max(2, min(MAX_POSITIONS, MAX_BYTES // size) // 2)
        self._every = 1
        self._count = 0
        # One block of memory: many small ones kept for long cost the sampler's own allocations dearly.
        self._positions = x.new_empty((self._capacity, *x.shape))

    @property
    def saved(self) -> tuple[int, Tensor]:
        """k and the positions, (T, R, N, D): all there is to know, to be set on a recorder of the same shape."""
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

    def path(self) -> Tensor:
        """The second half of the recorded positions, (R, T, N, D): the first half is burn-in."""
        return self._positions[self._count // 2 : self._count].transpose(0, 1).contiguous()

    def samples(self, n: int) -> Tensor:
        """n positions spread evenly over the kept times and cycling through the chains, (R, n, D).

        A run too short to hold n distinct positions repeats some.
        """
        start = self._count // 2
        order = torch.arange(n)
        times = ((order.double() + 0.5) * (self._count - start) / n).long()
        return (
            self._positions[start + times, :, order % self._positions.shape[2]].transpose(0, 1).contiguous()
        )
