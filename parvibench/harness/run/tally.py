"""Means of what an algorithm reports of its steps, between two checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Tally:
    """Sums of the fields of an algorithm's Info, (R,) each, on its device.

    Attributes:
        sums: field -> sum since the last ``means``, float64.
        steps: how many steps were added.
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.steps = 0

    def add(self, info: Any) -> None:
        """Add a step's Info: a NamedTuple of tensors (R,). Waits for no device."""
        self.steps += 1
        for name, value in zip(info._fields, info, strict=True):
            held = self.sums.get(name)
            self.sums[name] = value.to(torch.float64) if held is None else held + value

    def means(self) -> dict[str, Tensor]:
        """Means per step since the last call, (R,) float64 on the CPU; none without steps."""
        found = {name: (value / self.steps).cpu() for name, value in self.sums.items()}
        self.sums, self.steps = {}, 0
        return found
