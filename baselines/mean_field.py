"""Mean-field Gaussian variational inference (ADVI's diagonal family; Pyro's AutoNormal).

Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), arXiv:1603.00788, Algorithm 1. Samples x = m + sd eps,
eps ~ N(0, I), maximise the evidence bound E log p(x) + sum_d log sd_d + const by Adam:

    d/dm = E s(x),   d/dlog sd = E[ s(x) sd eps ] + 1

On a Gaussian target the best sd is that of each coordinate given all others, less than the marginal one.

Departures: Adam in place of the paper's step-size sequence; x is unconstrained here, so there is no
transformation; m starts at one draw of the task's initial distribution, as the centre of that distribution is
a symmetric point of network posteriors. Pyro's optimisation loop is not used: see parvibench.nn.variational.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from parvibench.core.algorithm import Algorithm
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.nn.variational import VariationalSettings, VariationalState, begin, descend


class Settings(VariationalSettings):
    """Settings of mean-field variational inference."""


class MeanField(Algorithm[Settings, VariationalState]):
    """Mean-field Gaussian variational inference."""

    name = "mean-field"
    version = 2
    kind = "generator"
    needs = frozenset({"score"})
    settings_type = Settings
    citation = "Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), arXiv:1603.00788"
    summary = "Gaussian variational inference, diagonal covariance"

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> VariationalState:
        """At the first of the task's initial points, narrow."""
        m = problem.init()[:, 0]
        return begin(torch.cat((m, torch.full_like(m, math.log(settings.init_scale))), 1), horizon)

    def step(
        self, problem: Problem, settings: Settings, state: VariationalState, streams: Streams
    ) -> VariationalState:
        """One step of Adam on the bound of a fresh batch."""
        eps = streams.normal("noise", (settings.batch, problem.dim))
        return descend(settings, state, bound_gradient(problem, state.parameters, eps))

    def output(
        self, problem: Problem, settings: Settings, state: VariationalState, n: int, streams: Streams
    ) -> Tensor:
        """Fresh draws."""
        m, log_sd = state.parameters.unsqueeze(1).chunk(2, 2)
        return m + log_sd.exp() * streams.normal("output", (n, problem.dim))


def bound_gradient(problem: Problem, parameters: Tensor, eps: Tensor) -> Tensor:
    """Gradient of the negative bound, (R, 2 D), from noise (R, n, D)."""
    m, log_sd = parameters.unsqueeze(1).chunk(2, 2)
    spread = log_sd.exp() * eps
    score = problem.score(m + spread)
    return torch.cat((-score.mean(1), -(score * spread).mean(1) - 1), 1)
