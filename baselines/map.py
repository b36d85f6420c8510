"""Maximum a posteriori (MAP): one optimisation run, and a point mass at its end.

Adam on mini-batch scores from the task's initial distribution: a deep ensemble of one (see
``deep_ensemble``, its trap about precisions included). What a distribution is worth over a
point: every metric of spread shows it, and so do predictions.
"""

from typing import ClassVar

from torch import Tensor

from parvibench.core.algorithm import Presets, Problem, Streams
from parvibench.nn.optim import AdamState

from .deep_ensemble import DeepEnsemble, Settings


class MAP(DeepEnsemble):
    """One Adam run to a mode of the posterior."""

    name = "map"
    version = 2
    n_particles = 1
    citation = "Kingma & Ba (2015), arXiv:1412.6980"
    presets: ClassVar[Presets] = {}

    def output(self, problem: Problem, settings: Settings, state: AdamState, n: int, streams: Streams) -> Tensor:
        """The point, n times."""
        return state.x.expand(-1, n, -1)
