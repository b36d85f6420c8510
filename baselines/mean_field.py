"""Mean-field Gaussian variational inference (ADVI's diagonal family; Pyro's AutoNormal).

Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), arXiv:1603.00788, Algorithm 1. Samples x = m + sd eps,
eps ~ N(0, I), maximise the evidence bound E log p(x) + sum_d log sd_d + const by Adam:

    d/dm = E s(x),   d/dlog sd = E[ s(x) sd eps ] + 1

On a Gaussian target the best sd is that of each coordinate given all others, less than the marginal one.

Departures: Adam in place of the paper's step-size sequence; x is unconstrained here, so there is no
transformation; m starts at one draw of the task's initial distribution, as the centre of that distribution is
a symmetric point of network posteriors. Pyro's optimisation loop is not used: see parvibench.nn.variational.
"""

import torch
from torch import Tensor

from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.nn.variational import Variational, VariationalSettings, VariationalState, narrow


class MeanField(Variational[VariationalSettings]):
    """Gaussian variational inference, diagonal covariance."""

    name = "mean-field"
    version = 2
    citation = "Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), arXiv:1603.00788"

    def init(self, problem: Problem, settings: VariationalSettings, streams: Streams, horizon: int) -> VariationalState:
        """A narrow normal at the first of the task's initial points."""
        return narrow(problem, settings, horizon)

    def push(self, settings: VariationalSettings, parameters: Tensor, noise: Tensor) -> Tensor:
        """m + sd eps."""
        m, log_sd = parameters.unsqueeze(1).chunk(2, 2)
        return m + log_sd.exp() * noise

    def gradient(self, problem: Problem, settings: VariationalSettings, parameters: Tensor, noise: Tensor) -> Tensor:
        """Gradient of the negative bound, (R, 2 D), from noise (R, n, D)."""
        m, log_sd = parameters.unsqueeze(1).chunk(2, 2)
        spread = log_sd.exp() * noise
        score = problem.score(m + spread)
        return torch.cat((-score.mean(1), -(score * spread).mean(1) - 1), 1)
