"""What a check asks: something to measure on fresh replicates, and what the values should look like.

Two oracles stand behind the expectations: the stored past, and known truth. Both are asked the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parvibench.harness.chunks import ChunkResult

Oracle = Literal["past", "truth"]
#: Which way a statistic gets better; ``zero``: towards zero, ``same``: any change is for the worse.
Better = Literal["lower", "higher", "zero", "same"]
#: Statistic -> one value per replicate; a replicate that diverged has +inf.
Values = Mapping[str, list[float]]


@dataclass(frozen=True)
class Law:
    """The distribution the values should have, as draws from it.

    Attributes:
        values: (m,) independent draws.
        better: which way is better.
        exact: what independent exact draws reach, if a method that beats them is not to be believed.
        gates: False for what is shown and never turns a check red.
    """

    values: NDArray[np.float64]
    better: Better = "same"
    exact: NDArray[np.float64] | None = None
    gates: bool = True


@dataclass(frozen=True)
class Fixed:
    """A value that every replicate must have.

    Attributes:
        value: the value.
        better: which way is better.
        tolerance: relative, for what rounding may change.
    """

    value: float
    better: Better = "same"
    tolerance: float = 0.0


@dataclass(frozen=True)
class Bound:
    """How far from zero the values may be on average: what is allowed to a method that is only nearly right.

    Attributes:
        limit: of the mean's absolute value.
    """

    limit: float


Expected = Law | Fixed | Bound


class Question(ABC):
    """One thing a check asks of a task and an algorithm; must be picklable: it is measured in another process.

    Attributes:
        oracle: where the expectations come from.
        task: name shown.
        algorithm: label shown.
    """

    oracle: Oracle
    task: str
    algorithm: str

    @abstractmethod
    def measure(self, replicates: range, seed: int) -> Values:
        """Draw fresh replicates and measure them.

        Args:
            replicates: their ids.
            seed: root seed of all randomness, fresh in every stage.
        """

    @abstractmethod
    def expected(self) -> Mapping[str, Expected]:
        """Statistic -> what is expected of it; each is a test of its own. Fixed before anything is measured."""


@dataclass(frozen=True)
class Measurement:
    """A question put to fresh replicates: what an executor runs.

    Attributes:
        question: what is asked.
        replicates: ids of the fresh replicates.
        seed: root seed.
        number: of the question in its list.
    """

    question: Question
    replicates: range
    seed: int
    number: int = 0

    def run(self, notify: Callable[[dict[str, Any]], None]) -> ChunkResult:
        """The statistics, where a cell's result has its metrics."""
        return ChunkResult(
            values={k: list(v) for k, v in self.question.measure(self.replicates, self.seed).items()}
        )
