"""Name of the method (ABBREVIATION).

Author, Author & Author (year), arXiv:0000.00000, Algorithm 1:

    x <- x + eta s(x) + sqrt(2 eta) xi,   xi ~ N(0, I)

Departs from the paper: nothing. Copy this file, rename the class and its ``name``, then run ``make index``.
"""

import math
from typing import NamedTuple

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, SteppedSettings
from parvibench.core.streams import Streams
from parvibench.core.task import Problem


class Settings(SteppedSettings):
    """Settings of METHOD."""

    step_size: float = Field(0.01, gt=0, description="eta, in x^2; ours")


class State(NamedTuple):
    """Positions; everything that the next step needs."""

    x: Tensor  # (R, N, D): replicates, chains, dimensions


class Template(Algorithm[Settings, State]):
    """METHOD, in one sentence."""

    name, kind = "template", "chains"
    summary, citation = "the method in a few words", "Author, Author & Author (year), arXiv:0000.00000"

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Start at the initial points."""
        return State(problem.init())

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """Take one step of every chain; randomness comes from ``streams``, and every score is counted."""
        x, eta = state.x, settings.step_size
        noise = streams.normal("noise", x.shape[1:])
        return State(x + eta * problem.score(x) + math.sqrt(2 * eta) * noise)
