"""The draws of a few consecutive steps in memory that stays where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from .errors import UnsupportedError
from .streams import Streams

Draw = Callable[..., Tensor]


class Tape(Streams):
    """Streams for a recorded block of steps: its draws lie ready before it is replayed.

    Step 0 of a tape is the step of the source that it is wound to. A draw that is asked for takes its place on the
    tape; from then on every winding fills it with the bits that the source gives at those steps.

    Args:
        source: where the draws come from.
        length: steps on the tape.
    """

    def __init__(self, source: Streams, length: int) -> None:
        super().__init__(source.seed, source.replicates, source.device, source.dtype)
        self._source, self._length, self._first = source, length, source.step
        self._held: dict[tuple[Draw, tuple[Any, ...]], Tensor] = {}

    def wind(self, first: int) -> None:
        """Fill the tape with the draws of the steps from ``first`` of the source on."""
        self._first = first
        for (draw, address), held in self._held.items():
            torch.stack(self._rows(draw, address), out=held)

    def batch(self, rows: int, size: int) -> Tensor:
        """As in the base class."""
        return self._at(Streams.batch, rows, size)

    def generator(self, stream: str, replicate: int, block: int | str = 0) -> Generator:
        """Refused: what a generator draws cannot be replaced afterwards."""
        raise UnsupportedError("a recorded step draws with normal() and uniform() only")

    def _draw(self, law: str, stream: str, shape: tuple[int, ...], index: int) -> Tensor:
        return self._at(Streams._draw, law, stream, shape, index)

    def _at(self, draw: Draw, *address: Any) -> Tensor:
        held = self._held.get((draw, address))
        if held is None:
            held = self._held[draw, address] = torch.stack(self._rows(draw, address))
        return held[self.step]

    def _rows(self, draw: Draw, address: tuple[Any, ...]) -> list[Tensor]:
        """What the source draws at each step of the tape."""
        rows = []
        for step in range(self._first, self._first + self._length):
            self._source.step = step
            rows.append(draw(self._source, *address))
        return rows
