"""Invariance on a law of two parts, at the scale where intervals of a sampler's own width end in the gap between them."""

from dataclasses import dataclass

from .exactness import Invariance


@dataclass(frozen=True)
class Parted(Invariance):
    """Invariance with parts 1.7 apart in x, of sds 0.3 and 0.45, and with half of that.

    Other units would not do: where steps reach farthest a move covers both parts, or stays in one.
    """

    def units(self) -> dict[str, float]:
        """As the other targets of a check, and half of that."""
        return {"far": 1.0, "hard": 0.5}
